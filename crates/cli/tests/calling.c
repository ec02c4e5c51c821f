/* Two threads count in one variable through one function, each from a function of its own. */
#include <pthread.h>
#include <stdlib.h>

long counted;

__attribute__((noipa)) void count(long by)
{
    __atomic_fetch_add(&counted, by, __ATOMIC_RELAXED);
}

__attribute__((noipa)) void requests(long rounds)
{
    for (long at = 0; at < rounds; at++) count(1);
}

__attribute__((noipa)) void replies(long rounds)
{
    for (long at = 0; at < rounds; at++) count(2);
}

static void *reply(void *rounds)
{
    replies((long)rounds);
    return NULL;
}

int main(int count, char **words)
{
    long rounds = count > 1 ? atol(words[1]) : 1000;
    pthread_t other;
    pthread_create(&other, NULL, reply, (void *)rounds);
    requests(rounds);
    return pthread_join(other, NULL);
}
