// Fibres that switch between allocations, on stacks of which neighbours are protected, given away and taken back while
// they run. The argument says where the stacks are.
#include "common.h"

#include <sys/mman.h>
#include <ucontext.h>

enum { FIBRES = 16, STACK = 32 << 10, PAGE = 4096, ROUNDS = 40 };

static ucontext_t fibres[FIBRES], scheduler;
static char *guards[FIBRES];
static unsigned long sums[FIBRES];
static int ended;

// Some frames deep, so that what lies above the stack pointer is near the stack's end as well as far from it.
__attribute__((noinline)) static unsigned long deep(int depth, unsigned count) {
    volatile char frame[200];
    frame[depth % 200] = 1;
    unsigned long sum = depth ? deep(depth - 1, count) : churn(count);
    return sum + (unsigned long)frame[depth % 200];
}

static void run(int number) {
    for (int round = 0; round < ROUNDS; round++) {
        void *block = malloc(64 + (size_t)number);
        CHECK(block != NULL);
        // The page behind this very stack's end goes, or comes back.
        if (round % 4 == 1) CHECK(mprotect(guards[number], PAGE, PROT_NONE) == 0);
        free(block);
        sums[number] += deep(number % 5 * (round % 3), 40);
        if (round % 4 == 3) CHECK(mprotect(guards[number], PAGE, PROT_READ | PROT_WRITE) == 0);
        CHECK(swapcontext(&fibres[number], &scheduler) == 0);
    }
    ended++;
}

static void all_run(char *memory) {
    for (volatile int i = 0; i < FIBRES; i++) {
        char *stack = memory + (size_t)i * (STACK + PAGE);
        guards[i] = stack + STACK;
        CHECK(getcontext(&fibres[i]) == 0);
        fibres[i].uc_stack.ss_sp = stack;
        fibres[i].uc_stack.ss_size = STACK;
        fibres[i].uc_link = &scheduler;
        makecontext(&fibres[i], (void (*)(void))run, 1, i);
    }
    for (int round = 0; round <= ROUNDS; round++)
        for (int i = 0; i < FIBRES; i++)
            if (round < ROUNDS || ended < FIBRES) CHECK(swapcontext(&scheduler, &fibres[i]) == 0);
    unsigned long sum = 0;
    for (int i = 0; i < FIBRES; i++) sum += sums[i];
    printf("%d fibres ended, sum %lu\n", ended, sum);
}

int main(int count, char **arguments) {
    begin();
    CHECK(count == 2);
    size_t size = FIBRES * (STACK + PAGE);
    if (strcmp(arguments[1], "mapped") == 0) {
        char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(memory != MAP_FAILED);
        all_run(memory);
        munmap(memory, size);
    } else if (strcmp(arguments[1], "heap") == 0) {
        char *memory = aligned_alloc(PAGE, size);
        CHECK(memory != NULL);
        all_run(memory);
        for (int i = 0; i < FIBRES; i++) CHECK(mprotect(guards[i], PAGE, PROT_READ | PROT_WRITE) == 0);
        free(memory);
    } else {
        // In main's own frame: all belong to the thread's stack.
        static char *memory;
        char frame[FIBRES * (STACK + PAGE) + PAGE];
        memory = (char *)(((uintptr_t)frame + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
        all_run(memory);
        for (int i = 0; i < FIBRES; i++) CHECK(mprotect(guards[i], PAGE, PROT_READ | PROT_WRITE) == 0);
    }
    return DONE;
}
