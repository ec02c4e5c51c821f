/* sequence TIMES free|turns: two threads take numbers from one counter and leave a mark at each
   number, so that the addresses tell in which order the numbers were taken. In turns, each waits
   until the other has taken one. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static long next_number;
static int times, turns;
volatile char *marks;

static void *work(void *own) {
    for (int i = 0; i < times; i++) {
        int patience = 0;
        while (turns && __atomic_load_n(&next_number, __ATOMIC_ACQUIRE) % 2 != (long)own)
            if (++patience % 256 == 0) sched_yield();
        long number = __atomic_fetch_add(&next_number, 1, __ATOMIC_SEQ_CST);
        marks[number] = 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    times = atoi(argv[1]);
    turns = argc > 2 && !strcmp(argv[2], "turns");
    marks = calloc(2, times);
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
