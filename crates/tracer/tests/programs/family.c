/* family fork | exec PROGRAM ARGUMENTS...: parent and child each increment the same variable. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static long counter;

static void work(int times) {
    for (int i = 0; i < times; i++) __atomic_fetch_add(&counter, 1, __ATOMIC_SEQ_CST);
}

int main(int argc, char **argv) {
    (void)argc;
    if (!strcmp(argv[1], "exec")) {
        work(1009);
        execv(argv[2], argv + 2);
        return 99;
    }
    pid_t child = fork();
    if (child == 0) {
        work(3001);
        _exit(5);
    }
    work(2003);
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
