/* sequence TIMES: two threads take numbers from one counter and leave a mark at each number, so that
   the addresses tell in which order the numbers were taken. */
#include <pthread.h>
#include <stdlib.h>

static long next_number;
static int times;
volatile char *marks;

static void *work(void *unused) {
    (void)unused;
    for (int i = 0; i < times; i++) {
        long number = __atomic_fetch_add(&next_number, 1, __ATOMIC_SEQ_CST);
        marks[number] = 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    times = atoi(argv[1]);
    marks = calloc(2, times);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, work, 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
