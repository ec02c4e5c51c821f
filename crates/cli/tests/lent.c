/* Two threads count beside each other in what their parent, which waits for them, has on its stack. It prints where that is. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

struct stats {
    volatile long hits;
    volatile long misses;
};

static void pin(int cpu)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
}

static void count(volatile long *counter, int cpu)
{
    pin(cpu);
    for (time_t end = time(NULL) + 3; time(NULL) < end;)
        for (int i = 0; i < 1000000; i++)
            __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static void *hit(void *stats)
{
    count(&((struct stats *)stats)->hits, 0);
    return NULL;
}

static void *miss(void *stats)
{
    count(&((struct stats *)stats)->misses, 1);
    return NULL;
}

__attribute__((noinline)) static void serve(void)
{
    _Alignas(64) struct stats stats = {0, 0};
    pthread_t threads[2];
    printf("%p\n", (void *)&stats);
    fflush(stdout);
    pthread_create(&threads[0], NULL, hit, &stats);
    pthread_create(&threads[1], NULL, miss, &stats);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    serve();
    return 0;
}
