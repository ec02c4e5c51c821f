// Two processes have a page in common, which each covers with memory of its own, writes to, and uncovers, time and again: no line ever
// moves. With a word they write to the page that they share, too: it moves that often at most. covered TIMES [shared]
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WRITES = 200 };

static void cover(uint64_t *page, int file, int times, int shares)
{
    for (int i = 0; i < times; i++) {
        if (mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page)
            _exit(1);
        for (int j = 0; j < WRITES; j++)
            __atomic_fetch_add(page, 1, __ATOMIC_SEQ_CST);
        // Every second time there is nothing for a while.
        if (i % 2 && munmap(page, PAGE) != 0)
            _exit(1);
        if (mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != page)
            _exit(1);
        if (shares)
            __atomic_fetch_add(page, 1, __ATOMIC_SEQ_CST);
    }
}

int main(int arguments, char **argument)
{
    int times = atoi(argument[1]);
    int file = memfd_create("covered", 0);
    if (ftruncate(file, PAGE) != 0)
        return 1;
    uint64_t *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        return 1;
    if (fork() == 0) {
        cover(page, file, times, arguments > 2);
        _exit(0);
    }
    cover(page, file, times, arguments > 2);
    int status = 1;
    wait(&status);
    return status;
}
