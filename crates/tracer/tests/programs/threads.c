/* threads AT_A_TIME IN_ALL INCREMENTS: threads that each increment a word of their own. */
#include <pthread.h>
#include <stdlib.h>

static int increments;
static struct { volatile long value; char room[120]; } words[4096] __attribute__((aligned(128)));

static void *work(void *argument) {
    volatile long *word = argument;
    for (int i = 0; i < increments; i++) (*word)++;
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    int at_a_time = atoi(argv[1]), in_all = atoi(argv[2]);
    increments = atoi(argv[3]);
    pthread_t *threads = calloc(at_a_time, sizeof *threads);
    for (int done = 0; done < in_all; done += at_a_time) {
        for (int i = 0; i < at_a_time; i++)
            if (pthread_create(&threads[i], 0, work, (void *)&words[(done + i) % 4096].value)) abort();
        for (int i = 0; i < at_a_time; i++) pthread_join(threads[i], 0);
    }
    return 0;
}
