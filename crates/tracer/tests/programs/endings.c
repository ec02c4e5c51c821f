/* Ends in the way that the argument names. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile long counter;

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    if (!strcmp(how, "code")) return atoi(argv[2]);
    if (!strcmp(how, "exit")) _exit(atoi(argv[2]));
    if (!strcmp(how, "signal")) {
        signal(atoi(argv[2]), SIG_DFL);
        kill(getpid(), atoi(argv[2]));
    }
    if (!strcmp(how, "fault")) *(volatile int *)8 = 1;
#if defined(__x86_64__)
    if (!strcmp(how, "illegal")) __asm__ volatile("ud2");
#endif
    if (!strcmp(how, "for-ever")) {
        if (argc > 2) {
            FILE *file = fopen(argv[2], "w");
            fprintf(file, "%d\n", getpid());
            fclose(file);
        }
        for (;;) counter++;
    }
    return 0;
}
