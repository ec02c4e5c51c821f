// A target for tests of the heap recorder: heap MODE [ARGUMENT].
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../preload/include/linewise.h"

// Blocks that threads exchange: who takes one out may free what another allocated.
#define SLOTS 4096
static _Atomic(size_t *) slots[SLOTS];
static long rounds;

static unsigned next(unsigned *seed) { return *seed = *seed * 1664525 + 1013904223; }

// The first word of each block is its size, which leaves 5 when divided by 8, or 2 after it was doubled:
// unlike those of the C library's own blocks.
__attribute__((noinline)) static size_t *allocate_block(unsigned *seed) {
    size_t size = 13 + (next(seed) >> 8) % 75 * 8;
    size_t *block;
    switch ((next(seed) >> 16) % 4) {
    case 0: block = calloc(1, size); break;
    case 1: if (posix_memalign((void **)&block, 64, size)) abort(); break;
    case 2: block = realloc(malloc(size / 2), size); break;
    default: block = malloc(size); break;
    }
    *block = size;
    return block;
}

static void *churn(void *argument) {
    unsigned seed = (unsigned)(size_t)argument;
    for (long i = 0; i < rounds; i++) {
        size_t *block = (next(&seed) >> 16) % 3 ? allocate_block(&seed) : NULL;
        if (block && (next(&seed) >> 16) % 8 == 0) {
            size_t size = *block * 2;
            block = reallocarray(block, 2, *block);
            *block = size;
        }
        free(atomic_exchange(&slots[(next(&seed) >> 12) % SLOTS], block));
    }
    return NULL;
}

static void in_handler(int signal) {
    (void)signal;
    free(malloc(77));
}

// Says what is left, without allocating.
static void tell_truth(void) {
    size_t count = 0, bytes = 0;
    for (int i = 0; i < SLOTS; i++)
        if (slots[i]) count++, bytes += *slots[i];
    dprintf(1, "%zu %zu\n", count, bytes);
}

static void churn_in(int threads) {
    pthread_t all[256];
    for (long i = 0; i < threads; i++) pthread_create(&all[i], NULL, churn, (void *)(i + 1));
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
}

static void fork_meanwhile(void) {
    for (int i = 0; i < 8; i++) {
        pid_t child = fork();
        if (child == 0) {
            // Frees and allocates what is no business of the parent.
            rounds = 500;
            churn((void *)99);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        void *library = dlopen("libm.so.6", RTLD_NOW);
        if (library) dlclose(library);
    }
}

struct counter { volatile long hits; };
static struct counter *counters;
static atomic_int stop;

static void *count(void *argument) {
    struct counter *own = &counters[(size_t)argument];
    while (!stop)
        for (int i = 0; i < 1000; i++) own->hits++;
    return NULL;
}

__attribute__((noinline)) static struct counter *make_counters(void) {
    return calloc(6, sizeof(struct counter));
}

// A pool that hands out parts of one block, named or not.
__attribute__((noinline)) static struct counter *take_from_pool(void) {
    static char *pool;
    if (!pool) pool = aligned_alloc(64, 1 << 16);
    memset(pool, 0, 1 << 16);
    struct counter *object = (struct counter *)(pool + 4096 + 16);
    LINEWISE_OBJECT(object, 2 * sizeof *object, "struct session");
    return object;
}

static void fight(double seconds) {
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, count, (void *)i);
    usleep((useconds_t)(seconds * 1e6));
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

int main(int count_of_arguments, char **arguments) {
    const char *mode = count_of_arguments > 1 ? arguments[1] : "";
    const char *argument = count_of_arguments > 2 ? arguments[2] : "1";
    if (!strcmp(mode, "churn")) {
        rounds = 5000;
        churn_in(atoi(argument));
        fork_meanwhile();
        churn_in(2);
        signal(SIGALRM, in_handler);
        struct itimerval often = {{0, 1000}, {0, 1000}};
        setitimer(ITIMER_REAL, &often, NULL);
        for (volatile long i = 0; i < 50000000; i++) {}
        memset(&often, 0, sizeof often);
        setitimer(ITIMER_REAL, &often, NULL);
        tell_truth();
        _exit(0);
    }
    if (!strcmp(mode, "crowd")) {
        rounds = 200;
        churn_in(200);
        tell_truth();
        return 0;
    }
    if (!strcmp(mode, "killed")) {
        rounds = 50000;
        churn_in(2);
        raise(SIGKILL);
    }
    if (!strcmp(mode, "array")) {
        counters = make_counters();
        fight(atof(argument));
        return 0;
    }
    if (!strcmp(mode, "pool")) {
        counters = take_from_pool();
        fight(atof(argument));
        return 0;
    }
    if (!strcmp(mode, "later")) {
        // Waits to be told, while others may allocate and free.
        rounds = LONG_MAX;
        pthread_t storm;
        if (count_of_arguments > 3) pthread_create(&storm, NULL, churn, (void *)1);
        FILE *out = fopen("started", "w");
        fprintf(out, "%d\n", getpid());
        fclose(out);
        while (access("go", F_OK)) usleep(1000);
        counters = make_counters();
        fight(atof(argument));
        return 0;
    }
    if (!strcmp(mode, "orphan")) {
        // Says that it runs, and when it is done.
        FILE *out = fopen("started", "w");
        fprintf(out, "%d\n", getpid());
        fclose(out);
        rounds = 3000000;
        churn_in(2);
        out = fopen("finished", "w");
        fprintf(out, "done\n");
        fclose(out);
        return 0;
    }
    return 2;
}
