// Targets that bring bad luck: `target MODE ARGUMENT`. Each ends by itself within a minute.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct { volatile long mine[2]; } __attribute__((aligned(64))) line;
static volatile long words[4];
static const char *until;
static double end;
static int take_first, take_last;
static atomic_int taken;
static pthread_barrier_t all_alive;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void work(double seconds) {
    volatile long private = 0;
    for (double stop = now() + seconds; now() < stop;)
        for (int i = 0; i < 1000; i++) private++;
}

// Lives for a millisecond of CPU time, so that a busy machine does not make it shorter.
static void *short_lived(void *unused) {
    volatile long private = 0;
    struct timespec used;
    do {
        for (int i = 0; i < 1000; i++) private++;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    } while (used.tv_sec == 0 && used.tv_nsec < 1000000);
    return unused;
}

// Takes the four debug registers of the calling thread; says how many it got.
static int take(void) {
    int got = 0;
    for (int i = 0; i < 4; i++) {
        struct perf_event_attr attr;
        memset(&attr, 0, sizeof attr);
        attr.type = PERF_TYPE_BREAKPOINT;
        attr.size = sizeof attr;
        attr.bp_type = HW_BREAKPOINT_W;
        attr.bp_addr = (unsigned long)&words[i];
        attr.bp_len = HW_BREAKPOINT_LEN_8;
        attr.exclude_kernel = attr.exclude_hv = 1;
        got += syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0) >= 0;
    }
    return got;
}

// Runs a function in two threads.
static void two(void *(*work)(void *), double seconds) {
    pthread_t threads[2];
    end = now() + seconds;
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static void *fighter(void *which) {
    if (take_first) taken += take();
    while (now() < end && !(until && access(until, F_OK) == 0))
        for (int i = 0; i < 100000; i++) line.mine[(long)which]++;
    if (take_last) taken += take();
    return NULL;
}

// Two threads count on one line, each in its own word.
static void fight(double seconds) {
    two(fighter, seconds);
}

// Two threads hand a word to each other and sleep meanwhile.
static atomic_int turn;
static void *sleeper(void *which) {
    const int mine = (int)(long)which;
    const struct timespec soon = {0, 10000000};
    while (now() < end && access(until, F_OK) != 0)
        for (int i = 0; i < 1000; i++) {
            if (turn != mine) syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, !mine, &soon);
            if (turn != mine) continue;
            turn = !mine;
            syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1);
        }
    return NULL;
}

// Whether somebody traces the calling thread.
static int traced(void) {
    char line[256];
    int tracer = 0;
    FILE *status = fopen("/proc/thread-self/status", "r");
    while (fgets(line, sizeof line, status) && sscanf(line, "TracerPid: %d", &tracer) != 1) {}
    fclose(status);
    return tracer != 0;
}

// Counts on the shared line; once it is traced, or after `end` - 1, sends itself what the kernel
// sends for a trap that lost its reason.
static void *victim(void *which) {
    int sent = 0;
    while (now() < end) {
        for (int i = 0; i < 100000; i++) line.mine[(long)which]++;
        if (!sent && (now() > end - 1 || traced())) {
            siginfo_t info;
            memset(&info, 0, sizeof info);
            info.si_signo = SIGTRAP;
            info.si_code = TRAP_BRKPT;
            info.si_addr = (void *)victim;
            syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGTRAP, &info);
            sent = 1;
        }
    }
    return NULL;
}

static atomic_int said, heard;

static void hear(int signal) {
    heard += signal == SIGUSR1;
}

// Counts on the shared line and sends itself a signal ten times a second.
static void *caller(void *which) {
    double next = now();
    while (now() < end) {
        for (int i = 0; i < 100000; i++) line.mine[(long)which]++;
        if (now() >= next) {
            said++;
            raise(SIGUSR1);
            next += 0.1;
        }
    }
    return NULL;
}

static void *brief(void *unused) {
    words[0]++;
    return unused;
}

static void *lasting(void *unused) {
    pthread_barrier_wait(&all_alive);
    work(0.001);
    pthread_barrier_wait(&all_alive);
    return unused;
}

// Works now and then until the file is there.
static void *patient(void *unused) {
    while (access(until, F_OK) != 0) {
        work(0.0005);
        usleep(50000);
    }
    return unused;
}

static __thread volatile long own;

// Counts in thread-local memory alone.
static void *loner(void *unused) {
    while (now() < end)
        for (int i = 0; i < 1000000; i++) own++;
    return unused;
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    const char *argument = count > 2 ? arguments[2] : "0";
    double seconds = atof(argument);
    if (!strcmp(mode, "fight")) {
        fight(seconds);
        return 5;
    }
    if (!strcmp(mode, "crash")) {
        fight(seconds);
        *(volatile int *)8 = 1;
    }
    if (!strcmp(mode, "exec")) {
        work(seconds);
        execl("./other", "other", "fight", argument, (char *)NULL);
    }
    if (!strcmp(mode, "forks")) {
        for (int i = 0; i < 200; i++) {
            if (fork() == 0) {
                work(0.002);
                _exit(0);
            }
        }
        while (wait(NULL) > 0) {}
        return 9;
    }
    if (!strcmp(mode, "threads")) {
        for (int i = 0; i < 2000; i++) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, brief, NULL)) return 1;
            pthread_join(thread, NULL);
        }
        return 10;
    }
    if (!strcmp(mode, "short-lives")) {
        while (clock() < 5 * CLOCKS_PER_SEC) two(short_lived, 0);
        return 19;
    }
    if (!strcmp(mode, "alive")) {
        static pthread_t threads[500];
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 65536);
        pthread_barrier_init(&all_alive, NULL, 500);
        for (int i = 0; i < 500; i++)
            if (pthread_create(&threads[i], &small, lasting, NULL)) return 1;
        for (int i = 0; i < 500; i++) pthread_join(threads[i], NULL);
        return 11;
    }
    if (!strcmp(mode, "crowd")) {
        static pthread_t threads[300];
        until = argument;
        for (int i = 0; i < 300; i++)
            if (pthread_create(&threads[i], NULL, patient, NULL)) return 1;
        for (int i = 0; i < 300; i++) pthread_join(threads[i], NULL);
        return 12;
    }
    if (!strcmp(mode, "local")) {
        pthread_t thread;
        end = now() + seconds;
        if (pthread_create(&thread, NULL, loner, NULL)) return 1;
        loner(NULL);
        pthread_join(thread, NULL);
        return 13;
    }
    if (!strcmp(mode, "lost-trap")) {
        two(victim, seconds);
        return 14;
    }
    if (!strcmp(mode, "signals")) {
        signal(SIGUSR1, hear);
        two(caller, seconds);
        printf("%d %d\n", said, heard);
        return 15;
    }
    if (!strcmp(mode, "taken")) {
        take_first = 1;
        fight(seconds);
        return taken;
    }
    if (!strcmp(mode, "take-after")) {
        take_last = 1;
        until = argument;
        fight(40);
        return taken;
    }
    if (!strcmp(mode, "sleepers")) {
        until = argument;
        printf("%p\n", (void *)&turn);
        fflush(stdout);
        two(sleeper, 40);
        return 0;
    }
    fprintf(stderr, "no such mode: %s\n", mode);
    return 99;
}
