// Processes that meet in memory that they share: at an atomic counter, between signals to themselves, a mutex, semaphores around a ring, a barrier. What they do
// does not depend on time. meeting KIND-OF-MEMORY HOW PROCESSES TIMES [threads]; without words threads of a child meet
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 8 };

struct meeting {
    _Alignas(64) uint64_t added;
    _Alignas(64) pthread_mutex_t lock;
    uint64_t counted;
    _Alignas(64) sem_t full, empty;
    uint64_t slots[SLOTS], sum;
    _Alignas(64) pthread_barrier_t barrier;
    _Alignas(64) uint64_t own[SLOTS];
};

static struct meeting *map(const char *kind)
{
    size_t bytes = sizeof(struct meeting);
    int file = -1;
    if (strcmp(kind, "segment") == 0)
        return shmat(shmget(IPC_PRIVATE, bytes, 0600), NULL, 0);
    if (strcmp(kind, "memfd") == 0)
        file = memfd_create("meeting", 0);
    else if (strcmp(kind, "file") == 0)
        file = open("met", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file >= 0 && ftruncate(file, (off_t)bytes) != 0)
        exit(1);
    int how = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, how, file, 0);
}

__attribute__((noinline)) static void meet(struct meeting *here, const char *how, int number, long times)
{
    for (long i = 0; i < times; i++) {
        if (strcmp(how, "counter") == 0) {
            for (int j = 0; j < 10000; j++)
                __atomic_fetch_add(&here->added, 1, __ATOMIC_SEQ_CST);
        } else if (strcmp(how, "signals") == 0) {
            kill(getpid(), SIGUSR1);
            for (int j = 0; j < 100; j++)
                __atomic_fetch_add(&here->added, 1, __ATOMIC_SEQ_CST);
        } else if (strcmp(how, "mutex") == 0) {
            pthread_mutex_lock(&here->lock);
            here->counted++;
            pthread_mutex_unlock(&here->lock);
        } else if (strcmp(how, "barrier") == 0) {
            here->own[number]++;
            pthread_barrier_wait(&here->barrier);
        } else if (number > 0) {
            sem_wait(&here->empty);
            here->slots[i % SLOTS] = (uint64_t)i;
            sem_post(&here->full);
        } else {
            sem_wait(&here->full);
            here->sum += here->slots[i % SLOTS];
            sem_post(&here->empty);
        }
    }
}

static void handle(int signal)
{
    (void)signal;
}

static void *count(void *word)
{
    for (int i = 0; i < 10000; i++)
        __atomic_fetch_add((uint64_t *)word, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

// Two threads of a forked child count in memory of its own.
static int in_child(void)
{
    if (fork() == 0) {
        static _Alignas(64) uint64_t word;
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, count, &word);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        _exit(0);
    }
    return wait(NULL) < 0;
}

static void *idle(void *word)
{
    while (!__atomic_load_n((int *)word, __ATOMIC_ACQUIRE))
        ;
    return NULL;
}

// Processes that have the memory by a descriptor, and nothing else in common, as they execute this again.
static int executed(char **argument)
{
    int processes = atoi(argument[3]);
    if (strcmp(argument[1], "executed") == 0) {
        int file = memfd_create("meeting", 0);
        if (ftruncate(file, sizeof(struct meeting)) != 0)
            return 1;
        char word[16];
        snprintf(word, sizeof word, "%d", file);
        for (int number = 0; number < processes; number++)
            if (fork() == 0)
                execl("/proc/self/exe", "meeting", word, argument[2], argument[3], argument[4], NULL);
        while (wait(NULL) > 0)
            ;
        return 0;
    }
    struct meeting *here =
        mmap(NULL, sizeof *here, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argument[1]), 0);
    __atomic_fetch_add(&here->counted, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&here->counted, __ATOMIC_SEQ_CST) < (uint64_t)processes)
        ;
    meet(here, argument[2], 0, atol(argument[4]));
    return 0;
}

int main(int arguments, char **argument)
{
    if (arguments < 5)
        return in_child();
    signal(SIGUSR1, handle);
    if (strcmp(argument[1], "executed") == 0 || argument[1][0] <= '9')
        return executed(argument);
    int processes = atoi(argument[3]), done = 0;
    long times = atol(argument[4]);
    pthread_t thread;
    // There are two threads, and so an order, before there is memory for others.
    if (arguments > 5)
        pthread_create(&thread, NULL, idle, &done);
    struct meeting *here = map(argument[1]);
    pthread_mutexattr_t shared_lock;
    pthread_mutexattr_init(&shared_lock);
    pthread_mutexattr_setpshared(&shared_lock, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&here->lock, &shared_lock);
    sem_init(&here->full, 1, 0);
    sem_init(&here->empty, 1, SLOTS);
    pthread_barrierattr_t shared_barrier;
    pthread_barrierattr_init(&shared_barrier);
    pthread_barrierattr_setpshared(&shared_barrier, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&here->barrier, &shared_barrier, (unsigned)processes);
    for (int number = 1; number < processes; number++) {
        if (fork() == 0) {
            meet(here, argument[2], number, times);
            _exit(0);
        }
    }
    meet(here, argument[2], 0, times);
    while (wait(NULL) > 0)
        ;
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    if (arguments > 5)
        pthread_join(thread, NULL);
    uint64_t sum = here->added + here->counted + here->sum;
    for (int number = 0; number < processes; number++)
        sum += here->own[number];
    fprintf(stderr, "%lu\n", (unsigned long)sum);
    return 0;
}
