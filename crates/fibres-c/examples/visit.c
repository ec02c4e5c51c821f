/* A table that belongs to a pool of one worker: fibres of another pool move to it, look something up there and
 * come back. Nobody else touches it, so it has no lock. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "linewise_fibres.h"

enum { FIBRES = 50, VISITS = 200, ROWS = 64 };

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int32_t code = (call);                                                                     \
        if (code != LINEWISE_FIBRES_OK) {                                                          \
            fprintf(stderr, "%s: error %d: %s\n", #call, code, linewise_fibres_last_error());      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct table {
    struct linewise_fibres_pool *pool;
    uint64_t rows[ROWS]; /* touched in the pool alone */
};

struct request {
    struct table *table;
    size_t row;
    uint64_t seen;
};

/* Runs on the worker of the table's pool. */
static void *add_there(void *argument)
{
    struct request *request = argument;
    request->seen = ++request->table->rows[request->row];
    return request;
}

static void *visitor(void *argument)
{
    struct table *table = argument;
    uint64_t last = 0;
    for (size_t i = 0; i < VISITS; i++) {
        struct request request = {.table = table, .row = i % ROWS};
        CHECK(linewise_fibres_visit(table->pool, add_there, &request, NULL));
        last = request.seen;
    }
    return last > 0 ? argument : NULL;
}

int main(void)
{
    struct linewise_fibres_builder *builder;
    CHECK(linewise_fibres_builder_open(&builder));
    CHECK(linewise_fibres_builder_pool(builder, "front", 2));
    CHECK(linewise_fibres_builder_pool(builder, "data", 1));
    struct linewise_fibres_runtime *runtime;
    CHECK(linewise_fibres_start(builder, &runtime));

    struct table table = {0};
    struct linewise_fibres_pool *front;
    CHECK(linewise_fibres_runtime_pool(runtime, "front", &front));
    CHECK(linewise_fibres_runtime_pool(runtime, "data", &table.pool));
    struct linewise_fibres_handle *handles[FIBRES];
    for (int i = 0; i < FIBRES; i++)
        CHECK(linewise_fibres_pool_spawn(front, NULL, visitor, &table, &handles[i]));
    int came_back = 0;
    for (int i = 0; i < FIBRES; i++) {
        void *value;
        CHECK(linewise_fibres_join(handles[i], &value));
        came_back += value == &table;
    }
    uint64_t total = 0;
    for (int i = 0; i < ROWS; i++)
        total += table.rows[i];

    CHECK(linewise_fibres_pool_close(front));
    CHECK(linewise_fibres_pool_close(table.pool));
    CHECK(linewise_fibres_close(runtime));
    printf("%d fibres came back, %" PRIu64 " visits\n", came_back, total);
    return came_back == FIBRES && total == (uint64_t)FIBRES * VISITS ? 0 : 1;
}
