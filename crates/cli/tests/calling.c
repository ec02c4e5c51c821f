/* Two threads count in one variable through one function, each from a function of its own, for some seconds. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

long counted;
static double seconds;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

__attribute__((noipa)) void count(long by)
{
    __atomic_fetch_add(&counted, by, __ATOMIC_RELAXED);
}

__attribute__((noipa)) void requests(double end)
{
    while (now() < end)
        for (long at = 0; at < 100000; at++) count(1);
}

__attribute__((noipa)) void replies(double end)
{
    while (now() < end)
        for (long at = 0; at < 100000; at++) count(2);
}

static void *reply(void *nothing)
{
    replies(now() + seconds);
    return nothing;
}

int main(int count, char **words)
{
    seconds = count > 1 ? atof(words[1]) : 0.1;
    pthread_t other;
    pthread_create(&other, NULL, reply, NULL);
    requests(now() + seconds);
    return pthread_join(other, NULL);
}
