// Tasks with a switch of their own, written by hand, as libtask and many others have it: nothing tells anybody that the
// stack is another one; and their stacks are blocks of the heap.
#include "common.h"

#ifdef __x86_64__
enum { TASKS = 100, STACK = 16 << 10, ROUNDS = 50 };

// switch_to(&save, load): keeps the registers that a callee must keep on the old stack.
__asm__(".globl switch_to\n"
        "switch_to:\n"
        "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
        "  mov %rsp, (%rdi)\n"
        "  mov %rsi, %rsp\n"
        "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
        "  ret\n");
void switch_to(void **save, void *load);

static void *scheduler, *tasks[TASKS];
static char *stacks[TASKS];
static int current, ended;
static unsigned long sum;

static void task(void) {
    int mine = current;
    for (int round = 0; round < ROUNDS; round++) {
        sum += churn(20 + (unsigned)mine % 7);
        // Fresh memory for somebody else's stack, from this one.
        if (round == mine % ROUNDS) {
            char *block = malloc(STACK * 2);
            CHECK(block != NULL);
            free(block);
        }
        switch_to(&tasks[mine], scheduler);
    }
    ended++;
    for (;;) switch_to(&tasks[mine], scheduler);
}

int main(void) {
    begin();
    for (int i = 0; i < TASKS; i++) {
        stacks[i] = malloc(STACK);
        CHECK(stacks[i] != NULL);
        void **top = (void **)(((uintptr_t)stacks[i] + STACK) & ~(uintptr_t)15);
        *--top = NULL;
        *--top = (void *)task;
        top -= 6;
        memset(top, 0, 6 * sizeof *top);
        tasks[i] = top;
    }
    for (int round = 0; round <= ROUNDS; round++)
        for (current = 0; current < TASKS; current++) switch_to(&scheduler, tasks[current]);
    for (int i = 0; i < TASKS; i++) free(stacks[i]);
    printf("%d tasks ended, sum %lu\n", ended, sum);
    return DONE;
}
#else
int main(void) {
    begin();
    SKIP("the switch is written for x86-64");
}
#endif
