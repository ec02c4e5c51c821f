// Two processes that count in memory that they share, each in its own element: anonymous memory from before a fork, a memfd, a
// file or a System V segment, all but the first mapped anew in the child, at another address. Or two threads of one process that
// has mapped a memfd twice.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef FIXED
enum { DISTANCE = 128 };
#else
enum { DISTANCE = 8 };
#endif
enum { BYTES = 4096 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void count(volatile uint64_t *mine, double until)
{
    do {
        for (int i = 0; i < 10000; i++)
            ++*mine;
    } while (now() < until);
}

static void pin(int number)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(number % sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}

struct other {
    volatile uint64_t *mine;
    double until;
};

static void *as_thread(void *argument)
{
    struct other *other = argument;
    pin(1);
    count(other->mine, other->until);
    return NULL;
}

static char *map(int file)
{
    int how = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    return mmap(NULL, BYTES, PROT_READ | PROT_WRITE, how, file, 0);
}

int main(int arguments, char **argument)
{
    double seconds = arguments > 1 ? atof(argument[1]) : 2;
    const char *kind = arguments > 2 ? argument[2] : "anonymous";
    int file = -1, segment = -1;
    int is_twice = strcmp(kind, "twice") == 0;
    if (strcmp(kind, "memfd") == 0 || is_twice)
        file = memfd_create("counters", 0);
    else if (strcmp(kind, "file") == 0)
        file = open("counters", O_RDWR | O_CREAT | O_TRUNC, 0600);
    else if (strcmp(kind, "segment") == 0)
        segment = shmget(IPC_PRIVATE, BYTES, 0600);
    if (file >= 0 && ftruncate(file, BYTES) != 0)
        return 1;
    char *here = segment < 0 ? map(file) : shmat(segment, NULL, 0);
    double until = now() + seconds;
    if (is_twice) {
        struct other other = {(volatile uint64_t *)(map(file) + DISTANCE), until};
        pthread_t thread;
        if (pthread_create(&thread, NULL, as_thread, &other) != 0)
            return 1;
        pin(0);
        count((volatile uint64_t *)here, until);
        return pthread_join(thread, NULL);
    }
    pid_t child = fork();
    if (child == 0) {
        pin(1);
        map(-1);
        if (file >= 0)
            here = map(file);
        else if (segment >= 0)
            here = shmat(segment, NULL, 0);
        count((volatile uint64_t *)(here + DISTANCE), until);
        return 0;
    }
    pin(0);
    count((volatile uint64_t *)here, until);
    int status;
    waitpid(child, &status, 0);
    if (segment >= 0)
        shmctl(segment, IPC_RMID, NULL);
    return status;
}
