// Handlers that allocate on stacks of their own: of signals that the program sends itself, of an overflow of the stack,
// out of which they jump, and of timers that interrupt work.
#include "common.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>

enum { STACK = 16 << 10, PAGE = 4096 };

static sigjmp_buf out;
static volatile sig_atomic_t handled, overflows;
static unsigned long sum;

static void handler(int number) {
    (void)number;
    sum += churn(50);
    handled++;
}

static void overflown(int number) {
    (void)number;
    char *block = malloc(500);
    overflows += block != NULL;
    free(block);
    siglongjmp(out, 1);
}

// Has no end that could be reached.
__attribute__((noinline)) static int fill(int depth) {
    volatile char frame[4000];
    if (depth < 0) return 0;
    frame[0] = (char)depth;
    frame[3999] = 1;
    return fill(depth + 1) + frame[depth % 4000];
}

// A stack for signals between two pages that cannot be touched.
static void own_stack(void) {
    char *memory = mmap(NULL, STACK + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    CHECK(mprotect(memory + PAGE, STACK, PROT_READ | PROT_WRITE) == 0);
    stack_t stack = {.ss_sp = memory + PAGE, .ss_size = STACK};
    CHECK(sigaltstack(&stack, NULL) == 0);
}

static void *thread(void *unused) {
    own_stack();
    for (int i = 0; i < 100; i++) pthread_kill(pthread_self(), SIGUSR1);
    return unused;
}

int main(void) {
    begin();
    own_stack();
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    for (int i = 0; i < 200; i++) raise(i % 2 ? SIGUSR1 : SIGUSR2);
    printf("%d handled, sum %lu\n", (int)handled, sum);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, thread, NULL) == 0);
    pthread_join(other, NULL);
    printf("%d handled, sum %lu\n", (int)handled, sum);
    action.sa_handler = overflown;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int i = 0; i < 5; i++)
        if (sigsetjmp(out, 1) == 0) printf("%d\n", fill(0));
    printf("%d overflows, sum %lu\n", (int)overflows, churn(1000));
    stack_t none = {.ss_flags = SS_DISABLE};
    CHECK(sigaltstack(&none, NULL) == 0);
    // Blocked ones come when they are let in.
    sigset_t all, before, pending;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_BLOCK, &all, &before) == 0);
    raise(SIGUSR1);
    sum = churn(1000);
    CHECK(sigpending(&pending) == 0);
    int waiting = 0;
    for (int number = 1; number < 65; number++) waiting += sigismember(&pending, number) == 1;
    printf("%d pending, %d handled\n", waiting, (int)handled);
    CHECK(sigprocmask(SIG_SETMASK, &before, NULL) == 0);
    printf("%d handled\n", (int)handled);
    return DONE;
}
