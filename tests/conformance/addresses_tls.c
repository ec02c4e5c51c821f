// Where thread-local variables lie within their pages, in the main thread and in others, those of a library that is
// loaded later included; and how much of the static block is left to such a library.
#include "common.h"

#include <dlfcn.h>
#include <pthread.h>

static _Thread_local int small;
static _Thread_local char large[1000];

static void tell(const char *who) {
    printf("%s: %03x %03x, %+ld, errno at %03x\n", who, page_offset(&small), page_offset(large),
           large - (char *)&small, page_offset(&errno));
}

static void *thread(void *unused) {
    tell("thread");
    return unused;
}

int main(void) {
    begin();
    tell("main");
    for (int i = 0; i < 3; i++) {
        pthread_t other;
        CHECK(pthread_create(&other, NULL, thread, NULL) == 0);
        pthread_join(other, NULL);
    }
    pthread_attr_t attributes;
    void *stack;
    size_t size;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getstack(&attributes, &stack, &size) == 0);
    printf("the thread's own block at %03x\n", page_offset((void *)pthread_self()));
    return DONE;
}
