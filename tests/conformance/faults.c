/* Programs that do to themselves what programs do, one for each first word; each says what came of it. Built
   dynamically or statically.
   fault, abort, killed        end by a signal
   stopped                     a child stops and is continued
   execs N                     executes itself N times
   forks N                     children that end with codes of their own
   daemon                      leaves a process behind that writes to the file `daemon` when its parents have ended
   threads N                   at the same time
   closed                      closes all descriptors but three, and goes on to use some
   files                       may have three files open, and executes a program
   little-memory               may have 1 GB of address space, and executes a program
   vfork, clone3, ptrace       the calls of that name
   breakpoint                  int3, with a handler
   blocked                     a blocked signal that comes later
   strict, list, errno         the kinds of seccomp
   user, root, rights, space   becomes another user, gets another root directory (the second word), gives up new
                               rights, or a namespace of process ids for its children; and executes itself
   itself                      executes /proc/self/exe
   says                        what user it is, and how many descriptors are open
   waits N                     N threads work until the file `enough` is there; then it executes itself
   truncates                   cuts every shared memory that its parent has open */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char self[4096];

static void say(const char *what, long value) {
    printf("%s %ld\n", what, value);
    fflush(stdout);
}

static int ended(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Becomes this program with another word. */
static void become(const char *word, const char *more) {
    char *words[] = {self, (char *)word, (char *)more, 0};
    execve(self, words, environ);
    say("not executed", errno);
    exit(9);
}

static void stopped(void) {
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(3);
    }
    int status = 0;
    waitpid(child, &status, WUNTRACED);
    say("stopped", WIFSTOPPED(status) ? WSTOPSIG(status) : -1);
    kill(child, SIGCONT);
    say("ended", ended(child));
}

static void forks(int count) {
    long sum = 0;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) _exit(i % 7);
        sum += ended(child);
    }
    say("codes", sum);
}

static void leaves(void) {
    if (fork() != 0) {
        while (access("begun", F_OK) != 0) usleep(1000);
        return;
    }
    setsid();
    if (fork() != 0) _exit(0);
    close(open("begun", O_CREAT | O_WRONLY, 0644));
    while (access("enough", F_OK) != 0) usleep(1000);
    volatile char *memory = malloc(1 << 20);
    for (int i = 0; i < 1 << 20; i++) memory[i] = (char)i;
    FILE *file = fopen("daemon", "w");
    fprintf(file, "alone\n");
    fclose(file);
    _exit(0);
}

static pthread_barrier_t all;

static void *meets(void *number) {
    volatile long local[64];
    for (int i = 0; i < 64; i++) local[i] = i;
    pthread_barrier_wait(&all);
    return (void *)(local[(long)number & 63] & 63);
}

static void threads(long count) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 16);
    pthread_barrier_init(&all, 0, (unsigned)count);
    pthread_t *thread = calloc((size_t)count, sizeof *thread);
    long sum = 0;
    for (long i = 0; i < count; i++)
        if (pthread_create(&thread[i], &small, meets, (void *)i) != 0) {
            say("no more threads than", i);
            exit(8);
        }
    for (long i = 0; i < count; i++) {
        void *result;
        pthread_join(thread[i], &result);
        sum += (long)result;
    }
    say("sum", sum);
}

static volatile sig_atomic_t caught;

static void on_signal(int number) {
    caught = number;
}

static void breakpoint(void) {
    signal(SIGTRAP, on_signal);
#if defined __x86_64__
    __asm__ volatile("int3");
#else
    raise(SIGTRAP);
#endif
    say("caught", caught);
}

static void blocked(void) {
    sigset_t set, pending;
    signal(SIGTERM, on_signal);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, 0);
    kill(getpid(), SIGTERM);
    sigpending(&pending);
    say("pending", sigismember(&pending, SIGTERM));
    say("caught", caught);
    sigprocmask(SIG_UNBLOCK, &set, 0);
    say("caught", caught);
}

static void filter(const char *kind) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!strcmp(kind, "strict")) {
        say("strict", prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
        return;
    }
    unsigned rest = !strcmp(kind, "errno") ? SECCOMP_RET_ALLOW : SECCOMP_RET_KILL_PROCESS;
    struct sock_filter list[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, rest),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof list / sizeof *list, list};
    say("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    say("getppid", syscall(SYS_getppid) == -1 ? errno : 0);
}

static long open_files(void) {
    long count = 0;
    for (int fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) != -1;
    return count;
}

static void limited(int what, rlim_t most) {
    struct rlimit limit = {most, most};
    setrlimit(what, &limit);
    pid_t child = fork();
    if (child == 0) become("says", 0);
    say("ended", ended(child));
}

static volatile long shared[1024];

static void *works(void *number) {
    volatile long *at = &shared[(long)number % 128 * 8];
    /* Calls, too: they are where most of it can go wrong. */
    while (access("enough", F_OK) != 0)
        for (int i = 0; i < 10000; i++) *at += i;
    return 0;
}

static void waits(long count) {
    pthread_t thread[count];
    for (long i = 0; i < count; i++) pthread_create(&thread[i], 0, works, (void *)i);
    FILE *file = fopen("pid", "w");
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
    for (long i = 0; i < count; i++) pthread_join(thread[i], 0);
    pid_t child = fork();
    if (child == 0) become("says", 0);
    say("ended", ended(child));
    become("ends", 0);
}

static void truncates(void) {
    char path[64], file[400], target[256];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)getppid());
    DIR *folder = opendir(path);
    long cut = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        ssize_t length = readlink(file, target, sizeof target - 1);
        if (length < 0) continue;
        target[length] = 0;
        if (!strstr(target, "memfd:")) continue;
        int fd = open(file, O_RDWR);
        cut += fd >= 0 && ftruncate(fd, 0) == 0;
    }
    say("cut", cut);
}

static int another(void *unused) {
    (void)unused;
    return 5;
}

int main(int count, char **words) {
    const char *word = count > 1 ? words[1] : "", *more = count > 2 ? words[2] : "0";
    long number = strtol(more, 0, 10);
    if (!realpath(words[0], self)) snprintf(self, sizeof self, "%s", words[0]);
#define IS(name) (!strcmp(word, name))
    if (IS("fault")) *(volatile int *)(uintptr_t)number = 1;
    if (IS("abort")) abort();
    if (IS("killed")) raise(SIGKILL);
    if (IS("stopped")) stopped();
    if (IS("execs")) {
        if (number > 0) {
            char less[32];
            snprintf(less, sizeof less, "%ld", number - 1);
            become("execs", less);
        }
        say("executed", 1);
        return 7;
    }
    if (IS("forks")) forks((int)number);
    if (IS("daemon")) leaves();
    if (IS("threads")) threads(number);
    if (IS("closed")) {
        say("close_range", syscall(SYS_close_range, 3, ~0u, 0));
        say("open", open("/dev/null", O_RDONLY));
        become("says", 0);
    }
    if (IS("files")) limited(RLIMIT_NOFILE, 3);
    if (IS("little-memory")) limited(RLIMIT_AS, 1 << 30);
    if (IS("vfork")) {
        pid_t child = vfork();
        if (child == 0) _exit(4);
        say("ended", ended(child));
        child = vfork();
        if (child == 0) {
            execl(self, self, "says", (char *)0);
            _exit(9);
        }
        say("ended", ended(child));
    }
    if (IS("clone3")) {
        struct clone_args arguments = {.exit_signal = SIGCHLD};
        long child = syscall(SYS_clone3, &arguments, sizeof arguments);
        if (child == 0) _exit(6);
        say("clone3", child < 0 ? -errno : ended((pid_t)child));
        static char stack[1 << 16] __attribute__((aligned(16)));
        pid_t other = clone(another, stack + sizeof stack, SIGCHLD, 0);
        say("clone", ended(other));
    }
    if (IS("ptrace")) {
        pid_t child = fork();
        if (child == 0) {
            long result = ptrace(PTRACE_TRACEME, 0, 0, 0);
            if (result == 0) raise(SIGSTOP);
            _exit(result == 0 ? 3 : 30);
        }
        int status = 0;
        waitpid(child, &status, WUNTRACED);
        say("seen", status);
        if (WIFSTOPPED(status)) {
            ptrace(PTRACE_CONT, child, 0, 0);
            say("ended", ended(child));
        }
    }
    if (IS("breakpoint")) breakpoint();
    if (IS("blocked")) blocked();
    if (IS("strict") || IS("list") || IS("errno")) filter(word);
    if (IS("user")) {
        if (setgroups(0, 0) || setgid(65534) || setuid(65534)) say("not another", errno);
        become("says", 0);
    }
    if (IS("root")) {
        if (chroot(more) || chdir("/")) say("no other root", errno);
        strcpy(self, "/program");
        become("says", 0);
    }
    if (IS("rights")) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        become("says", 0);
    }
    if (IS("space")) {
        if (unshare(CLONE_NEWPID)) say("no namespace", errno);
        pid_t child = fork();
        if (child == 0) {
            void *block = malloc(12345);
            memset(block, 1, 12345);
            say("here", getpid());
            /* Who looks for it has the time. */
            usleep(500000);
            pid_t grandchild = fork();
            if (grandchild == 0) become("says", 0);
            say("ended", ended(grandchild));
            _exit(2);
        }
        say("ended", ended(child));
    }
    if (IS("itself")) {
        strcpy(self, "/proc/self/exe");
        become("says", 0);
    }
    if (IS("says")) {
        say("user", getuid());
        say("files", open_files());
        return 11;
    }
    if (IS("ends")) return 23;
    if (IS("waits")) waits(number);
    if (IS("truncates")) truncates();
    say("done", 0);
    return 1;
}
