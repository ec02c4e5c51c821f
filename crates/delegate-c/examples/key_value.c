/* A key-value cache in 16 shards, used by client threads: behind mutexes, behind reader-writer locks,
 * and owned by a server that the clients ask without waiting. Keys follow Zipf's law; 95 or 50 of 100
 * requests read, the others write. Prints throughput and latencies (of one request in 16, from asking
 * to the answer); every write is counted in the table, and all must be there.
 *
 *   key_value [SECONDS] [CLIENTS] */

#define _GNU_SOURCE

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "linewise_delegate.h"

enum { KEYS = 100000, SHARDS = 16, DRAWN = 1 << 16, TIMED = 16, MOST_CLIENTS = 64, NOTES = 1 << 20 };

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int32_t code = (call);                                                                     \
        if (code != LINEWISE_OK) {                                                                 \
            fprintf(stderr, "%s: error %d: %s\n", #call, code, linewise_last_error());             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct entry {
    uint64_t writes;
    uint64_t value[7];
};

/* Keys of a shard: those that leave its number when divided by SHARDS. */
struct shard {
    struct entry entries[KEYS / SHARDS + 1];
};

/* A request: a key, and in the lowest bit whether it is written. */
static uint64_t serve(void *value, uint64_t request)
{
    struct shard *shard = value;
    struct entry *entry = &shard->entries[(request >> 1) / SHARDS];
    if (request & 1) {
        entry->writes++;
        entry->value[entry->writes % 7] = entry->writes;
        return entry->writes;
    }
    uint64_t sum = 0;
    for (int i = 0; i < 7; i++)
        sum += entry->value[i];
    return sum;
}

static uint64_t count(void *value, uint64_t unused)
{
    (void)unused;
    struct shard *shard = value;
    uint64_t writes = 0;
    for (size_t i = 0; i < KEYS / SHARDS + 1; i++)
        writes += shard->entries[i].writes;
    return writes;
}

/* Shards behind locks, each lock on lines of its own. */
struct locked {
    alignas(128) pthread_mutex_t mutex;
    alignas(128) pthread_rwlock_t rwlock;
    alignas(128) struct shard shard;
};

enum kind { MUTEX, RWLOCK, DELEGATED };
static const char *const names[] = {"mutex", "rwlock", "delegated"};

struct task {
    enum kind kind;
    struct locked *locked;
    struct linewise_array *delegated;
    uint32_t *requests;
    atomic_bool *stop;
    uint64_t done, writes, sum;
    uint32_t *notes;
    size_t noted;
};

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void note(struct task *task, uint64_t since)
{
    uint64_t took = now_ns() - since;
    if (task->noted < NOTES)
        task->notes[task->noted++] = took > UINT32_MAX ? UINT32_MAX : (uint32_t)took;
}

static void ask_locked(struct task *task, uint32_t request)
{
    struct locked *locked = &task->locked[(request >> 1) % SHARDS];
    if (task->kind == MUTEX) {
        pthread_mutex_lock(&locked->mutex);
        task->sum += serve(&locked->shard, request);
        pthread_mutex_unlock(&locked->mutex);
        return;
    }
    if (request & 1)
        pthread_rwlock_wrlock(&locked->rwlock);
    else
        pthread_rwlock_rdlock(&locked->rwlock);
    task->sum += serve(&locked->shard, request);
    pthread_rwlock_unlock(&locked->rwlock);
}

/* A timed request on its way. */
struct timed {
    struct task *task;
    uint64_t since;
};

static void answered(void *context, int32_t code, uint64_t answer)
{
    struct task *task = context;
    if (code == LINEWISE_OK)
        task->sum += answer;
}

static void answered_timed(void *context, int32_t code, uint64_t answer)
{
    struct timed *timed = context;
    answered(timed->task, code, answer);
    note(timed->task, timed->since);
    free(timed);
}

static void client(struct linewise_client *client, void *argument)
{
    struct task *task = argument;
    while (!atomic_load_explicit(task->stop, memory_order_relaxed)) {
        for (int i = 0; i < 64; i++) {
            uint32_t request = task->requests[task->done % DRAWN];
            int is_timed = task->done % TIMED == 0;
            task->done++;
            task->writes += request & 1;
            if (task->kind != DELEGATED) {
                uint64_t since = is_timed ? now_ns() : 0;
                ask_locked(task, request);
                if (is_timed)
                    note(task, since);
                continue;
            }
            size_t shard = (request >> 1) % SHARDS;
            struct timed *timed = is_timed ? malloc(sizeof *timed) : NULL;
            if (timed)
                *timed = (struct timed){task, now_ns()};
            CHECK(linewise_call_async(client, task->delegated, shard, serve, request,
                                      timed ? answered_timed : answered,
                                      timed ? (void *)timed : (void *)task));
        }
    }
    CHECK(linewise_barrier(client));
}

static double random_double(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) / 9007199254740992.0;
}

static void draw(uint32_t *requests, const double *sums, int writes, uint64_t seed)
{
    uint64_t state = 88172645463325252u ^ (seed + 1);
    for (int i = 0; i < DRAWN; i++) {
        double at = random_double(&state) * sums[KEYS - 1];
        uint32_t low = 0, high = KEYS - 1;
        while (low < high) {
            uint32_t middle = (low + high) / 2;
            if (sums[middle] < at)
                low = middle + 1;
            else
                high = middle;
        }
        uint32_t key = (uint32_t)((uint64_t)low * 2654435761u % KEYS);
        requests[i] = key << 1 | (random_double(&state) * 100 < writes);
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static void *allocate(size_t bytes)
{
    void *memory = aligned_alloc(128, (bytes + 127) / 128 * 128);
    if (!memory)
        exit(1);
    return memory;
}

/* One cache for a while; returns whether every write is there. */
static int measure(enum kind kind, const double *sums, int writes, double seconds, int clients)
{
    static struct task tasks[MOST_CLIENTS];
    static struct linewise_thread *threads[MOST_CLIENTS];
    atomic_bool stop = false;
    struct locked *locked = NULL;
    struct linewise_array *delegated = NULL;
    struct linewise_domain_options options = {.size = sizeof options, .shards = 1};
    struct linewise_domain *domain;
    CHECK(linewise_domain_open(&options, &domain));
    if (kind == DELEGATED) {
        struct linewise_array_options shards = {
            .size = sizeof shards,
            .count = SHARDS,
            .value_bytes = sizeof(struct shard),
        };
        CHECK(linewise_array_new(domain, &shards, &delegated));
    } else {
        locked = allocate(SHARDS * sizeof *locked);
        for (int i = 0; i < SHARDS; i++) {
            pthread_mutex_init(&locked[i].mutex, NULL);
            pthread_rwlock_init(&locked[i].rwlock, NULL);
            memset(&locked[i].shard, 0, sizeof locked[i].shard);
        }
    }
    /* The server is one of the threads. */
    int askers = kind == DELEGATED && clients > 1 ? clients - 1 : clients;
    for (int i = 0; i < askers; i++) {
        tasks[i] = (struct task){.kind = kind, .locked = locked, .delegated = delegated};
        tasks[i].stop = &stop;
        tasks[i].requests = allocate(DRAWN * sizeof(uint32_t));
        tasks[i].notes = allocate(NOTES * sizeof(uint32_t));
        draw(tasks[i].requests, sums, writes, (uint64_t)i);
    }
    uint64_t begun = now_ns();
    for (int i = 0; i < askers; i++)
        CHECK(linewise_client_start(domain, client, &tasks[i], &threads[i]));
    struct timespec pause = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    nanosleep(&pause, NULL);
    atomic_store(&stop, true);
    for (int i = 0; i < askers; i++)
        CHECK(linewise_client_join(threads[i]));
    double took = (double)(now_ns() - begun) / 1e9;

    uint64_t done = 0, asked = 0, held = 0;
    size_t noted = 0;
    uint32_t *notes = allocate((size_t)askers * NOTES * sizeof(uint32_t));
    notes[0] = 0;
    for (int i = 0; i < askers; i++) {
        done += tasks[i].done;
        asked += tasks[i].writes;
        for (size_t j = 0; j < tasks[i].noted; j++)
            notes[noted++] = tasks[i].notes[j];
        free(tasks[i].requests);
        free(tasks[i].notes);
    }
    struct linewise_client *reader;
    CHECK(linewise_client_open(domain, &reader));
    for (size_t i = 0; i < SHARDS; i++) {
        uint64_t here = 0;
        if (kind == DELEGATED)
            CHECK(linewise_call(reader, delegated, i, count, 0, &here));
        else
            here = count(&locked[i].shard, 0);
        held += here;
    }
    CHECK(linewise_client_close(reader));
    CHECK(linewise_array_close(delegated));
    CHECK(linewise_domain_close(domain));
    free(locked);

    qsort(notes, noted, sizeof *notes, compare);
    size_t last = noted ? noted - 1 : 0;
    printf("%2d/%-2d  %-10s %8.2f Mops   p50 %7" PRIu32 "   p99 %7" PRIu32 "   p99.9 %8" PRIu32 " ns\n",
           100 - writes, writes, names[kind], (double)done / took / 1e6, notes[last / 2],
           notes[(size_t)((double)last * 0.99)], notes[(size_t)((double)last * 0.999)]);
    free(notes);
    if (held != asked)
        fprintf(stderr, "%s: %" PRIu64 " writes, %" PRIu64 " are there\n", names[kind], asked, held);
    return held == asked && done > 0;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1.0;
    int clients = argc > 2 ? atoi(argv[2]) : 2;
    if (!(seconds > 0.0 && seconds < 3600.0) || clients < 1 || clients > MOST_CLIENTS) {
        fprintf(stderr, "usage: %s [SECONDS] [CLIENTS, 1 to %d]\n", argv[0], MOST_CLIENTS);
        return 2;
    }
    double *sums = allocate(KEYS * sizeof *sums);
    double sum = 0.0;
    for (int rank = 0; rank < KEYS; rank++) {
        sum += pow(rank + 1.0, -0.99);
        sums[rank] = sum;
    }
    int good = 1;
    for (int writes = 5; writes <= 50; writes += 45)
        for (enum kind kind = MUTEX; kind <= DELEGATED; kind++)
            good &= measure(kind, sums, writes, seconds, clients);
    free(sums);
    return good ? 0 : 1;
}
