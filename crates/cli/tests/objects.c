/* Objects whose lives are known, for exact runs: objects MODE.
   flow: a thousand jobs; every fourth is dropped by who made it, the others a second thread does.
   share: two threads count in the two halves of one heap block.
   grow: a block that is reallocated a hundred times, from 64 bytes on by 64.
   set: many rounds over the first words of 24 pages of one block, which are all in one set of a first level.
   fork: a child process makes, uses and frees objects of its own, and uses one of its parent's. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define APART __attribute__((noinline))

struct job {
    long number;
    long input[4];
    long result;
};

struct pair {
    long left;
    long right;
};

enum { JOBS = 1000, COUNTS = 20000, GROWN = 100, PAGES = 24 };

/* Known at run time only, so that the loops below stay loops. */
int inputs = 4;

static struct job *jobs[JOBS];
static long sum;

static APART struct job *make_job(long number) {
    struct job *job = malloc(sizeof *job);
    job->number = number;
    return job;
}

static APART void fill_job(struct job *job) {
    for (int i = 0; i < inputs; i++)
        job->input[i] = job->number + i;
}

static APART void do_job(struct job *job) {
    for (int i = 0; i < inputs; i++)
        job->result += job->input[i];
}

static APART void end_job(struct job *job) {
    sum += job->result;
    free(job);
}

static APART void drop_job(struct job *job) {
    sum += job->number;
    free(job);
}

static void *work(void *unused) {
    (void)unused;
    for (int i = 0; i < JOBS; i++) {
        if (i % 4 == 0)
            continue;
        do_job(jobs[i]);
        end_job(jobs[i]);
    }
    return NULL;
}

static int flow(void) {
    pthread_t thread;
    for (int i = 0; i < JOBS; i++) {
        jobs[i] = make_job(i);
        jobs[i]->result = 0;
        fill_job(jobs[i]);
    }
    pthread_create(&thread, NULL, work, NULL);
    pthread_join(thread, NULL);
    for (int i = 0; i < JOBS; i += 4)
        drop_job(jobs[i]);
    return 0;
}

static APART struct pair *make_pair(void) { return calloc(1, sizeof(struct pair)); }

static APART void *count_left(void *argument) {
    struct pair *pair = argument;
    for (int i = 0; i < COUNTS; i++)
        __atomic_fetch_add(&pair->left, 1, __ATOMIC_RELAXED);
    return NULL;
}

static APART void *count_right(void *argument) {
    struct pair *pair = argument;
    for (int i = 0; i < COUNTS; i++)
        __atomic_fetch_add(&pair->right, 1, __ATOMIC_RELAXED);
    return NULL;
}

static int share(void) {
    /* What lay at this address before is no object of this line. */
    for (int i = 0; i < 10; i++)
        free(malloc(sizeof(struct pair)));
    struct pair *pair = make_pair();
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, count_left, pair);
    pthread_create(&threads[1], NULL, count_right, pair);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    sum += pair->left + pair->right;
    free(pair);
    return 0;
}

static APART char *grow_block(char *block, size_t bytes) {
    block = realloc(block, bytes);
    block[bytes - 1] = 1;
    return block;
}

static int grow(void) {
    char *block = NULL;
    for (size_t i = 1; i <= GROWN; i++)
        block = grow_block(block, i * 64);
    free(block);
    return 0;
}

struct page {
    long value;
    char rest[4096 - sizeof(long)];
};

static APART struct page *make_pages(void) { return aligned_alloc(4096, PAGES * sizeof(struct page)); }

static APART void visit(struct page *pages) {
    for (int i = 0; i < PAGES; i++)
        pages[i].value += i;
}

static int set(void) {
    struct page *pages = make_pages();
    for (int round = 0; round < 40000; round++)
        visit(pages);
    sum += pages[0].value;
    free(pages);
    return 0;
}

static int in_child(void) {
    struct job *before = make_job(7);
    pid_t child = fork();
    if (child == 0) {
        before->result = 1;
        for (int i = 0; i < 100; i++) {
            struct job *job = make_job(i);
            fill_job(job);
            drop_job(job);
        }
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    drop_job(before);
    return status;
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "flow";
    if (!strcmp(mode, "share"))
        return share();
    if (!strcmp(mode, "grow"))
        return grow();
    if (!strcmp(mode, "set"))
        return set();
    if (!strcmp(mode, "fork"))
        return in_child();
    return flow();
}
