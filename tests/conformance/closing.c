// Closes every descriptor that it did not open itself, in three ways, and goes on allocating in threads and children.
#include "common.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void *thread(void *sum) {
    *(unsigned long *)sum = churn(5000);
    return sum;
}

static void go_on(const char *after) {
    unsigned long sums[4] = {0};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, thread, &sums[i]) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    int first = open("/dev/null", O_RDONLY);
    // Files of our own come where somebody else's were; nobody writes into them.
    int files[20];
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "file_%d", i);
        files[i] = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(files[i] >= 0);
    }
    unsigned long sum = churn(5000);
    long bytes = 0;
    for (int i = 0; i < 20; i++) {
        bytes += lseek(files[i], 0, SEEK_END);
        close(files[i]);
    }
    close(first);
    printf("after %s: the first is %d, %ld bytes, sum %lu\n", after, first, bytes, sum + sums[3]);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(churn(3000) != 0 ? 7 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    printf("the child ended with %d\n", WEXITSTATUS(status));
}

int main(void) {
    begin();
    free(malloc(100));
    CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
    go_on("close_range");
    closefrom(3);
    go_on("closefrom");
    for (int i = 3; i < 4096; i++) close(i);
    go_on("close");
    // Over somebody's descriptor, as daemons do.
    for (int i = 3; i < 64; i++) CHECK(dup2(1, i) == i);
    printf("sum %lu\n", churn(5000));
    fflush(stdout);
    for (int i = 3; i < 64; i++) close(i);
    CHECK(close_range(3, ~0U, 2 /* CLOSE_RANGE_UNSHARE */) == 0);
    go_on("close_range with a table of its own");
    return DONE;
}
