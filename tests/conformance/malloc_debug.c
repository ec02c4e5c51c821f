// The C library's own checks of the heap, which are in a library that is loaded in front of it: libc_malloc_debug.so.0.
#include "common.h"
#include <mcheck.h>

static void told(enum mcheck_status status) {
    printf("mcheck says %d\n", status);
    fflush(stdout);
    _exit(DONE);
}

int main(int count, char **arguments) {
    begin();
    if (count > 1 && strcmp(arguments[1], "trace") == 0) {
        mtrace();
        void *volatile block = malloc(20);
        block = malloc(30);
        block = realloc(block, 50);
        free(block);
        muntrace();
        int lines = 0;
        char text[1000];
        FILE *file = fopen(getenv("MALLOC_TRACE"), "r");
        CHECK(file != NULL);
        while (fgets(text, sizeof text, file) != NULL)
            lines++;
        remove(getenv("MALLOC_TRACE"));
        printf("%d lines\n", lines);
        return DONE;
    }
    printf("mcheck %d\n", mcheck(told));
    char *volatile block = malloc(20);
    printf("mprobe %d, at %x\n", mprobe(block), (int)((uintptr_t)block & 0xfff));
    block[20] = 2;
    free(block);
    return 1;
}
