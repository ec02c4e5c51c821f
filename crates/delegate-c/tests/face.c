/* What the header promises where a caller is unlucky or wrong: shutdown, fork, nesting, seats, order,
 * foreign threads, closing what is in use. Run as it is and under valgrind. */

#define _POSIX_C_SOURCE 200809L

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "linewise_delegate.h"

#define EXPECT(call, wanted)                                                                       \
    do {                                                                                           \
        int32_t got_ = (call);                                                                     \
        if (got_ != (wanted)) {                                                                    \
            fprintf(stderr, "%d: %s: %d instead of %d: %s\n", __LINE__, #call, got_, (wanted),     \
                    linewise_last_error());                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) EXPECT(call, LINEWISE_OK)
#define HOLDS(what) EXPECT((what) ? LINEWISE_OK : LINEWISE_INTERNAL, LINEWISE_OK)

static uint64_t add(void *value, uint64_t operand)
{
    return *(uint64_t *)value += operand;
}

static void count(void *context, int32_t code, uint64_t answer)
{
    (void)answer;
    *(uint64_t *)context += code == LINEWISE_OK;
}

static struct linewise_domain *open_domain(uint32_t policy, uint32_t shards, uint32_t ordered)
{
    struct linewise_domain_options options = {
        .size = sizeof options,
        .shards = shards,
        .policy = policy,
        .ordered = ordered,
        .timed = 1,
    };
    struct linewise_domain *domain;
    OK(linewise_domain_open(&options, &domain));
    return domain;
}

static struct linewise_array *counters(struct linewise_domain *domain, size_t how_many)
{
    struct linewise_array_options options = {
        .size = sizeof options,
        .spread = 1,
        .count = how_many,
        .value_bytes = sizeof(uint64_t),
    };
    struct linewise_array *array;
    OK(linewise_array_new(domain, &options, &array));
    return array;
}

/* Every call after a shutdown is refused, what was asked before is answered. */
static void shut_down(uint32_t policy)
{
    struct linewise_domain *domain = open_domain(policy, 2, LINEWISE_ORDER_SHARD);
    struct linewise_array *array = counters(domain, 4);
    struct linewise_client *client;
    OK(linewise_client_open(domain, &client));
    uint64_t answered = 0;
    for (int i = 0; i < 1000; i++)
        OK(linewise_call_async(client, array, i % 4, add, 1, count, &answered));
    OK(linewise_domain_shutdown(domain));
    OK(linewise_domain_shutdown(domain));
    EXPECT(linewise_call(client, array, 0, add, 1, NULL), LINEWISE_SHUTDOWN);
    EXPECT(linewise_call_post(client, array, 0, add, 1), LINEWISE_SHUTDOWN);
    EXPECT(linewise_call_async(client, array, 0, add, 1, count, &answered), LINEWISE_SHUTDOWN);
    size_t index = 1;
    EXPECT(linewise_call_batch(client, array, &index, 1, add, 1, NULL), LINEWISE_SHUTDOWN);
    struct linewise_client *late;
    EXPECT(linewise_client_open(domain, &late), LINEWISE_SHUTDOWN);
    OK(linewise_barrier(client));
    HOLDS(answered == 1000);
    OK(linewise_domain_close(domain));
    OK(linewise_array_close(array));
    OK(linewise_client_close(client));
}

struct all {
    struct linewise_domain *domain;
    struct linewise_client *client;
    struct linewise_array *array;
    uint64_t seen;
};

static void nothing(void *value, void *argument)
{
    (void)value;
    (void)argument;
}

/* Runs on the server: a dedicated one has another thread than the client, a flat one may not. */
static void nest(void *value, void *argument)
{
    struct all *all = argument;
    struct linewise_client *client;
    struct linewise_array *array;
    struct linewise_array_options options = {.size = sizeof options, .count = 1, .value_bytes = 8};
    EXPECT(linewise_client_open(all->domain, &client), LINEWISE_NESTED);
    EXPECT(linewise_array_new(all->domain, &options, &array), LINEWISE_NESTED);
    EXPECT(linewise_domain_shutdown(all->domain), LINEWISE_NESTED);
    EXPECT(linewise_domain_close(all->domain), LINEWISE_NESTED);
    EXPECT(linewise_domain_apply(all->domain, all->array, 0, nothing, NULL), LINEWISE_NESTED);
    int32_t code = linewise_barrier(all->client);
    HOLDS(code == LINEWISE_NESTED || code == LINEWISE_THREAD);
    code = linewise_client_close(all->client);
    HOLDS(code == LINEWISE_NESTED || code == LINEWISE_THREAD);
    add(value, 1);
}

static void nest_in_callback(void *context, int32_t code, uint64_t answer)
{
    (void)answer;
    struct all *all = context;
    OK(code);
    EXPECT(linewise_call(all->client, all->array, 0, add, 1, NULL), LINEWISE_NESTED);
    EXPECT(linewise_barrier(all->client), LINEWISE_NESTED);
    EXPECT(linewise_client_close(all->client), LINEWISE_NESTED);
    OK(linewise_call_async(all->client, all->array, 0, add, 1, count, &all->seen));
}

static void close_in_fibre(struct linewise_fibres *fibres, void *argument)
{
    (void)fibres;
    struct all *all = argument;
    EXPECT(linewise_client_close(all->client), LINEWISE_NESTED);
    EXPECT(linewise_fibres_run(all->client, close_in_fibre, all), LINEWISE_NESTED);
    OK(linewise_call(all->client, all->array, 0, add, 1, NULL));
}

static void *from_another_thread(void *argument)
{
    struct all *all = argument;
    EXPECT(linewise_flush(all->client), LINEWISE_THREAD);
    EXPECT(linewise_client_close(all->client), LINEWISE_THREAD);
    OK(linewise_domain_apply(all->domain, all->array, 0, nothing, NULL));
    return NULL;
}

/* Where waiting would be for itself, and what closing would take away, is refused. */
static void nested(uint32_t policy)
{
    struct all all = {.domain = open_domain(policy, 1, LINEWISE_ORDER_SHARD)};
    all.array = counters(all.domain, 1);
    OK(linewise_client_open(all.domain, &all.client));
    OK(linewise_apply(all.client, all.array, 0, nest, &all));
    OK(linewise_apply_async(all.client, all.array, 0, nest, &all, nest_in_callback, &all));
    OK(linewise_apply_post(all.client, all.array, 0, nest, &all));
    OK(linewise_barrier(all.client));
    OK(linewise_fibres_run(all.client, close_in_fibre, &all));
    uint64_t value;
    OK(linewise_call(all.client, all.array, 0, add, 0, &value));
    HOLDS(value == 5 && all.seen == 1);
    if (policy == LINEWISE_DEDICATED) {
        pthread_t thread;
        HOLDS(pthread_create(&thread, NULL, from_another_thread, &all) == 0);
        HOLDS(pthread_join(thread, NULL) == 0);
    }
    /* Closed in an odd order, and what is left ends with the last handle. */
    OK(linewise_domain_close(all.domain));
    EXPECT(linewise_call(all.client, all.array, 0, add, 1, NULL), LINEWISE_SHUTDOWN);
    OK(linewise_client_close(all.client));
    OK(linewise_array_close(all.array));
}

/* A child of fork is refused, and can close what it has; its parent goes on. */
static void forked(uint32_t policy)
{
    struct all all = {.domain = open_domain(policy, 1, LINEWISE_ORDER_SHARD)};
    all.array = counters(all.domain, 1);
    OK(linewise_client_open(all.domain, &all.client));
    OK(linewise_call_post(all.client, all.array, 0, add, 1));
    pid_t child = fork();
    if (child == 0) {
        struct linewise_client *client;
        EXPECT(linewise_call(all.client, all.array, 0, add, 1, NULL), LINEWISE_FORKED);
        EXPECT(linewise_call_post(all.client, all.array, 0, add, 1), LINEWISE_FORKED);
        EXPECT(linewise_barrier(all.client), LINEWISE_FORKED);
        EXPECT(linewise_client_open(all.domain, &client), LINEWISE_FORKED);
        EXPECT(linewise_domain_apply(all.domain, all.array, 0, nothing, NULL), LINEWISE_FORKED);
        OK(linewise_client_close(all.client));
        OK(linewise_array_close(all.array));
        OK(linewise_domain_close(all.domain));
        /* Not an exit, at which valgrind would look for what the lost threads held. */
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    int status;
    HOLDS(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    uint64_t value;
    OK(linewise_call(all.client, all.array, 0, add, 1, &value));
    HOLDS(value == 2);
    OK(linewise_client_close(all.client));
    OK(linewise_array_close(all.array));
    OK(linewise_domain_close(all.domain));
}

enum { ROUNDS = 300 };
static int order[ROUNDS], ordered_calls;

static uint64_t note_order(void *value, uint64_t round)
{
    (void)value;
    order[ordered_calls++] = (int)round;
    return 0;
}

/* What a callback asks once more. */
struct again {
    struct linewise_client *client;
    struct linewise_array *array;
    size_t index;
};

static void ask_again(void *context, int32_t code, uint64_t answer)
{
    const struct again *again = context;
    (void)answer;
    OK(code);
    OK(linewise_call_post(again->client, again->array, again->index, add, 1));
}

/* LINEWISE_ORDER_CLIENT: the order holds over shards, so that they may share memory like this, also beside
 * what callbacks ask while it is kept. */
static void in_order(void)
{
    struct linewise_domain *domain = open_domain(LINEWISE_DEDICATED, 3, LINEWISE_ORDER_CLIENT);
    struct linewise_array *array = counters(domain, 3);
    struct linewise_client *client;
    OK(linewise_client_open(domain, &client));
    struct again again[3];
    for (size_t i = 0; i < 3; i++)
        again[i] = (struct again){client, array, i};
    for (uint64_t round = 0; round < ROUNDS; round++) {
        size_t index = round * 7 % 3;
        OK(linewise_call_async(client, array, index, note_order, round, ask_again, &again[index]));
    }
    OK(linewise_barrier(client));
    HOLDS(ordered_calls == ROUNDS);
    for (int round = 0; round < ROUNDS; round++)
        HOLDS(order[round] == round);

    struct linewise_client_stats stats = {.size = sizeof stats};
    OK(linewise_client_statistics(client, &stats));
    HOLDS(stats.requests == 2 * ROUNDS && stats.lines > 0 && stats.latency_ticks > 0);
    uint64_t requests = 0;
    for (uint32_t shard = 0; shard < linewise_domain_shards(domain); shard++) {
        struct linewise_shard_stats shards = {.size = sizeof shards};
        OK(linewise_shard_statistics(domain, shard, &shards));
        HOLDS(shards.visits > 0 && shards.busy_passes <= shards.passes);
        requests += shards.requests;
    }
    HOLDS(requests == 2 * ROUNDS);
    OK(linewise_client_close(client));
    OK(linewise_array_close(array));
    OK(linewise_domain_close(domain));
}

static void close_what_is_lent(struct linewise_client *client, void *argument)
{
    EXPECT(linewise_client_close(client), LINEWISE_ARGUMENT);
    for (int i = 0; i < 1000; i++)
        OK(linewise_call_post(client, argument, 0, add, 1));
}

/* The thread closes its client; a seat that is taken is the thread's error. */
static void threads(void)
{
    struct linewise_domain *domain = open_domain(LINEWISE_FLAT_QUEUE, 1, LINEWISE_ORDER_SHARD);
    struct linewise_array *array = counters(domain, 1);
    struct linewise_thread *thread;
    OK(linewise_client_start(domain, close_what_is_lent, array, &thread));
    OK(linewise_client_join(thread));
    struct linewise_client *client;
    OK(linewise_client_open_at(domain, 0, &client));
    uint64_t value;
    OK(linewise_call(client, array, 0, add, 0, &value));
    HOLDS(value == 1000);
    OK(linewise_client_start(domain, close_what_is_lent, array, &thread));
    EXPECT(linewise_client_join(thread), LINEWISE_NO_SEAT);
    OK(linewise_client_close(client));
    OK(linewise_array_close(array));
    OK(linewise_domain_close(domain));
}

static uint64_t ended;

static void end(void *value)
{
    (void)value;
    ended++;
}

/* Values that are too many or too large, and ones that outlive their domain. */
static void values(void)
{
    struct linewise_domain *domain = open_domain(LINEWISE_DEDICATED, 2, LINEWISE_ORDER_SHARD);
    struct linewise_array *array;
    struct linewise_array_options options = {.size = sizeof options, .count = 1, .end = end};
    EXPECT(linewise_array_new(domain, &options, &array), LINEWISE_ARGUMENT);
    options.value_bytes = SIZE_MAX;
    EXPECT(linewise_array_new(domain, &options, &array), LINEWISE_SYSTEM);
    options.value_bytes = (size_t)1 << 62;
    EXPECT(linewise_array_new(domain, &options, &array), LINEWISE_SYSTEM);
    options.value_bytes = 8;
    options.count = SIZE_MAX / 8;
    EXPECT(linewise_array_new(domain, &options, &array), LINEWISE_FULL);
    options.count = 7;
    options.shard = 2;
    EXPECT(linewise_array_new(domain, &options, &array), LINEWISE_ARGUMENT);
    options.spread = 1;
    EXPECT(linewise_array_new(domain, &options, &array), LINEWISE_ARGUMENT);
    options.shard = 0;
    options.value_bytes = 100;
    OK(linewise_array_new(domain, &options, &array));
    HOLDS(linewise_array_count(array) == 7 && ended == 0);
    OK(linewise_domain_close(domain));
    OK(linewise_array_close(array));
    HOLDS(ended == 7);
}

/* Indexes of a batch are checked before anything is called. */
static void batches(void)
{
    struct linewise_domain *domain = open_domain(LINEWISE_DEDICATED, 2, LINEWISE_ORDER_SHARD);
    struct linewise_array *array = counters(domain, 3);
    struct linewise_client *client;
    OK(linewise_client_open(domain, &client));
    size_t indexes[] = {2, 0, 2, 3};
    uint64_t answers[] = {9, 9, 9, 9};
    EXPECT(linewise_call_batch(client, array, indexes, 4, add, 1, answers), LINEWISE_ARGUMENT);
    HOLDS(strstr(linewise_last_error(), "index 3 of 3") != NULL && answers[0] == 9);
    EXPECT(linewise_call_batch(client, array, NULL, 1, add, 1, answers), LINEWISE_ARGUMENT);
    EXPECT(linewise_call_batch(client, array, indexes, 1, NULL, 1, answers), LINEWISE_ARGUMENT);
    OK(linewise_call_batch(client, array, NULL, 0, add, 1, NULL));
    OK(linewise_call_batch(client, array, indexes, 3, add, 1, answers));
    HOLDS(answers[0] == 1 && answers[1] == 1 && answers[2] == 2 && answers[3] == 9);
    OK(linewise_client_close(client));
    OK(linewise_array_close(array));
    OK(linewise_domain_close(domain));
}

struct pair {
    uint64_t sum;
    size_t count;
};

static void swap(void *const *values, size_t count, void *argument)
{
    struct pair *pair = argument;
    uint64_t first = *(uint64_t *)values[0];
    pair->count = count;
    pair->sum = 0;
    for (size_t i = 0; i < count; i++)
        pair->sum += *(uint64_t *)values[i];
    for (size_t i = 0; i + 1 < count; i++)
        *(uint64_t *)values[i] = *(uint64_t *)values[i + 1];
    *(uint64_t *)values[count - 1] = first;
}

static void into(void *value, void *argument)
{
    *(uint64_t *)value += *(uint64_t *)argument;
    *(uint64_t *)argument = *(uint64_t *)value;
}

static uint64_t nap(void *value, uint64_t operand)
{
    struct timespec time = {.tv_nsec = 30 * 1000 * 1000};
    nanosleep(&time, NULL);
    return *(uint64_t *)value += operand;
}

/* Arguments of their own, values of one shard together, and calls that wait for a time. */
static void several(uint32_t policy)
{
    struct linewise_domain *domain = open_domain(policy, 2, 0);
    struct linewise_array *array = counters(domain, 6);
    struct linewise_client *client;
    OK(linewise_client_open(domain, &client));
    uint64_t numbers[100];
    void *arguments[100];
    size_t indexes[100];
    for (size_t i = 0; i < 100; i++) {
        numbers[i] = i;
        arguments[i] = &numbers[i];
        indexes[i] = i % 6;
    }
    OK(linewise_apply_batch(client, array, indexes, 100, into, arguments));
    for (size_t i = 6; i < 100; i++)
        HOLDS(numbers[i] == numbers[i - 6] + i);
    indexes[50] = 6;
    EXPECT(linewise_apply_batch(client, array, indexes, 100, into, arguments), LINEWISE_ARGUMENT);
    EXPECT(linewise_apply_batch(client, array, indexes, 3, into, NULL), LINEWISE_ARGUMENT);
    OK(linewise_apply_batch(client, array, NULL, 0, into, NULL));

    struct pair pair;
    struct linewise_place places[] = {{array, 1}, {array, 3}, {array, 5}};
    OK(linewise_apply_together(client, places, 3, swap, &pair));
    HOLDS(pair.count == 3 && pair.sum == numbers[97] + numbers[99] + numbers[95]);
    places[2].index = 1;
    EXPECT(linewise_apply_together(client, places, 3, swap, &pair), LINEWISE_ARGUMENT);
    places[2].index = 2;
    EXPECT(linewise_apply_together(client, places, 3, swap, &pair), LINEWISE_ARGUMENT);
    EXPECT(linewise_apply_together(client, places, 0, swap, &pair), LINEWISE_ARGUMENT);

    uint64_t answer = 0;
    OK(linewise_call_timeout(client, array, 0, add, 1, UINT64_MAX, &answer));
    HOLDS(answer == numbers[96] + 1);
    if (policy == LINEWISE_DEDICATED) {
        EXPECT(linewise_call_timeout(client, array, 0, nap, 1, 1000, &answer), LINEWISE_TIMED_OUT);
        OK(linewise_call(client, array, 0, add, 0, &answer));
        HOLDS(answer == numbers[96] + 2);
    }
    OK(linewise_client_close(client));
    OK(linewise_array_close(array));
    OK(linewise_domain_close(domain));
}

int main(void)
{
    const uint32_t policies[] = {LINEWISE_DEDICATED,    LINEWISE_FLAT_QUEUE, LINEWISE_FLAT_BLOCKED,
                                 LINEWISE_FLAT_FAST_PATH, LINEWISE_FLAT_BOUND, LINEWISE_FLAT_DOORBELL};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        shut_down(policies[i]);
        nested(policies[i]);
        forked(policies[i]);
        several(policies[i]);
    }
    in_order();
    threads();
    values();
    batches();
    puts("all as promised");
    return 0;
}
