/* counters DISTANCE TIMES: two threads increment counters that lie DISTANCE bytes apart. Each does so once and waits
   for the other: one that ended before the other's first access would share no line with it. */
#include <pthread.h>
#include <stdlib.h>

static int times;
static pthread_barrier_t both;
static char memory[4096] __attribute__((aligned(4096)));

static void *work(void *argument) {
    volatile long *counter = argument;
    (*counter)++;
    pthread_barrier_wait(&both);
    for (int i = 1; i < times; i++) (*counter)++;
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    int distance = atoi(argv[1]);
    times = atoi(argv[2]);
    pthread_t threads[2];
    pthread_barrier_init(&both, 0, 2);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, memory + i * distance);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
