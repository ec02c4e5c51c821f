/* Programs that must be under the exact source what they are alone, one for each first word. All but the first two end with
   a code of their own after two threads have counted.
   raise N              ends by a signal
   variables            writes its environment, and the first of two variables of one name
   with-variables X...  executes X with an environment in which one name stands twice
   closefrom, all       closes all descriptors but the first three, or all
   moves, jail X        changes its working directory, or its root directory to X
   reads, writes        reads a byte, or writes until it cannot
   opens                what the next descriptor is
   spawns X...          runs X and ends as it does
   stays FILE           ends before its child, which writes FILE at its end */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static long count;

static void *counts(void *unused) {
    for (int i = 0; i < 20000; i++) __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
    return unused;
}

static int ends_with(int code) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], 0, counts, 0)) return 90;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return count == 40000 ? code : 91;
}

static void variables(void) {
    for (char **variable = environ; *variable; variable++) puts(*variable);
    printf("A is %s\n", getenv("A"));
}

static void with_variables(char **words) {
    char path[4096];
    snprintf(path, sizeof path, "PATH=%s", getenv("PATH"));
    char *list[] = {"Z=1", "A=first", "M=x,y", path, "B=", "TMPDIR=/tmp", "A=second", "C=3", 0};
    execvpe(words[0], words, list);
}

static int spawns(char **words) {
    pid_t child = fork();
    if (child == 0) {
        execvp(words[0], words);
        _exit(92);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static void stays(const char *file) {
    if (fork()) return;
    static volatile long kept[1000];
    for (long i = 0; i < 6000000; i++) kept[i % 1000] += i;
    FILE *end = fopen(file, "w");
    fprintf(end, "%ld\n", kept[7]);
    _exit(fclose(end));
}

int main(int words_count, char **words) {
    const char *word = words_count > 1 ? words[1] : "", *more = words_count > 2 ? words[2] : "";
    char byte;
#define IS(name) (!strcmp(word, name))
    if (IS("raise")) raise(atoi(more));
    if (IS("variables")) variables();
    if (IS("with-variables")) with_variables(words + 2);
    if (IS("closefrom")) {
        for (int i = 3; i < 1024; i++) close(i);
        return ends_with(21);
    }
    if (IS("all")) {
        for (int i = 0; i < 1024; i++) close(i);
        return ends_with(22);
    }
    if (IS("moves")) return chdir("/") ? 93 : ends_with(23);
    if (IS("jail")) return chroot(more) || chdir("/") ? 94 : ends_with(24);
    if (IS("reads")) return read(0, &byte, 1) < 0 && errno == EBADF ? ends_with(25) : 95;
    if (IS("writes")) {
        while (write(1, "more\n", 5) == 5) {}
        return errno == EPIPE ? ends_with(26) : 96;
    }
    if (IS("opens")) return ends_with(30 + open("/dev/null", O_RDONLY));
    if (IS("stays")) {
        stays(more);
        return 34;
    }
    if (IS("spawns")) return spawns(words + 2);
    return 0;
}
