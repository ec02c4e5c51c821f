// Limits of the process's own: what can be allocated under them, and what cannot, is the same as without anybody else.
// The argument says which.
#include "common.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void limit(__rlimit_resource_t which, rlim_t value) {
    struct rlimit both = {value, value};
    CHECK(setrlimit(which, &both) == 0);
}

static void *thread(void *sum) {
    *(unsigned long *)sum = churn(3000);
    return sum;
}

static void threads(int count) {
    for (int i = 0; i < count; i++) {
        unsigned long sum = 0;
        pthread_t other;
        CHECK(pthread_create(&other, NULL, thread, &sum) == 0);
        CHECK(pthread_join(other, NULL) == 0);
        CHECK(sum != 0);
    }
    printf("%d threads\n", count);
}

// As large a block as can be had, in steps of 64 MiB: the recorder may take a 32nd of the limit.
static void largest(size_t most) {
    size_t size = most;
    void *block;
    while ((block = malloc(size << 20)) == NULL && size > 0) size--;
    memset(block, 1, size << 10);
    free(block);
    printf("%zu MiB can be had\n", size & ~(size_t)63);
}

// Ends a child by a signal that would leave a core.
static void aborted(void) {
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) abort();
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("ended by signal %d, a core: %d\n", WTERMSIG(status), WCOREDUMP(status) != 0);
}

int main(int count, char **arguments) {
    begin();
    CHECK(count >= 2);
    const char *which = arguments[1];
    if (strcmp(which, "address-space") == 0) {
        // 500,000 kB, as a shell would set them; or those that somebody set before.
        if (count == 2) limit(RLIMIT_AS, (rlim_t)500000 << 10);
        char *block = malloc(240 << 20);
        CHECK(block != NULL);
        memset(block, 1, 240 << 20);
        free(block);
        threads(3);
        largest(440);
    } else if (strcmp(which, "little-address-space") == 0) {
        void *kept[8] = {0};
        for (int i = 0; i < 8; i++) kept[i] = malloc(100000);
        printf("%d blocks\n", (kept[0] != NULL) + (kept[7] != NULL));
        for (int i = 0; i < 8; i++) free(kept[i]);
        CHECK(malloc(64 << 20) == NULL && errno == ENOMEM);
        printf("sum %lu\n", churn(3000));
    } else if (strcmp(which, "data") == 0) {
        limit(RLIMIT_DATA, 64 << 20);
        char *block = malloc(40 << 20);
        CHECK(block != NULL);
        free(block);
        CHECK(malloc(100 << 20) == NULL && errno == ENOMEM);
        threads(2);
    } else if (strcmp(which, "files") == 0) {
        limit(RLIMIT_NOFILE, 3);
        CHECK(open("/dev/null", O_RDONLY) == -1 && errno == EMFILE);
        threads(10);
        printf("sum %lu\n", churn(3000));
    } else if (strcmp(which, "files-before") == 0) {
        int first = open("/dev/null", O_RDONLY), second = open("/dev/null", O_RDONLY);
        printf("descriptors %d and %d\n", first, second);
        threads(10);
    } else if (strcmp(which, "all-files-taken") == 0) {
        limit(RLIMIT_NOFILE, 64);
        int taken = 0;
        while (open("/dev/null", O_RDONLY) >= 0) taken++;
        printf("%d descriptors could be had\n", taken);
        threads(10);
        aborted();
    } else if (strcmp(which, "file-size") == 0) {
        limit(RLIMIT_FSIZE, 4096);
        threads(5);
        aborted();
    } else if (strcmp(which, "locked") == 0) {
        limit(RLIMIT_MEMLOCK, 0);
        threads(5);
    } else if (strcmp(which, "core") == 0) {
        limit(RLIMIT_CORE, 0);
        aborted();
        threads(2);
    } else if (strcmp(which, "stack") == 0) {
        limit(RLIMIT_STACK, 256 << 10);
        threads(5);
        printf("sum %lu\n", churn(3000));
    } else if (strcmp(which, "dumpable") == 0) {
        CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
        threads(5);
        aborted();
        printf("dumpable %d\n", prctl(PR_GET_DUMPABLE));
    } else if (strcmp(which, "locked-pages") == 0) {
        if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) SKIP("memory cannot be locked here");
        threads(2);
        printf("sum %lu\n", churn(3000));
    } else {
        CHECK(!"a limit that is known");
    }
    return DONE;
}
