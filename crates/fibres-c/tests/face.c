/* What the header promises, as a program in C sees it. */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "linewise_fibres.h"

#define FOREVER UINT64_MAX
#define MILLISECONDS UINT64_C(1000000)

#define CHECK(call) EXPECT(LINEWISE_FIBRES_OK, call)
#define EXPECT(wanted, call)                                                                       \
    do {                                                                                           \
        int32_t code = (call);                                                                     \
        if (code != (wanted)) {                                                                    \
            fprintf(stderr, "%d: %s: %d instead of %d: %s\n", __LINE__, #call, code, wanted,       \
                    linewise_fibres_last_error());                                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define TRUE(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%d: %s\n", __LINE__, #what);                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static struct linewise_fibres_pool *one, *two;

static struct linewise_fibres_runtime *start(void)
{
    struct linewise_fibres_builder *builder;
    CHECK(linewise_fibres_builder_open(&builder));
    CHECK(linewise_fibres_builder_pool(builder, "one", 1));
    CHECK(linewise_fibres_builder_pool(builder, "two", 2));
    struct linewise_fibres_runtime *runtime;
    CHECK(linewise_fibres_start(builder, &runtime));
    CHECK(linewise_fibres_runtime_pool(runtime, "one", &one));
    CHECK(linewise_fibres_runtime_pool(runtime, "two", &two));
    return runtime;
}

static void end(struct linewise_fibres_runtime *runtime)
{
    CHECK(linewise_fibres_pool_close(one));
    CHECK(linewise_fibres_pool_close(two));
    CHECK(linewise_fibres_close(runtime));
}

/* Runs `function` in a fibre, and returns its value. */
static void *in_fibre(struct linewise_fibres_pool *pool, linewise_fibres_function function, void *argument)
{
    struct linewise_fibres_handle *handle;
    CHECK(linewise_fibres_pool_spawn(pool, NULL, function, argument, &handle));
    void *value;
    CHECK(linewise_fibres_join(handle, &value));
    return value;
}

static void *same(void *argument)
{
    return argument;
}

/* --- What is wrong is refused. --- */

static void null_is_refused(struct linewise_fibres_runtime *runtime)
{
    struct linewise_fibres_pool *pool;
    size_t done;
    char byte;
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_builder_open(NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_builder_pool(NULL, "a", 1));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_builder_pinned_pool(NULL, "a", NULL, 1));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_builder_check_moves(NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_start(NULL, &runtime));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_wait(NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_shut_down(NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_runtime_pool(runtime, NULL, &pool));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_runtime_pool(runtime, "one", NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_runtime_pool(runtime, "three", &pool));
    TRUE(strstr(linewise_fibres_last_error(), "three") != NULL);
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_pool_spawn(one, NULL, NULL, NULL, NULL));
    EXPECT(LINEWISE_FIBRES_NO_FIBRE, linewise_fibres_pool_spawn(NULL, NULL, same, NULL, NULL));
    EXPECT(LINEWISE_FIBRES_NO_FIBRE, linewise_fibres_pool_here(&pool));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_join(NULL, NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_current(NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_unpark(NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_visit(NULL, same, NULL, NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_visit(one, NULL, NULL, NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_migrate(NULL));
    EXPECT(LINEWISE_FIBRES_NO_FIBRE, linewise_fibres_migrate(one));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_blocking(NULL, NULL, NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_mutex_open(NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_mutex_lock(NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_condition_wait(NULL, NULL, 0));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_condition_notify_all(NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_barrier_open(1, NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_barrier_wait(NULL, NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_channel_open(1, NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_channel_send(NULL, NULL, 0));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_channel_receive(NULL, NULL, 0));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_channel_finish(NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_io_open(0, 0, NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_io_read(NULL, &byte, 1, &done));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_io_accept(NULL, NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_io_connect(NULL, NULL, 0));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_file_open(NULL, 0, 0, NULL));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_file_sync(NULL));
    CHECK(linewise_fibres_builder_close(NULL));
    CHECK(linewise_fibres_close(NULL));
    CHECK(linewise_fibres_detach(NULL));
    CHECK(linewise_fibres_mutex_close(NULL));
    CHECK(linewise_fibres_io_close(NULL));
    TRUE(linewise_fibres_io_descriptor(NULL) == -1);
    TRUE(linewise_fibres_is_fibre() == 0);
    TRUE(linewise_fibres_id(NULL) == 0 && linewise_fibres_is_finished(NULL) == 0);
}

static void plans_are_checked(void)
{
    struct linewise_fibres_runtime *runtime;
    struct linewise_fibres_builder *builder;
    CHECK(linewise_fibres_builder_open(&builder));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_builder_pool(builder, NULL, 1));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_builder_pool(builder, "a", SIZE_MAX));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_builder_pinned_pool(builder, "a", NULL, 1));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_start(builder, &runtime));
    CHECK(linewise_fibres_builder_open(&builder));
    uint32_t nowhere = 100000;
    CHECK(linewise_fibres_builder_pinned_pool(builder, "nowhere", &nowhere, 1));
    EXPECT(LINEWISE_FIBRES_SYSTEM, linewise_fibres_start(builder, &runtime));
    TRUE(linewise_fibres_last_errno() == EINVAL);
    struct rlimit limit, none;
    TRUE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    none.rlim_cur = 0;
    TRUE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(linewise_fibres_builder_open(&builder));
    CHECK(linewise_fibres_builder_pool(builder, "a", 1));
    EXPECT(LINEWISE_FIBRES_SYSTEM, linewise_fibres_start(builder, &runtime));
    TRUE(linewise_fibres_last_errno() == EMFILE);
    TRUE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(linewise_fibres_builder_open(&builder));
    CHECK(linewise_fibres_builder_close(builder));
}

static void *wrong_in_a_blocking_call(void *argument)
{
    TRUE(linewise_fibres_is_fibre() == 0);
    EXPECT(LINEWISE_FIBRES_NESTED, linewise_fibres_wait(argument));
    EXPECT(LINEWISE_FIBRES_NESTED, linewise_fibres_shut_down(argument));
    EXPECT(LINEWISE_FIBRES_NESTED, linewise_fibres_close(argument));
    return NULL;
}

static void *wrong_in_a_fibre(void *argument)
{
    CHECK(linewise_fibres_blocking(wrong_in_a_blocking_call, argument, NULL));
    TRUE(linewise_fibres_is_fibre() == 1);
    EXPECT(LINEWISE_FIBRES_NESTED, linewise_fibres_wait(argument));
    EXPECT(LINEWISE_FIBRES_NESTED, linewise_fibres_shut_down(argument));
    EXPECT(LINEWISE_FIBRES_NESTED, linewise_fibres_close(argument));
    struct linewise_fibres_spawn_options options = {.size = sizeof options, .stack_bytes = SIZE_MAX};
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_pool_spawn(NULL, &options, same, NULL, NULL));
    options.size = 3;
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_pool_spawn(NULL, &options, same, NULL, NULL));
    return NULL;
}

static struct linewise_fibres_handle *own;

static void *joins_itself(void *argument)
{
    while (linewise_fibres_channel_receive(argument, NULL, 0) == LINEWISE_FIBRES_BUSY)
        CHECK(linewise_fibres_yield());
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_join(own, NULL));
    return &own;
}

/* --- Fibres --- */

static void *says_its_name(void *argument)
{
    struct linewise_fibres_fibre *self;
    CHECK(linewise_fibres_current(&self));
    TRUE(strcmp(linewise_fibres_name(self), "named") == 0);
    TRUE(linewise_fibres_id(self) != 0);
    CHECK(linewise_fibres_fibre_close(self));
    /* More stack than a fibre has unless it asks for it. */
    volatile char large[300000];
    for (size_t i = 0; i < sizeof large; i += 1000)
        large[i] = (char)i;
    return large[1000] == (char)1000 ? argument : NULL;
}

struct parked {
    struct linewise_fibres_fibre *fibre;
    struct linewise_fibres_channel *ready;
    int woken;
};

static void *parks(void *argument)
{
    struct parked *parked = argument;
    CHECK(linewise_fibres_current(&parked->fibre));
    CHECK(linewise_fibres_channel_send(parked->ready, NULL, FOREVER));
    while (__atomic_load_n(&parked->woken, __ATOMIC_ACQUIRE) == 0)
        CHECK(linewise_fibres_park());
    CHECK(linewise_fibres_park_for(MILLISECONDS));
    CHECK(linewise_fibres_fibre_close(parked->fibre));
    return argument;
}

/* `handle` is of a fibre that has not ended. */
static void a_child_of_fork_is_refused(struct linewise_fibres_runtime *runtime,
                                       struct linewise_fibres_handle *handle)
{
    fflush(stdout);
    pid_t child = fork();
    TRUE(child >= 0);
    if (child == 0) {
        alarm(20);
        EXPECT(LINEWISE_FIBRES_FORKED, linewise_fibres_pool_spawn(one, NULL, same, NULL, NULL));
        EXPECT(LINEWISE_FIBRES_FORKED, linewise_fibres_wait(runtime));
        EXPECT(LINEWISE_FIBRES_FORKED, linewise_fibres_join(handle, NULL));
        CHECK(linewise_fibres_shut_down(runtime));
        _exit(0);
    }
    int status;
    TRUE(waitpid(child, &status, 0) == child);
    TRUE(status == 0);
}

static void *counts_up(void *argument)
{
    ++*(int *)argument;
    return argument;
}

/* The header of the C library says that this is constant, and so the compiler calls it once. */
static pthread_t (*volatile which_thread)(void) = pthread_self;

static void *visits(void *argument)
{
    int count = 0;
    pthread_t home = which_thread();
    for (int i = 0; i < 100; i++) {
        void *value;
        CHECK(linewise_fibres_visit(two, counts_up, &count, &value));
        TRUE(value == &count && pthread_equal(home, which_thread()));
    }
    TRUE(count == 100);
    return argument;
}

static void *migrates(void *argument)
{
    struct linewise_fibres_pool *here;
    pthread_t before = which_thread();
    CHECK(linewise_fibres_migrate(two));
    TRUE(!pthread_equal(before, which_thread()));
    CHECK(linewise_fibres_pool_here(&here));
    TRUE(strcmp(linewise_fibres_pool_name(here), "two") == 0 && linewise_fibres_pool_workers(here) == 2);
    CHECK(linewise_fibres_pool_close(here));
    CHECK(linewise_fibres_migrate(one));
    TRUE(pthread_equal(before, which_thread()));
    return argument;
}

/* Errors are those of the fibre, wherever it goes on and whoever else runs meanwhile. */
static void *fails(void *argument)
{
    char text[100], wanted[100];
    struct linewise_fibres_pool *pool;
    struct linewise_fibres_runtime *runtime = ((void **)argument)[0];
    char *name = ((void **)argument)[1];
    TRUE(linewise_fibres_last_error()[0] == '\0');
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_runtime_pool(runtime, name, &pool));
    snprintf(wanted, sizeof wanted, "there is no pool `%s`", name);
    for (int i = 0; i < 50; i++) {
        CHECK(linewise_fibres_yield());
        CHECK(linewise_fibres_migrate(i % 2 ? one : two));
        snprintf(text, sizeof text, "%s", linewise_fibres_last_error());
        TRUE(strcmp(text, wanted) == 0);
    }
    return NULL;
}

static void *blocks(void *argument)
{
    TRUE(linewise_fibres_is_fibre() == 0);
    CHECK(linewise_fibres_sleep(MILLISECONDS));
    return argument;
}

static void *goes_to_block(void *argument)
{
    void *value = NULL;
    CHECK(linewise_fibres_blocking(blocks, argument, &value));
    return value;
}

static void fibres_do_what_they_can(struct linewise_fibres_runtime *runtime)
{
    int place;
    struct linewise_fibres_handle *handle;
    struct linewise_fibres_spawn_options options = {
        .size = sizeof options, .name = "named", .stack_bytes = 1 << 20};
    CHECK(linewise_fibres_pool_spawn(one, &options, says_its_name, &place, &handle));
    void *value;
    CHECK(linewise_fibres_join(handle, &value));
    TRUE(value == &place);
    in_fibre(one, wrong_in_a_fibre, runtime);
    struct linewise_fibres_channel *channel;
    CHECK(linewise_fibres_channel_open(1, &channel));
    CHECK(linewise_fibres_pool_spawn(one, NULL, joins_itself, channel, &own));
    CHECK(linewise_fibres_channel_send(channel, NULL, FOREVER));
    CHECK(linewise_fibres_join(own, &value));
    TRUE(value == &own);
    struct parked parked = {.ready = channel};
    CHECK(linewise_fibres_pool_spawn(two, NULL, parks, &parked, &handle));
    CHECK(linewise_fibres_channel_receive(channel, NULL, FOREVER));
    TRUE(linewise_fibres_is_finished(handle) == 0);
    a_child_of_fork_is_refused(runtime, handle);
    __atomic_store_n(&parked.woken, 1, __ATOMIC_RELEASE);
    CHECK(linewise_fibres_unpark(parked.fibre));
    CHECK(linewise_fibres_join(handle, NULL));
    CHECK(linewise_fibres_channel_close(channel));
    TRUE(in_fibre(one, visits, &place) == &place);
    TRUE(in_fibre(one, migrates, &place) == &place);
    TRUE(in_fibre(one, goes_to_block, &place) == &place);
    place = 0;
    CHECK(linewise_fibres_visit(two, counts_up, &place, NULL));
    TRUE(place == 1);
    void *arguments[2][2] = {{runtime, "first"}, {runtime, "second"}};
    struct linewise_fibres_handle *fail[2];
    for (int i = 0; i < 2; i++)
        CHECK(linewise_fibres_pool_spawn(one, NULL, fails, arguments[i], &fail[i]));
    for (int i = 0; i < 2; i++)
        CHECK(linewise_fibres_join(fail[i], NULL));
    options = (struct linewise_fibres_spawn_options){.size = sizeof options, .roaming = 1};
    for (int i = 0; i < 2; i++)
        CHECK(linewise_fibres_pool_spawn(two, &options, fails, arguments[i], NULL));
    CHECK(linewise_fibres_wait(runtime));
}

/* --- Locks, barriers, channels --- */

struct counted {
    struct linewise_fibres_mutex *mutex;
    struct linewise_fibres_condition *changed;
    struct linewise_fibres_barrier *barrier;
    long count;
    int leaders;
};

static void *count(void *argument)
{
    struct counted *counted = argument;
    for (int i = 0; i < 200; i++) {
        CHECK(linewise_fibres_mutex_lock(counted->mutex));
        EXPECT(LINEWISE_FIBRES_OWNER, linewise_fibres_mutex_lock(counted->mutex));
        EXPECT(LINEWISE_FIBRES_OWNER, linewise_fibres_mutex_try_lock(counted->mutex));
        long before = counted->count;
        if (linewise_fibres_is_fibre())
            CHECK(linewise_fibres_yield());
        counted->count = before + 1;
        CHECK(linewise_fibres_condition_notify_one(counted->changed));
        CHECK(linewise_fibres_mutex_unlock(counted->mutex));
    }
    int leads = 0;
    CHECK(linewise_fibres_barrier_wait(counted->barrier, &leads));
    __atomic_fetch_add(&counted->leaders, leads, __ATOMIC_RELAXED);
    return NULL;
}

static void locks_hold(struct linewise_fibres_runtime *runtime)
{
    struct counted counted = {0};
    CHECK(linewise_fibres_mutex_open(&counted.mutex));
    CHECK(linewise_fibres_condition_open(&counted.changed));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_barrier_open(0, &counted.barrier));
    CHECK(linewise_fibres_barrier_open(21, &counted.barrier));
    EXPECT(LINEWISE_FIBRES_OWNER, linewise_fibres_mutex_unlock(counted.mutex));
    EXPECT(LINEWISE_FIBRES_OWNER, linewise_fibres_condition_wait(counted.changed, counted.mutex, 0));
    CHECK(linewise_fibres_mutex_lock(counted.mutex));
    EXPECT(LINEWISE_FIBRES_TIMED_OUT,
           linewise_fibres_condition_wait(counted.changed, counted.mutex, MILLISECONDS));
    EXPECT(LINEWISE_FIBRES_BUSY, linewise_fibres_mutex_close(counted.mutex));
    for (int i = 0; i < 20; i++)
        CHECK(linewise_fibres_pool_spawn(i % 2 ? one : two, NULL, count, &counted, NULL));
    while (counted.count < 20 * 200)
        CHECK(linewise_fibres_condition_wait(counted.changed, counted.mutex, FOREVER));
    CHECK(linewise_fibres_mutex_unlock(counted.mutex));
    count(&counted);
    CHECK(linewise_fibres_wait(runtime));
    TRUE(counted.count == 21 * 200 && counted.leaders == 1);
    CHECK(linewise_fibres_barrier_close(counted.barrier));
    CHECK(linewise_fibres_condition_close(counted.changed));
    CHECK(linewise_fibres_mutex_close(counted.mutex));
}

static void *sends(void *argument)
{
    for (intptr_t i = 1; i <= 1000; i++)
        CHECK(linewise_fibres_channel_send(argument, (void *)i, FOREVER));
    return NULL;
}

static void *receives(void *argument)
{
    intptr_t sum = 0;
    void *value;
    int32_t code;
    while ((code = linewise_fibres_channel_receive(argument, &value, FOREVER)) == LINEWISE_FIBRES_OK)
        sum += (intptr_t)value;
    TRUE(code == LINEWISE_FIBRES_CLOSED);
    return (void *)sum;
}

static void channels_deliver(void)
{
    struct linewise_fibres_channel *channel;
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_channel_open(0, &channel));
    CHECK(linewise_fibres_channel_open(3, &channel));
    EXPECT(LINEWISE_FIBRES_BUSY, linewise_fibres_channel_receive(channel, NULL, 0));
    EXPECT(LINEWISE_FIBRES_TIMED_OUT, linewise_fibres_channel_receive(channel, NULL, MILLISECONDS));
    struct linewise_fibres_handle *senders[4], *receivers[4];
    for (int i = 0; i < 4; i++) {
        CHECK(linewise_fibres_pool_spawn(two, NULL, sends, channel, &senders[i]));
        CHECK(linewise_fibres_pool_spawn(one, NULL, receives, channel, &receivers[i]));
    }
    for (int i = 0; i < 4; i++)
        CHECK(linewise_fibres_join(senders[i], NULL));
    CHECK(linewise_fibres_channel_finish(channel));
    intptr_t sum = 0;
    for (int i = 0; i < 4; i++) {
        void *value;
        CHECK(linewise_fibres_join(receivers[i], &value));
        sum += (intptr_t)value;
    }
    TRUE(sum == 4 * 500500);
    EXPECT(LINEWISE_FIBRES_CLOSED, linewise_fibres_channel_send(channel, NULL, 0));
    CHECK(linewise_fibres_channel_close(channel));
    CHECK(linewise_fibres_channel_open(1, &channel));
    CHECK(linewise_fibres_channel_send(channel, NULL, 0));
    EXPECT(LINEWISE_FIBRES_BUSY, linewise_fibres_channel_send(channel, NULL, 0));
    EXPECT(LINEWISE_FIBRES_TIMED_OUT, linewise_fibres_channel_send(channel, NULL, MILLISECONDS));
    CHECK(linewise_fibres_channel_close(channel));
}

/* --- Sockets and files --- */

static void *reads_and_writes(void *argument)
{
    (void)argument;
    int pair[2];
    char buffer[10];
    size_t done;
    TRUE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    struct linewise_fibres_io *left, *right, *none;
    CHECK(linewise_fibres_io_open(pair[0], 1, &left));
    CHECK(linewise_fibres_io_open(pair[1], 0, &right));
    TRUE(linewise_fibres_io_descriptor(right) == pair[1]);
    EXPECT(LINEWISE_FIBRES_TIMED_OUT, linewise_fibres_io_wait(left, LINEWISE_FIBRES_READABLE, MILLISECONDS));
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_io_wait(left, 2, FOREVER));
    CHECK(linewise_fibres_io_wait(left, LINEWISE_FIBRES_WRITABLE, FOREVER));
    CHECK(linewise_fibres_io_write(right, "hello", 5, &done));
    TRUE(done == 5);
    CHECK(linewise_fibres_io_wait(left, LINEWISE_FIBRES_READABLE, FOREVER));
    CHECK(linewise_fibres_io_read(left, buffer, sizeof buffer, &done));
    TRUE(done == 5 && memcmp(buffer, "hello", 5) == 0);
    CHECK(linewise_fibres_io_close(left));
    /* No signal. */
    EXPECT(LINEWISE_FIBRES_SYSTEM, linewise_fibres_io_write(right, "hello", 5, &done));
    TRUE(linewise_fibres_last_errno() == EPIPE);
    CHECK(linewise_fibres_io_close(right));
    TRUE(close(pair[1]) == 0);
    EXPECT(LINEWISE_FIBRES_SYSTEM, linewise_fibres_io_open(pair[1], 1, &none));
    TRUE(linewise_fibres_last_errno() == EBADF);
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_io_open(-1, 1, &none));

    char path[] = "/tmp/linewise-fibres-XXXXXX";
    int fd = mkstemp(path);
    TRUE(fd >= 0 && close(fd) == 0);
    struct linewise_fibres_file *file;
    CHECK(linewise_fibres_file_open(path, O_RDWR | O_CREAT | O_TRUNC, 0600, &file));
    CHECK(linewise_fibres_file_write_at(file, "0123456789", 10, 90, &done));
    TRUE(done == 10);
    CHECK(linewise_fibres_file_sync(file));
    CHECK(linewise_fibres_file_read_at(file, buffer, sizeof buffer, 95, &done));
    TRUE(done == 5 && memcmp(buffer, "56789", 5) == 0);
    EXPECT(LINEWISE_FIBRES_ARGUMENT, linewise_fibres_file_read_at(file, buffer, SIZE_MAX, 0, &done));
    CHECK(linewise_fibres_file_close(file));
    TRUE(unlink(path) == 0);
    EXPECT(LINEWISE_FIBRES_SYSTEM, linewise_fibres_file_open(path, O_RDONLY, 0, &file));
    TRUE(linewise_fibres_last_errno() == ENOENT);
    return NULL;
}

/* --- Shutting down --- */

enum { WAYS = 12 };

struct waiting {
    struct linewise_fibres_mutex *mutex; /* held by the main thread */
    struct linewise_fibres_barrier *barrier;
    struct linewise_fibres_channel *full, *empty, *told;
    struct linewise_fibres_io *io;
    struct linewise_fibres_handle *other;
    int cleaned[WAYS];
};

struct one_way {
    struct waiting *waiting;
    int way;
};

static int32_t wait_in(struct waiting *it, int way)
{
    char byte;
    struct linewise_fibres_io *connection;
    switch (way) {
    case 0: return linewise_fibres_park();
    case 1: return linewise_fibres_sleep(FOREVER);
    case 2: return linewise_fibres_mutex_lock(it->mutex);
    case 3: return linewise_fibres_barrier_wait(it->barrier, NULL);
    case 4: return linewise_fibres_channel_send(it->full, NULL, FOREVER);
    case 5: return linewise_fibres_channel_receive(it->empty, NULL, FOREVER);
    case 6: return linewise_fibres_io_read(it->io, &byte, 1, NULL);
    case 7: return linewise_fibres_io_accept(it->io, &connection) == LINEWISE_FIBRES_SYSTEM
                       ? linewise_fibres_park() /* it is no socket that listens */
                       : 0;
    case 8: return linewise_fibres_join(it->other, NULL);
    case 9: return linewise_fibres_yield();
    case 10: return linewise_fibres_park_for(1000000 * MILLISECONDS);
    default: return linewise_fibres_io_wait(it->io, LINEWISE_FIBRES_READABLE, FOREVER);
    }
}

/* Again where it returns early. */
static int32_t wait_to_the_end(struct waiting *it, int way)
{
    int32_t code;
    do
        code = wait_in(it, way);
    while (code == LINEWISE_FIBRES_OK);
    return code;
}

/* Waits until it is told to end, cleans up by returning, and is told again wherever it would wait. */
static void *waits(void *argument)
{
    struct one_way *way = argument;
    struct waiting *it = way->waiting;
    void *memory = malloc(1000);
    CHECK(linewise_fibres_channel_send(it->told, NULL, FOREVER));
    EXPECT(LINEWISE_FIBRES_CANCELLED, wait_to_the_end(it, way->way));
    TRUE(linewise_fibres_last_error()[0] != '\0');
    /* One that does nothing but sleep for no time, or what is over at once, hears of it, too. */
    EXPECT(LINEWISE_FIBRES_CANCELLED, linewise_fibres_sleep(0));
    EXPECT(LINEWISE_FIBRES_CANCELLED, linewise_fibres_sleep(1));
    for (int other = 0; other < WAYS; other++)
        if (other != 8) /* one at a time waits for an end */
            EXPECT(LINEWISE_FIBRES_CANCELLED, wait_to_the_end(it, other));
    /* What need not wait goes on: a mutex that nobody else locks, a place elsewhere. */
    struct linewise_fibres_mutex *free_one;
    struct linewise_fibres_condition *condition;
    CHECK(linewise_fibres_mutex_open(&free_one));
    CHECK(linewise_fibres_condition_open(&condition));
    CHECK(linewise_fibres_mutex_lock(free_one));
    EXPECT(LINEWISE_FIBRES_CANCELLED, linewise_fibres_condition_wait(condition, free_one, FOREVER));
    it->cleaned[way->way]++;
    CHECK(linewise_fibres_mutex_unlock(free_one));
    CHECK(linewise_fibres_mutex_close(free_one));
    CHECK(linewise_fibres_condition_close(condition));
    int count = 0;
    CHECK(linewise_fibres_visit(one, counts_up, &count, NULL));
    CHECK(linewise_fibres_visit(two, counts_up, &count, NULL));
    CHECK(linewise_fibres_blocking(counts_up, &count, NULL));
    TRUE(count == 3);
    free(memory);
    return argument;
}

static void *never_ends(void *argument)
{
    while (linewise_fibres_park() == LINEWISE_FIBRES_OK)
        continue;
    return argument;
}

static void who_waits_is_told(void)
{
    struct linewise_fibres_runtime *runtime = start();
    struct waiting waiting = {0};
    int pair[2];
    TRUE(pipe(pair) == 0);
    CHECK(linewise_fibres_io_open(pair[0], 1, &waiting.io));
    CHECK(linewise_fibres_mutex_open(&waiting.mutex));
    CHECK(linewise_fibres_barrier_open(1000, &waiting.barrier));
    CHECK(linewise_fibres_channel_open(1, &waiting.full));
    CHECK(linewise_fibres_channel_open(1, &waiting.empty));
    CHECK(linewise_fibres_channel_open(100, &waiting.told));
    CHECK(linewise_fibres_channel_send(waiting.full, NULL, FOREVER));
    CHECK(linewise_fibres_mutex_lock(waiting.mutex));
    CHECK(linewise_fibres_pool_spawn(one, NULL, never_ends, &waiting, &waiting.other));
    struct one_way ways[WAYS];
    struct linewise_fibres_handle *handles[WAYS];
    for (int way = 0; way < WAYS; way++) {
        ways[way] = (struct one_way){&waiting, way};
        CHECK(linewise_fibres_pool_spawn(way % 2 ? one : two, NULL, waits, &ways[way], &handles[way]));
    }
    for (int way = 0; way < WAYS; way++)
        CHECK(linewise_fibres_channel_receive(waiting.told, NULL, FOREVER));
    CHECK(linewise_fibres_sleep(5 * MILLISECONDS));
    CHECK(linewise_fibres_shut_down(runtime));
    CHECK(linewise_fibres_shut_down(runtime));
    EXPECT(LINEWISE_FIBRES_SHUTDOWN, linewise_fibres_wait(runtime));
    EXPECT(LINEWISE_FIBRES_SHUTDOWN, linewise_fibres_pool_spawn(one, NULL, same, NULL, NULL));
    EXPECT(LINEWISE_FIBRES_SHUTDOWN, linewise_fibres_visit(one, same, NULL, NULL));
    for (int way = 0; way < WAYS; way++) {
        void *value;
        CHECK(linewise_fibres_join(handles[way], &value));
        TRUE(value == &ways[way] && waiting.cleaned[way] == 1);
    }
    void *value;
    CHECK(linewise_fibres_join(waiting.other, &value));
    TRUE(value == &waiting);
    CHECK(linewise_fibres_mutex_unlock(waiting.mutex));
    CHECK(linewise_fibres_mutex_close(waiting.mutex));
    CHECK(linewise_fibres_barrier_close(waiting.barrier));
    CHECK(linewise_fibres_channel_close(waiting.full));
    CHECK(linewise_fibres_channel_close(waiting.empty));
    CHECK(linewise_fibres_channel_close(waiting.told));
    CHECK(linewise_fibres_io_close(waiting.io));
    close(pair[1]);
    end(runtime);
}

static void *holds_the_worker(void *argument)
{
    while (__atomic_load_n((int *)argument, __ATOMIC_ACQUIRE) == 0)
        continue;
    return argument;
}

static void *lets_go(void *argument)
{
    usleep(20000);
    __atomic_store_n((int *)argument, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* A fibre that has not begun when its runtime is shut down never does. */
static void who_has_not_begun_never_does(void)
{
    struct linewise_fibres_runtime *runtime = start();
    int go = 0;
    struct linewise_fibres_handle *holds, *late;
    CHECK(linewise_fibres_pool_spawn(one, NULL, holds_the_worker, &go, &holds));
    CHECK(linewise_fibres_sleep(5 * MILLISECONDS));
    CHECK(linewise_fibres_pool_spawn(one, NULL, counts_up, &go, &late));
    pthread_t thread;
    TRUE(pthread_create(&thread, NULL, lets_go, &go) == 0);
    CHECK(linewise_fibres_shut_down(runtime));
    TRUE(pthread_join(thread, NULL) == 0);
    CHECK(linewise_fibres_join(holds, NULL));
    EXPECT(LINEWISE_FIBRES_NO_VALUE, linewise_fibres_join(late, NULL));
    TRUE(go == 1);
    end(runtime);
}

int main(void)
{
    struct linewise_fibres_runtime *runtime = start();
    null_is_refused(runtime);
    plans_are_checked();
    fibres_do_what_they_can(runtime);
    locks_hold(runtime);
    channels_deliver();
    in_fibre(one, reads_and_writes, NULL);
    reads_and_writes(NULL);
    end(runtime);
    who_waits_is_told();
    who_has_not_begun_never_does();
    puts("all as promised");
    return 0;
}
