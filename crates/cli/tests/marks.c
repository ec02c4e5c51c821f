// A target for tests of marks: marks MODE [NUMBER].
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../preload/include/linewise.h"

// The two threads' counters on one line, and each on a pair of its own.
static struct { _Atomic long hits[2]; char rest[112]; } shared __attribute__((aligned(128)));
static struct { _Atomic long hits; char rest[120]; } apart[2] __attribute__((aligned(128)));
static pthread_barrier_t all;
static long rounds;
static double spent[2][2];

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double wall_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

__attribute__((noinline)) static void count(_Atomic long *counter, double seconds) {
    for (double end = wall_seconds() + seconds; wall_seconds() < end;)
        for (int i = 0; i < 2000; i++) atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

// Says what CPU time it spent in each phase: three times as much wall-clock time in `count` as in `fight`.
static void *work(void *argument) {
    size_t me = (size_t)argument;
    for (long i = 0; i < rounds; i++) {
        pthread_barrier_wait(&all);
        LINEWISE_SESSION((uint64_t)i % 4 * 10 + me, me ? "second" : "first");
        LINEWISE_PHASE("fight");
        double began = cpu_seconds();
        count(&shared.hits[me], 0.02);
        double middle = cpu_seconds();
        LINEWISE_PHASE("count");
        count(&apart[me].hits, 0.06);
        spent[me][0] += middle - began;
        spent[me][1] += cpu_seconds() - middle;
        LINEWISE_PHASE_END();
    }
    LINEWISE_SESSION_END();
    return NULL;
}

static void *never_ends(void *argument) {
    LINEWISE_SESSION((uint64_t)(size_t)argument, "of a thread that ends");
    LINEWISE_PHASE("unended");
    count(&apart[0].hits, 0.05);
    return NULL;
}

static void in_threads(void *(*run)(void *)) {
    pthread_t threads[2];
    pthread_barrier_init(&all, NULL, 2);
    for (size_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static void hostile(long marks) {
    in_threads(never_ends);
    char *name = malloc(10001);
    memset(name, 'x', 10000);
    name[10000] = 0;
    // A character is cut by the limit.
    memcpy(name + 127, "\xc3\xa9", 2);
    LINEWISE_SESSION(UINT64_MAX, name);
    LINEWISE_PHASE(NULL);
    LINEWISE_PHASE("outer");
    LINEWISE_PHASE("\xff\xfe not text \x1b[31m");
    LINEWISE_PHASE_END();
    LINEWISE_PHASE_END();
    LINEWISE_SESSION_END();
    LINEWISE_SESSION_END();
    free(name);
    for (long i = 0; i < marks; i++) LINEWISE_SESSION((uint64_t)i, "flood");
    LINEWISE_SESSION_END();
    LINEWISE_PHASE("to the end");
    count(&apart[0].hits, 0.3);
}

int main(int count_of_arguments, char **arguments) {
    const char *mode = count_of_arguments > 1 ? arguments[1] : "";
    long number = count_of_arguments > 2 ? atol(arguments[2]) : 1;
    if (!strcmp(mode, "phases")) {
        rounds = number;
        in_threads(work);
        double fight = spent[0][0] + spent[1][0];
        printf("%f\n", fight / (fight + spent[0][1] + spent[1][1]));
        return 0;
    }
    if (!strcmp(mode, "hostile")) {
        hostile(number);
        return 0;
    }
    if (!strcmp(mode, "cost")) {
        // Nanoseconds a mark, the median of many rows of some that fit into a ring.
        double rows[101];
        LINEWISE_SESSION(0, "connection");
        for (int row = 0; row < 101; row++) {
            usleep(20000);
            double began = wall_seconds();
            for (long i = 0; i < 1000; i++) LINEWISE_SESSION((uint64_t)i, "connection");
            rows[row] = (wall_seconds() - began) * 1e6;
        }
        for (int i = 1; i < 101; i++)
            for (int j = i; j > 0 && rows[j] < rows[j - 1]; j--) {
                double other = rows[j];
                rows[j] = rows[j - 1], rows[j - 1] = other;
            }
        printf("%.1f ns a mark (%.1f to %.1f)\n", rows[50], rows[5], rows[95]);
        return 0;
    }
    return 2;
}
