// How many of the process's own things are left to the program: keys of threads, handlers at exit, and the order in
// which destructors and handlers run.
#include "common.h"

#include <limits.h>
#include <pthread.h>

static pthread_key_t keys[PTHREAD_KEYS_MAX + 8];
static int destroyed;

static void destructor(void *value) {
    destroyed++;
    free(value);
}

static void *thread(void *count) {
    for (int i = 0; i < *(int *)count; i++) CHECK(pthread_setspecific(keys[i], malloc(10)) == 0);
    return NULL;
}

#define HANDLER(number) \
    static void handler_##number(void) { printf("handler %d\n", number); free(malloc(100)); }
HANDLER(0)
HANDLER(1)
HANDLER(2)
HANDLER(3)

__attribute__((destructor)) static void at_the_end(void) {
    printf("destructor of the program\n");
}

int main(void) {
    begin();
    int count = 0;
    while (count < PTHREAD_KEYS_MAX + 8 && pthread_key_create(&keys[count], destructor) == 0) count++;
    printf("%d keys, the first is %u, the last is %u\n", count, keys[0], keys[count - 1]);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, thread, &count) == 0);
    pthread_join(other, NULL);
    printf("%d destroyed\n", destroyed);
    printf("%lu\n", churn(1000));
    for (int i = 0; i < 10; i++) {
        CHECK(atexit(handler_0) == 0);
        CHECK(atexit(handler_1) == 0);
        CHECK(atexit(handler_2) == 0);
        CHECK(atexit(handler_3) == 0);
    }
    return DONE;
}
