// Where 10,000 blocks of each kind lie: within their pages and relative to each other, in the main heap, in mappings,
// and in the arenas of four threads; and where locals lie on the stacks.
#include "common.h"

#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>

enum { BLOCKS = 10000, LARGE = 64, THREADS = 4 };

static sem_t turns[THREADS], ends[THREADS], done;
static int stacks_too, small_only;
static _Thread_local char *last;

// A block's place: within its page, and how far it is from the one before it.
static void tell(const char *what, int number, void *block) {
    CHECK(block != NULL);
    long from_last = last ? (char *)block - last : 0;
    // How far heaps are from mappings is random.
    if (labs(from_last) >> 24)
        printf("%s %d %03x far\n", what, number, page_offset(block));
    else
        printf("%s %d %03x %+ld\n", what, number, page_offset(block), from_last);
    last = block;
}

static size_t size_of(int number) {
    return 1 + (size_t)number * 7919 % 1200;
}

// Small blocks of all kinds, some of them freed on the way.
static void small_blocks(const char *where, int count) {
    void **blocks = malloc((size_t)count * sizeof *blocks);
    CHECK(blocks != NULL);
    if (small_only) last = NULL;
    else tell(where, -1, blocks);
    for (int i = 0; i < count; i++) {
        switch (i % 5) {
        case 0: blocks[i] = calloc(1, size_of(i)); break;
        case 1: blocks[i] = realloc(NULL, size_of(i)); break;
        case 2: blocks[i] = memalign(64u << i % 3, size_of(i)); break;
        default: blocks[i] = malloc(size_of(i));
        }
        tell(where, i, blocks[i]);
        if (i % 7 == 6) {
            free(blocks[i - 3]);
            blocks[i - 3] = NULL;
        }
        if (i % 11 == 10) {
            blocks[i] = realloc(blocks[i], size_of(i) * 3);
            tell(where, i, blocks[i]);
        }
    }
    for (int i = 0; i < count; i++) free(blocks[i]);
    free(blocks);
}

// Blocks that are mappings of their own.
static void large_blocks(const char *where) {
    void *blocks[LARGE];
    last = NULL;
    for (int i = 0; i < LARGE; i++) {
        size_t size = (300u << 10) + (size_t)i * 4096;
        blocks[i] = i % 2 ? malloc(size) : memalign(64, size);
        tell(where, i, blocks[i]);
    }
    for (int i = 0; i < LARGE; i++) free(blocks[i]);
}

static void *thread(void *argument) {
    int mine = (int)(intptr_t)argument;
    volatile int local = 0;
    static _Thread_local char own;
    sem_wait(&turns[mine]);
    if (stacks_too) printf("thread %d: a local at %03x, its own at %03x\n", mine, page_offset(&local), page_offset(&own));
    small_blocks("arena", BLOCKS / THREADS);
    sem_post(&done);
    sem_wait(&ends[mine]);
    return NULL;
}

// With `heaps` stacks are left out: they lie anywhere unless randomization is off. With `small` large blocks are, which
// some allocators put at an offset that they draw by the addresses of their own data.
int main(int count, char **arguments, char **environment) {
    volatile int local = 0;
    begin();
    small_only = count == 2 && strcmp(arguments[1], "small") == 0;
    stacks_too = count == 1 || small_only;
    void *first = malloc(128);
    printf("the first block at %03x\n", page_offset(first));
    if (stacks_too)
        // The strings themselves may lie elsewhere: those of variables that nobody sees are among them.
        printf("a local of main at %03x, arguments at %03x, environment at %03x\n", page_offset(&local),
               page_offset(arguments), page_offset(environment));
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    small_blocks("heap", BLOCKS);
    if (!small_only) large_blocks("mapping");
    // All are alive at once, so that each has an arena of its own; they allocate, and end, one after the other.
    sem_init(&done, 0, 0);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        sem_init(&turns[i], 0, 0);
        sem_init(&ends[i], 0, 0);
        CHECK(pthread_create(&threads[i], NULL, thread, (void *)(intptr_t)i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        sem_post(&turns[i]);
        sem_wait(&done);
    }
    for (int i = 0; i < THREADS; i++) {
        sem_post(&ends[i]);
        pthread_join(threads[i], NULL);
    }
    last = NULL;
    small_blocks("afterwards", 1000);
    free(first);
    return DONE;
}
