// What a process has around it: descriptors, threads, signals, limits, and the states that prctl knows.
#include "common.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static int by_number(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

static void descriptors(void) {
    int numbers[1024], count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) && count < 1024;)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder)) numbers[count++] = atoi(entry->d_name);
    closedir(folder);
    qsort(numbers, (size_t)count, sizeof *numbers, by_number);
    for (int i = 0; i < count; i++) printf("descriptor %d: flags %x\n", numbers[i], fcntl(numbers[i], F_GETFD));
    int next = open("/dev/null", O_RDONLY);
    printf("the next one is %d\n", next);
    close(next);
}

static void threads(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    printf("%d threads\n", count);
}

static void status(void) {
    static const char *const wanted[] = {"Umask:", "Threads:", "SigQ:", "SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:",
                                         "SigCgt:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:",
                                         "NoNewPrivs:", "Seccomp:", "Seccomp_filters:", "Groups:", "FDSize:",
                                         "NStgid:", "Cpus_allowed:", "CoreDumping:"};
    char line[512];
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
            if (strncmp(line, wanted[i], strlen(wanted[i])) == 0 && strcmp(wanted[i], "NStgid:") != 0 &&
                strcmp(wanted[i], "SigQ:") != 0)
                fputs(line, stdout);
    fclose(file);
}

static void signals(void) {
    for (int number = 1; number < 65; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) != 0) continue;
        if (action.sa_handler != SIG_DFL) printf("signal %d: %s\n", number, action.sa_handler == SIG_IGN ? "ignored" : "handled");
    }
    sigset_t blocked;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &blocked) == 0);
    for (int number = 1; number < 65; number++)
        if (sigismember(&blocked, number) == 1) printf("signal %d is blocked\n", number);
    stack_t stack;
    CHECK(sigaltstack(NULL, &stack) == 0);
    printf("a stack for signals: %d\n", stack.ss_flags != SS_DISABLE);
}

static void limits(void) {
    for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
        struct rlimit limit;
        CHECK(getrlimit((__rlimit_resource_t)resource, &limit) == 0);
        printf("limit %d: %lld %lld\n", resource, (long long)limit.rlim_cur, (long long)limit.rlim_max);
    }
}

static void states(void) {
    int number = -1;
    printf("dumpable %d\n", prctl(PR_GET_DUMPABLE));
    printf("keepcaps %d\n", prctl(PR_GET_KEEPCAPS));
    printf("securebits %d\n", prctl(PR_GET_SECUREBITS));
    printf("timerslack %d\n", prctl(PR_GET_TIMERSLACK));
    printf("seccomp %d\n", prctl(PR_GET_SECCOMP));
    printf("no new privileges %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    printf("huge pages disabled %d\n", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    printf("tsc %d", prctl(PR_GET_TSC, &number));
    printf(" %d\n", number);
    number = -1;
    printf("death signal %d", prctl(PR_GET_PDEATHSIG, &number));
    printf(" %d\n", number);
    number = -1;
    printf("subreaper %d", prctl(PR_GET_CHILD_SUBREAPER, &number));
    printf(" %d\n", number);
    char name[17] = "";
    prctl(PR_GET_NAME, name);
    printf("name %s\n", name);
    printf("personality %x\n", personality(0xffffffff));
    printf("priority %d, policy %d\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0));
    printf("io priority %ld\n", syscall(SYS_ioprio_get, 1, 0));
    cpu_set_t cpus;
    CHECK(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
    printf("%d CPUs\n", CPU_COUNT(&cpus));
    mode_t mask = umask(0);
    umask(mask);
    printf("umask %o\n", mask);
    printf("users %d %d %d %d\n", getuid(), geteuid(), getgid(), getegid());
    char folder[4096];
    printf("folder %s\n", getcwd(folder, sizeof folder));
}

int main(void) {
    begin();
    descriptors();
    threads();
    status();
    signals();
    limits();
    states();
    printf("%lu\n", churn(1000));
    descriptors();
    threads();
    signals();
    return DONE;
}
