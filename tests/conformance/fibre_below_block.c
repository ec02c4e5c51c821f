// A fibre whose mapped stack lies directly below a large block: the fibre frees the block, which the C library unmaps by
// itself, and goes on allocating at the very end of its stack.
#include "common.h"

#include <malloc.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK = 64 << 10, LARGE = 1 << 20, ROUNDS = 200 };

static ucontext_t fibre, back;
static char *large;
static unsigned long sum;

static void run(void) {
    // Whoever looks for the end of this stack finds it behind the block.
    for (int i = 0; i < 10; i++) free(malloc(100 + (size_t)i));
    free(large);
    sum += churn(300);
    char *again = malloc(LARGE / 2);
    CHECK(again != NULL);
    again[0] = 1;
    again = realloc(again, LARGE);
    CHECK(again != NULL && again[0] == 1);
    free(again);
    sum += churn(300);
}

int main(void) {
    static int below;
    static char *stack;
    begin();
    // A block that is freed must not make the next one lie in the heap.
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    for (int round = 0; round < ROUNDS; round++) {
        large = malloc(LARGE);
        CHECK(large != NULL);
        memset(large, round, LARGE);
        // The header of the block's mapping lies 16 bytes below the block.
        char *end = large - 16;
        CHECK(((uintptr_t)end & 0xfff) == 0);
        stack = mmap(end - STACK, STACK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (stack == MAP_FAILED) {
            // Something is there already; let it be, and try with what lies below.
            stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            CHECK(stack != MAP_FAILED);
        }
        below += stack + STACK == end;
        CHECK(getcontext(&fibre) == 0);
        fibre.uc_stack.ss_sp = stack;
        fibre.uc_stack.ss_size = STACK;
        fibre.uc_link = &back;
        makecontext(&fibre, run, 0);
        CHECK(swapcontext(&back, &fibre) == 0);
        CHECK(munmap(stack, STACK) == 0);
    }
    CHECK(below > 0);
    printf("%d rounds, sum %lu\n", ROUNDS, sum);
    return DONE;
}
