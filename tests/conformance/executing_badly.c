// What the kernel refuses of an exec: an environment, a list or a path that cannot be read, and programs that are not there.
#include "common.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

extern char **environ;

static char *words[] = {"sh", "-c", "exit 6", NULL};
static char **nowhere = (char **)16;
static char *wild[] = {"A=b", (char *)8, NULL};
static char *doubled[] = {"LD_PRELOAD=x.so", "LD_PRELOAD=y.so", "A=b", NULL};
// Without its null at the end of what is mapped, and a string without its end there.
static char **cut;
static char *unended[2];

static int by_environ(char **list) {
    environ = list;
    return execv("/bin/sh", words);
}

static int spawned(char **list) {
    pid_t child;
    return posix_spawn(&child, "/bin/sh", NULL, NULL, words, list);
}

static int attempt(int number) {
    switch (number) {
    case 0: return execve("/bin/sh", words, nowhere);
    case 1: return execve("/bin/sh", words, wild);
    case 2: return execve("/bin/sh", words, cut);
    case 3: return execve("/bin/sh", words, unended);
    case 4: return execve("/nowhere", words, nowhere);
    case 5: return execve((char *)8, words, environ);
    case 6: return execvpe("sh", words, wild);
    case 7: return execveat(AT_FDCWD, "/bin/sh", words, nowhere, 0);
    case 8: return execveat(AT_FDCWD, (char *)8, words, environ, 0);
    case 9: return fexecve(open("/bin/sh", O_RDONLY), words, wild);
    case 10: return by_environ(nowhere);
    case 11: return by_environ(wild);
    case 12: return execl("/nowhere", "nowhere", NULL);
    case 13: return spawned(nowhere);
    case 14: return spawned(wild);
    case 15: return execve("/bin/sh", words, NULL);
    default: return execve("/usr/bin/env", (char *[]){"env", NULL}, doubled);
    }
}

int main(int count, char **arguments) {
    (void)arguments;
    begin();
    // QEMU drops doubled variables, so they are a run of their own.
    int first = count > 1 ? 16 : 0, last = count > 1 ? 16 : 15;
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages + 4096, 4096) == 0);
    memcpy(pages + 4096 - 16, &(char *){"A=b"}, 8);
    memcpy(pages + 4096 - 8, &(char *){"C=d"}, 8);
    cut = (char **)(pages + 4096 - 16);
    pages[4096 - 20] = 'L';
    char *other = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(other != MAP_FAILED && munmap(other + 4096, 4096) == 0);
    memcpy(other + 4096 - 6, "LD_PRE", 6);
    unended[0] = other + 4096 - 6;
    for (int number = first; number <= last; number++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            close(2);
            int result = attempt(number);
            printf("%d: %d, errno %d\n", number, result, errno);
            fflush(stdout);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        printf("%d ended with %x\n", number, status);
    }
    return DONE;
}
