/* Client threads increment counters that two servers own; every answer and the sum are checked. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "linewise_delegate.h"

enum { SHARDS = 2, CLIENTS = 2, COUNTERS = 64, INCREMENTS = 100000 };

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int32_t code = (call);                                                                     \
        if (code != LINEWISE_OK) {                                                                 \
            fprintf(stderr, "%s: error %d: %s\n", #call, code, linewise_last_error());             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct task {
    struct linewise_array *shards[SHARDS];
    uint64_t answered;
    uint64_t sum;
};

static uint64_t add(void *value, uint64_t operand)
{
    uint64_t *counter = value;
    uint64_t before = *counter;
    *counter += operand;
    return before;
}

static uint64_t read_counter(void *value, uint64_t unused)
{
    (void)unused;
    return *(uint64_t *)value;
}

static void answered(void *context, int32_t code, uint64_t before)
{
    struct task *task = context;
    task->answered += code == LINEWISE_OK;
    task->sum += before;
}

static void client(struct linewise_client *client, void *argument)
{
    struct task *task = argument;
    for (uint64_t i = 0; i < INCREMENTS; i++) {
        const struct linewise_array *shard = task->shards[i % SHARDS];
        CHECK(linewise_call_async(client, shard, i * 7919 % COUNTERS, add, 1, answered, task));
    }
    CHECK(linewise_barrier(client));
}

int main(void)
{
    struct linewise_domain_options options = {.size = sizeof options, .shards = SHARDS};
    struct linewise_domain *domain;
    CHECK(linewise_domain_open(&options, &domain));

    struct task tasks[CLIENTS] = {0};
    struct linewise_array *shards[SHARDS];
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        struct linewise_array_options counters = {
            .size = sizeof counters,
            .shard = shard,
            .count = COUNTERS,
            .value_bytes = sizeof(uint64_t),
        };
        CHECK(linewise_array_new(domain, &counters, &shards[shard]));
        for (int i = 0; i < CLIENTS; i++)
            tasks[i].shards[shard] = shards[shard];
    }

    struct linewise_thread *threads[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        CHECK(linewise_client_start(domain, client, &tasks[i], &threads[i]));
    uint64_t answers = 0, returned = 0;
    for (int i = 0; i < CLIENTS; i++) {
        CHECK(linewise_client_join(threads[i]));
        answers += tasks[i].answered;
        returned += tasks[i].sum;
    }

    struct linewise_client *reader;
    CHECK(linewise_client_open(domain, &reader));
    uint64_t held = 0, owed = 0;
    for (int shard = 0; shard < SHARDS; shard++) {
        for (size_t i = 0; i < COUNTERS; i++) {
            uint64_t value;
            CHECK(linewise_call(reader, shards[shard], i, read_counter, 0, &value));
            held += value;
            owed += value ? value * (value - 1) / 2 : 0;
        }
    }
    CHECK(linewise_client_close(reader));
    for (int shard = 0; shard < SHARDS; shard++)
        CHECK(linewise_array_close(shards[shard]));
    CHECK(linewise_domain_close(domain));

    printf("%" PRIu64 " increments, %" PRIu64 " answered\n", held, answers);
    return held == (uint64_t)CLIENTS * INCREMENTS && answers == held && returned == owed ? 0 : 1;
}
