// A program that changes its environment, hands it on, writes over the memory of its arguments as servers do to
// change their titles, and reads what a child of it sees.
#include "common.h"

#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

extern char **environ;

static void child(char *const arguments[], char *const environment[]) {
    fflush(stdout);
    pid_t pid;
    int status;
    CHECK(posix_spawn(&pid, arguments[0], NULL, NULL, arguments, environment) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    printf("child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

int main(int count, char **arguments) {
    begin();
    char *print[] = {"/usr/bin/env", NULL};
    for (int i = 0; i < 100; i++) {
        char name[32], value[32];
        snprintf(name, sizeof name, "NUMBER_%d", i);
        snprintf(value, sizeof value, "%d squared is %d", i, i * i);
        CHECK(setenv(name, value, 1) == 0);
    }
    CHECK(unsetenv("NUMBER_13") == 0);
    for (char **variable = environ; *variable; variable++) printf("here: %s\n", *variable);
    child(print, environ);
    // An environment made by hand, an empty one, and one with libraries of its own.
    child(print, (char *[]){"ONE=1", "ONE=2", "EMPTY=", "no sign", NULL});
    child(print, (char *[]){NULL});
    child(print, (char *[]){"LD_PRELOAD=", "LD_LIBRARY_PATH=/nowhere", NULL});
    // The program's title: what lies from the first argument to the last variable is its own to write.
    char *start = arguments[0];
    char *end = arguments[count - 1] + strlen(arguments[count - 1]) + 1;
    memset(start, 0, (size_t)(end - start));
    strcpy(start, "t");
    char title[64] = "";
    FILE *file = fopen("/proc/self/cmdline", "r");
    CHECK(file && fread(title, 1, sizeof title - 1, file) > 0);
    fclose(file);
    printf("title: %s\n", title);
    CHECK(prctl(PR_SET_NAME, "another") == 0);
    printf("%lu\n", churn(1000));
    return DONE;
}
