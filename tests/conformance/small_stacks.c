// Allocating where little stack is left: fibres of 4 kB and 8 kB above a page that cannot be touched, threads with the
// smallest stack there is, and the last kilobytes before the end of main's.
#include "common.h"

#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { PAGE = 4096 };

static ucontext_t fibre, back;
static void *blocks[64];

static void few_blocks(void) {
    for (int i = 0; i < 64; i++) blocks[i] = malloc((size_t)i * 8);
    for (int i = 0; i < 64; i += 2) blocks[i] = realloc(blocks[i], (size_t)i * 9);
    for (int i = 0; i < 64; i++) free(blocks[i]);
}

static void on_stack_of(size_t size) {
    char *memory = mmap(NULL, size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK(mprotect(memory + PAGE, size, PROT_READ | PROT_WRITE) == 0);
    CHECK(getcontext(&fibre) == 0);
    fibre.uc_stack.ss_sp = memory + PAGE;
    fibre.uc_stack.ss_size = size;
    fibre.uc_link = &back;
    makecontext(&fibre, few_blocks, 0);
    CHECK(swapcontext(&back, &fibre) == 0);
    munmap(memory, size + 2 * PAGE);
    printf("on %zu bytes\n", size);
}

static void *thread(void *sum) {
    for (int i = 0; i < 20; i++) few_blocks();
    return sum;
}

int main(void) {
    begin();
    // All that is done once is done before.
    few_blocks();
    on_stack_of(4 * PAGE);
    on_stack_of(2 * PAGE);
    on_stack_of(PAGE);
    for (int i = 0; i < 20; i++) {
        pthread_attr_t attributes;
        pthread_t other;
        CHECK(pthread_attr_init(&attributes) == 0);
        CHECK(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
        CHECK(pthread_create(&other, &attributes, thread, NULL) == 0);
        CHECK(pthread_join(other, NULL) == 0);
        pthread_attr_destroy(&attributes);
    }
    printf("threads on the smallest stack\n");
    return DONE;
}
