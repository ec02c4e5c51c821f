// A stack that grows by pieces which are mapped when they are needed (gcc -fsplit-stack), in main and in threads.
#include "common.h"

#include <pthread.h>

__attribute__((noinline)) static unsigned long deep(int depth) {
    volatile char frame[500];
    frame[depth % 500] = 1;
    char *block = malloc((size_t)depth % 300 + 1);
    unsigned long sum = depth ? deep(depth - 1) : 0;
    free(block);
    return sum + (unsigned long)frame[depth % 500];
}

static void *thread(void *sum) {
    for (int i = 0; i < 20; i++) *(unsigned long *)sum += deep(200 * (i % 5));
    return sum;
}

int main(void) {
    begin();
    unsigned long sums[5] = {0};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        pthread_attr_t attributes;
        CHECK(pthread_attr_init(&attributes) == 0);
        CHECK(pthread_attr_setstacksize(&attributes, 64 << 10) == 0);
        CHECK(pthread_create(&threads[i], &attributes, thread, &sums[i]) == 0);
    }
    thread(&sums[4]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 5; i++) printf("%lu\n", sums[i]);
    return DONE;
}
