// Two threads that meet in the way that the first argument names, so often as the second says.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Alignas(64) atomic_long counter;
static _Alignas(64) pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Alignas(64) long value;
static _Alignas(64) sem_t ping, pong;
static _Alignas(64) volatile long neighbours[2];
static char stacks[2][1 << 16];
static long times;

static void *add(void *side) {
    (void)side;
    for (long i = 0; i < times; i++)
        atomic_fetch_add(&counter, 1);
    return NULL;
}

static void *lock(void *side) {
    (void)side;
    for (long i = 0; i < times; i++) {
        pthread_mutex_lock(&mutex);
        value++;
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void *post(void *side) {
    for (long i = 0; i < times; i++) {
        sem_wait(side ? &pong : &ping);
        value++;
        sem_post(side ? &ping : &pong);
    }
    return NULL;
}

static void *wait_for_turn(void *side) {
    for (long i = 0; i < times; i++) {
        pthread_mutex_lock(&mutex);
        while (value % 2 != (side != NULL))
            pthread_cond_wait(&changed, &mutex);
        value++;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

// Calls that come back by themselves come first, as in the threads of Rust, and of a file in between.
static void *beside(void *side) {
    int own = side != NULL, file = memfd_create("beside", 0);
    stack_t stack = {.ss_sp = stacks[own], .ss_size = sizeof stacks[own]};
    sigaltstack(&stack, NULL);
    for (long i = 0; i < times; i++) {
        neighbours[own]++;
        if (i % 1000 == 0 && write(file, &times, sizeof times) < 0)
            abort();
    }
    close(file);
    return NULL;
}

int main(int count, char **words) {
    if (count < 3)
        return 2;
    times = atol(words[2]);
    void *(*work)(void *) = !strcmp(words[1], "add")    ? add
                            : !strcmp(words[1], "lock") ? lock
                            : !strcmp(words[1], "post") ? post
                            : !strcmp(words[1], "beside") ? beside
                                                        : wait_for_turn;
    sem_init(&ping, 0, 1);
    sem_init(&pong, 0, 0);
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, i ? words : NULL);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%ld\n", value + atomic_load(&counter));
    return 0;
}
