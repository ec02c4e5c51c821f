/* Programs for `--source exact`, one for each first word:
   quiet        walks over some memory
   crowd N      N threads, alive at the same time, each of which adds up some memory
   wide         stores 64 bytes with AVX-512
   paths        two functions walk over a table by the same third one
   lines N R    two threads increment neighbouring words on each of N lines R times, begun at a barrier
   begun N R    the same, without it
   family N R   the same as lines, then in a forked child, then here again, then as another program
   busy         stores for ever, having said its id */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char memory[1 << 16];
static pthread_barrier_t all_alive;

static long sum(long bytes) {
    long all = 0;
    for (long i = 0; i < bytes; i += 8) all += *(volatile long *)(memory + i);
    return all;
}

static void *adds_beside_others(void *unused) {
    pthread_barrier_wait(&all_alive);
    sum(sizeof memory);
    return unused;
}

static void crowd(int threads) {
    pthread_t thread[threads];
    pthread_barrier_init(&all_alive, 0, threads);
    for (int i = 0; i < threads; i++) pthread_create(&thread[i], 0, adds_beside_others, 0);
    for (int i = 0; i < threads; i++) pthread_join(thread[i], 0);
}

static double table[1 << 16];

__attribute__((noinline)) static double walk(long from, long to) {
    double all = 0;
    for (long i = from; i < to; i++) all += ((volatile double *)table)[i];
    return all;
}

__attribute__((noinline)) static double often(void) {
    double all = 0;
    for (int i = 0; i < 9; i++) all += walk(0, 1 << 16);
    return all;
}

__attribute__((noinline)) static double seldom(void) {
    double all = 0;
    for (int i = 0; i < 3; i++) all += walk(0, 1 << 16);
    return all;
}

static long lines, rounds;
static int meet;
static volatile struct { long of[8]; } counters[1 << 12] __attribute__((aligned(64)));

static void *increments(void *which) {
    if (meet) pthread_barrier_wait(&all_alive);
    for (int i = 0; i < rounds; i++)
        for (long line = 0; line < lines; line++) counters[line].of[(long)which]++;
    return 0;
}

static void contend(void) {
    pthread_t thread[2];
    pthread_barrier_init(&all_alive, 0, 2);
    for (long i = 0; i < 2; i++) pthread_create(&thread[i], 0, increments, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], 0);
}

int main(int argc, char **argv) {
    const char *what = argv[1];
    int number = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(what, "quiet")) return sum(sizeof memory) != 0;
    if (!strcmp(what, "crowd")) crowd(number);
#ifdef __x86_64__
    if (!strcmp(what, "wide"))
        __asm__ volatile("vpxorq %%zmm0, %%zmm0, %%zmm0\n\tvmovdqu64 %%zmm0, %0" : "=m"(memory));
#endif
    if (!strcmp(what, "paths")) return often() + seldom() != 0;
    meet = strcmp(what, "begun");
    if (!meet || !strcmp(what, "lines") || !strcmp(what, "family")) {
        lines = number;
        rounds = atoi(argv[3]);
        contend();
    }
    if (!strcmp(what, "family")) {
        if (!fork()) {
            contend();
            _exit(0);
        }
        wait(0);
        contend();
        execl(argv[0], argv[0], "lines", argv[2], argv[3], (char *)0);
        return 1;
    }
    if (!strcmp(what, "busy")) {
        FILE *said = fopen(argv[2], "w");
        fprintf(said, "%d\n", getpid());
        fclose(said);
        long wanted = atol(argv[3]);
        for (long i = 0; i < wanted; i++) ((volatile char *)memory)[i % sizeof memory]++;
    }
    return 0;
}
