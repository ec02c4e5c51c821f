// Two threads that do the same beside each other, in the way that the first argument names. What they would move if they did it at
// equal rate is known.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES = 10000, ENTRIES = 256, WORDS = 8192 };

static _Alignas(64) atomic_long counter;
static _Alignas(64) struct { atomic_long both, own[2]; } line;
static _Alignas(64) pthread_barrier_t barrier;
static _Alignas(64) struct { unsigned long key, value; } table[ENTRIES];
static _Alignas(64) long words[WORDS];
static _Alignas(64) long times = TIMES;

/* Each tries until it has added one. */
static void *compare(void *side)
{
    (void)side;
    for (long i = 0; i < times; i++) {
        long old = atomic_load(&counter);
        while (!atomic_compare_exchange_weak(&counter, &old, old + 1))
            ;
    }
    return NULL;
}

/* First at one word, then each at its own. */
static void *phases(void *side)
{
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < times; i++)
        atomic_fetch_add(&line.both, 1);
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < times; i++)
        atomic_fetch_add(&line.own[side != NULL], 1);
    return NULL;
}

static unsigned next(unsigned long *state)
{
    *state = *state * 6364136223846793005ul + 1442695040888963407ul;
    return *state >> 56;
}

/* Entries at random: four lie on each line. */
static void *pick(void *side)
{
    unsigned long state = side ? 982 : 5;
    for (long i = 0; i < times; i++) {
        unsigned index = next(&state);
        if (table[index].key == index)
            table[index].value++;
    }
    return NULL;
}

/* What the first thread wrote is read. */
static void *read_half(void *side)
{
    volatile long *from = words + (side ? WORDS / 2 : 0);
    long sum = 0;
    for (long i = 0; i < WORDS / 2; i++)
        sum += from[i];
    return (void *)sum;
}

int main(int arguments, char **argument)
{
    const char *how = arguments > 1 ? argument[1] : "";
    void *(*work)(void *) = strcmp(how, "compare") == 0  ? compare
                            : strcmp(how, "phases") == 0 ? phases
                            : strcmp(how, "pick") == 0   ? pick
                                                         : read_half;
    pthread_barrier_init(&barrier, NULL, 2);
    for (unsigned i = 0; i < ENTRIES; i++)
        table[i].key = i;
    for (long i = 0; i < WORDS; i++)
        words[i] = i;
    /* What both would move, taking turns. */
    if (work == pick) {
        unsigned long states[2] = {5, 982}, moved = 0;
        int last[ENTRIES / 4];
        memset(last, -1, sizeof last);
        for (long i = 0; i < 2 * times; i++) {
            int *had = &last[next(&states[i % 2]) / 4];
            moved += *had >= 0 && *had != i % 2;
            *had = i % 2;
        }
        printf("%lu\n", moved);
    }
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
