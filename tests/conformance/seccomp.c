// Sandboxes: the argument says which. Once it stands the program allocates, in threads where these are allowed, and
// every system call that is not its own ends it.
#include "common.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { BLOCKS = 10000, THREADS = 4 };

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), RETURN(SECCOMP_RET_ALLOW)

static volatile sig_atomic_t trapped;
static unsigned long sums[THREADS];
static pthread_barrier_t begun, allowed;

// What a program needs that allocates, makes threads, waits and writes; the rest meets `otherwise`.
static struct sock_fprog ordinary(unsigned otherwise) {
    static struct sock_filter filter[] = {
        LOAD(nr),
        ALLOW(read), ALLOW(write), ALLOW(exit), ALLOW(exit_group), ALLOW(brk), ALLOW(mmap), ALLOW(munmap),
        ALLOW(mremap), ALLOW(madvise), ALLOW(mprotect), ALLOW(futex), ALLOW(rt_sigreturn), ALLOW(rt_sigprocmask),
        ALLOW(rt_sigaction), ALLOW(clone3), ALLOW(clone), ALLOW(set_robust_list), ALLOW(rseq), ALLOW(sched_getaffinity),
        RETURN(0),
    };
    filter[sizeof filter / sizeof *filter - 1].k = otherwise;
    return (struct sock_fprog){sizeof filter / sizeof *filter, filter};
}

static void *thread(void *sum) {
    *(unsigned long *)sum = churn(BLOCKS);
    return NULL;
}

static void allocate_in_threads(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, thread, &sums[i]) == 0);
    unsigned long own = churn(BLOCKS);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(sums[i] == own);
    }
    void *large = malloc(4 << 20);
    CHECK(large != NULL);
    large = realloc(large, 8 << 20);
    CHECK(large != NULL);
    free(large);
    printf("allocated, sum %lu\n", own);
}

static void *early_thread(void *sum) {
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&allowed);
    return thread(sum);
}

// All threads that there are come under the filter.
static void synchronized(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&begun, NULL, THREADS + 1);
    pthread_barrier_init(&allowed, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, early_thread, &sums[i]) == 0);
    pthread_barrier_wait(&begun);
    struct sock_fprog program = ordinary(SECCOMP_RET_KILL_PROCESS);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
    pthread_barrier_wait(&allowed);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    printf("early threads, sum %lu\n", sums[0] + sums[1] + sums[2] + sums[3]);
}

static void trap(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    trapped++;
    printf("trapped: %d\n", info->si_syscall == SYS_getppid);
}

// Strict mode knows read, write and exit: what is allocated comes out of what was there before.
static void strict(int by_prctl) {
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    free(malloc(8 << 20));
    if (by_prctl)
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    else
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL) == 0);
    char text[64];
    int length = snprintf(text, sizeof text, "allocated, sum %lu\n", churn(BLOCKS));
    CHECK(write(1, text, (size_t)length) == length);
    // The C library ends a process by a call that is not allowed.
    syscall(SYS_exit, DONE);
}

static void *sandboxed_thread(void *sum) {
    struct sock_fprog program = ordinary(SECCOMP_RET_KILL_PROCESS);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    return thread(sum);
}

// One thread alone is sandboxed; the others go on as before.
static void one_thread(void) {
    pthread_t other;
    CHECK(pthread_create(&other, NULL, sandboxed_thread, &sums[0]) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(getppid() > 0);
    printf("one thread, sum %lu\n", sums[0]);
    allocate_in_threads();
}

static void in_a_child(void) {
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct sock_fprog program = ordinary(SECCOMP_RET_KILL_PROCESS);
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
        allocate_in_threads();
        fflush(stdout);
        _exit(5);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("the child ended with %d, signal %d\n", WEXITSTATUS(status), WTERMSIG(status));
}

int main(int count, char **arguments) {
    begin();
    CHECK(count == 2);
    const char *kind = arguments[1];
    free(malloc(100));
    // Memory that is given back makes the C library read a file.
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    // The buffer of the output is there before.
    printf("%s\n", kind);
    fflush(stdout);
    struct sock_fprog program = ordinary(SECCOMP_RET_KILL_PROCESS);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (strcmp(kind, "strict-prctl") == 0) {
        strict(1);
    } else if (strcmp(kind, "strict-seccomp") == 0) {
        strict(0);
    } else if (strcmp(kind, "filter-prctl") == 0) {
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    } else if (strcmp(kind, "filter-seccomp") == 0) {
        CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    } else if (strcmp(kind, "filter-all-threads") == 0) {
        synchronized();
    } else if (strcmp(kind, "filter-one-thread") == 0) {
        one_thread();
        return DONE;
    } else if (strcmp(kind, "filter-child") == 0) {
        in_a_child();
        allocate_in_threads();
        return DONE;
    } else if (strcmp(kind, "trap") == 0) {
        struct sigaction action = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
        CHECK(sigaction(SIGSYS, &action, NULL) == 0);
        program = ordinary(SECCOMP_RET_TRAP);
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
        syscall(SYS_getppid);
    } else if (strcmp(kind, "errno") == 0) {
        program = ordinary(SECCOMP_RET_ERRNO | ENOSYS);
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
        CHECK(syscall(SYS_getppid) == -1 && errno == ENOSYS);
    } else if (strcmp(kind, "tsc") == 0) {
        CHECK(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
    } else {
        CHECK(!"a kind that is known");
    }
    allocate_in_threads();
    printf("%d trapped\n", (int)trapped);
    return DONE;
}
