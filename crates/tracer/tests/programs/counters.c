/* counters DISTANCE TIMES: two threads increment counters that lie DISTANCE bytes apart. */
#include <pthread.h>
#include <stdlib.h>

static int times;
static char memory[4096] __attribute__((aligned(4096)));

static void *work(void *argument) {
    volatile long *counter = argument;
    for (int i = 0; i < times; i++) (*counter)++;
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    int distance = atoi(argv[1]);
    times = atoi(argv[2]);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, memory + i * distance);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
