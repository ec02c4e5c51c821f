/* linewise_delegate.h: threads that own data run the functions of others on it.
 *
 * Made from the Rust sources by `cargo xtask header`; do not edit.
 *
 * Errors: functions return LINEWISE_OK or another code; linewise_last_error() has the text of the
 * calling thread's last one. Handles: whoever gets one closes it, in any order; NULL is an error, but
 * may be closed. Threads: a client belongs to the thread that opened it; everything else may be used
 * by several at once. Options: structures begin with their size; what is zero is the default.
 * Functions that are passed in must return: no longjmp or pthread_exit may leave them, and an
 * exception of C++ that does ends the process. Waiting calls inside them are refused (LINEWISE_NESTED).
 * Order: a client's requests to one shard run in the order they were made. After fork() the child
 * has none of the threads: calls are refused there (LINEWISE_FORKED), handles can be closed.
 * The paper's calls (Dill, Asynchronous Delegation and its Applications): Launch_Servers is
 * linewise_domain_open, Client_Thread_Create linewise_client_start, Delegate_Async
 * linewise_apply_async or linewise_call_async, Async_Barrier linewise_barrier.
 * Linking: -llinewise_delegate, or `pkg-config --cflags --libs linewise-delegate`. */

#ifndef LINEWISE_DELEGATE_H
#define LINEWISE_DELEGATE_H

#include <stddef.h>
#include <stdint.h>

// Servers that do nothing but serve, one for each shard.
#define LINEWISE_DEDICATED 0

// Flat: each client serves a shard; requests wait in queues. The fastest in most cases.
#define LINEWISE_FLAT_QUEUE 1

// Flat: a client writes requests directly, and serves when it is blocked.
#define LINEWISE_FLAT_BLOCKED 2

// The same, and calls on the own shard run inline.
#define LINEWISE_FLAT_FAST_PATH 3

// The same, and a client serves after `bound` calls on its own shard.
#define LINEWISE_FLAT_BOUND 4

// As fast path, and a blocked client rings for the one it waits for.
#define LINEWISE_FLAT_DOORBELL 5

// For `pending_lines`: no queue.
#define LINEWISE_DIRECT 4294967295

// A client's requests to one shard run in the order they were made; to different shards in any order.
#define LINEWISE_ORDER_SHARD 0

// All requests of a client run in the order they were made. Slow where shards alternate. A callback that would
// have to wait before it asks another shard is refused (LINEWISE_NESTED).
#define LINEWISE_ORDER_CLIENT 1

// Threads are pinned where `server_cpus` and `client_cpus` say, or nowhere.
#define LINEWISE_PLACE_GIVEN 0

// Servers, then the threads of linewise_client_start, are pinned to the CPUs where this process may
// run, one of each socket in turn.
#define LINEWISE_PLACE_ROUND_ROBIN 1

// All went well.
#define LINEWISE_OK 0

// An argument is null, out of range, or of an unknown version.
#define LINEWISE_ARGUMENT 1

// A client was used by another thread than the one that opened it.
#define LINEWISE_THREAD 2

// The domain is shut down.
#define LINEWISE_SHUTDOWN 3

// A call that waits, or that ends what is in use, inside a delegated function, a callback or a fibre.
#define LINEWISE_NESTED 4

// The values belong to another domain than the client.
#define LINEWISE_FOREIGN 5

// Every seat of a flat domain is taken, or the wanted one is.
#define LINEWISE_NO_SEAT 6

// The shard's memory is used up.
#define LINEWISE_FULL 7

// The domain belongs to the parent process.
#define LINEWISE_FORKED 8

// The system refused a thread, a CPU or memory.
#define LINEWISE_SYSTEM 9

// A defect of the library: it panicked.
#define LINEWISE_INTERNAL 10

// The time was over before the answer was there.
#define LINEWISE_TIMED_OUT 11

// Values in a shard, or spread over all: only the thread that serves a shard touches those in it.
struct linewise_array;

// A thread's way into a domain.
struct linewise_client;

// A domain: shards, and who serves them.
struct linewise_domain;

// A running fibre's way to spawn more.
struct linewise_fibres;

// A thread that linewise_client_start started.
struct linewise_thread;

// Prepares the value at `index`, on the shard's server. Its bytes are zero before, and stay at this
// address until the value ends.
typedef void (*linewise_begin)(void *value, size_t index, void *context);

// Ends a value, on the shard's server; after a shutdown in the thread that closes the last handle. Its
// bytes are freed afterwards.
typedef void (*linewise_end)(void *value);

// Options of an array. Set `size`, `count` and `value_bytes`; zero means the default for all others.
struct linewise_array_options {
    // `sizeof (struct linewise_array_options)`.
    size_t size;
    // The shard that owns the values.
    uint32_t shard;
    // Not 0: the values are spread over all shards, the one at `index` in shard `index % shards`;
    // `shard` is 0 then.
    uint32_t spread;
    // How many values, at least 1.
    size_t count;
    // Bytes of a value, at least 1. Up to 48 lie in a line of their own, aligned to 8; more lie in
    // memory of their own, aligned to 64, on the server's NUMA node.
    size_t value_bytes;
    // Prepares each value; NULL leaves it zero.
    linewise_begin begin;
    // Passed to `begin`.
    void *context;
    // Ends each value; NULL for nothing.
    linewise_end end;
};

// A small operation on a value: it gets the value and an operand, and returns an answer. Runs on the
// shard's server.
typedef uint64_t (*linewise_operation)(void *value, uint64_t operand);

// Gets an answer, in the client's thread: a code, and what the operation returned if that is
// LINEWISE_OK.
typedef void (*linewise_then)(void *context, int32_t code, uint64_t answer);

// Any function of a value: what it needs and what it answers is behind `argument`, which stays with
// the caller, who waits.
typedef void (*linewise_function)(void *value, void *argument);

// A value among others that are used together.
struct linewise_place {
    // Where it is.
    const struct linewise_array *array;
    // Its index there.
    size_t index;
};

// Any function of several values of one shard, whose addresses it gets.
typedef void (*linewise_together)(void *const *values, size_t count, void *argument);

// What a client's thread runs.
typedef void (*linewise_body)(struct linewise_client *client, void *argument);

// What a client did so far.
struct linewise_client_stats {
    // `sizeof (struct linewise_client_stats)`, set by the caller.
    size_t size;
    // Request lines sent.
    uint64_t lines;
    // Requests sent.
    uint64_t requests;
    // Calls on the client's own shard that ran inline.
    uint64_t local;
    // Looks at a line on its way.
    uint64_t polls;
    // Looks that found it answered; divided by `polls`, the responses ready.
    uint64_t ready;
    // Attempts to take a line from a queue for a free request line.
    uint64_t pops;
    // Those that found the queue empty; divided by `pops`, the failed queue pops.
    uint64_t failed_pops;
    // Times that neither a request line nor room in the queue was free.
    uint64_t blocked;
    // Time from the first request of a line to its callbacks, in ticks of the processor's
    // reference clock, summed, if the domain is timed; divided by `latency_lines`, the latency.
    uint64_t latency_ticks;
    // Lines in that sum.
    uint64_t latency_lines;
};

// Options of a domain. Set `size` and `shards`; zero means the default for all others.
struct linewise_domain_options {
    // `sizeof (struct linewise_domain_options)`.
    size_t size;
    // Shards: servers of a dedicated domain, threads of a flat one. 1 to 1024.
    uint32_t shards;
    // `LINEWISE_DEDICATED`, or one of `LINEWISE_FLAT_...`.
    uint32_t policy;
    // For `LINEWISE_FLAT_BOUND`: calls; 256 by default.
    uint32_t bound;
    // Request lines between a client and a shard, 1 to 32; 16 by default.
    uint32_t request_lines;
    // Lines of requests that wait in a client for each shard; twice the request lines by default,
    // `LINEWISE_DIRECT` for none.
    uint32_t pending_lines;
    // `LINEWISE_ORDER_SHARD` or `LINEWISE_ORDER_CLIENT`.
    uint32_t ordered;
    // `LINEWISE_PLACE_GIVEN` or `LINEWISE_PLACE_ROUND_ROBIN`.
    uint32_t placement;
    // Not 0: reads the clock for every line, for the statistics.
    uint32_t timed;
    // CPUs that servers are pinned to in turn; NULL for none.
    const uint32_t *server_cpus;
    // How many.
    size_t server_cpu_count;
    // CPUs that the threads of linewise_client_start are pinned to in turn; NULL for none.
    const uint32_t *client_cpus;
    // How many.
    size_t client_cpu_count;
    // Address space to reserve for each shard, in bytes; 64 GiB by default.
    size_t shard_bytes;
};

// What a shard's server did so far.
struct linewise_shard_stats {
    // `sizeof (struct linewise_shard_stats)`, set by the caller.
    size_t size;
    // Looks at all clients' lines.
    uint64_t passes;
    // Looks that found requests; divided by `passes`, the server's saturation.
    uint64_t busy_passes;
    // Visits to a client's lines that found some.
    uint64_t visits;
    // Request lines answered.
    uint64_t lines;
    // Requests answered.
    uint64_t requests;
    // Time at it, in ticks of the processor's reference clock, if the domain is timed.
    uint64_t busy_ticks;
};

// What a fibre runs. Its handle, for linewise_fibres_spawn, is valid while it runs.
typedef void (*linewise_fibre)(struct linewise_fibres *fibres, void *argument);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes an array of values, and waits until it is made. Not inside a delegated function.
//
// # Safety
// `domain` is a valid handle; `options` points to options; `begin` and `end` may be called by the
// shard's server with what they are promised; `array` points to a place for a handle.
int32_t linewise_array_new(const struct linewise_domain *domain,
                           const struct linewise_array_options *options,
                           struct linewise_array **array);

// How many values an array has; 0 for NULL.
//
// # Safety
// `array` is a valid handle or NULL.
size_t linewise_array_count(const struct linewise_array *array);

// Closes an array: its values end on their server, after all requests that were made before.
//
// # Safety
// `array` is a handle that was not closed, or NULL, and no thread uses it from now on.
int32_t linewise_array_close(struct linewise_array *array);

// Calls `operation` on the value at `index` and waits for its answer. `answer` may be NULL.
//
// # Safety
// The handles are valid; `operation` may be called with such a value by the shard's server.
int32_t linewise_call(struct linewise_client *client,
                      const struct linewise_array *array,
                      size_t index,
                      linewise_operation operation,
                      uint64_t operand,
                      uint64_t *answer);

// Calls `operation` on the value at `index` and waits for its answer, for not longer than so many
// nanoseconds: LINEWISE_TIMED_OUT then, and the operation may have run or may yet. A call on the
// client's own shard runs here and takes as long as it takes. `answer` may be NULL.
//
// # Safety
// As linewise_call.
int32_t linewise_call_timeout(struct linewise_client *client,
                              const struct linewise_array *array,
                              size_t index,
                              linewise_operation operation,
                              uint64_t operand,
                              uint64_t nanoseconds,
                              uint64_t *answer);

// Calls `operation` on the value at `index`; `then` gets its answer in a later call of this client,
// or in this one if the value is in the client's own shard. Up to 63 such requests share a
// line: the fast way.
//
// # Safety
// As linewise_call; `then` may be called with `context` until linewise_barrier or
// linewise_client_close has returned.
int32_t linewise_call_async(struct linewise_client *client,
                            const struct linewise_array *array,
                            size_t index,
                            linewise_operation operation,
                            uint64_t operand,
                            linewise_then then,
                            void *context);

// Calls `operation` on the value at `index`, without an answer.
//
// # Safety
// As linewise_call.
int32_t linewise_call_post(struct linewise_client *client,
                           const struct linewise_array *array,
                           size_t index,
                           linewise_operation operation,
                           uint64_t operand);

// Calls `function` on the value at `index` with `argument`, and waits until it has returned.
//
// # Safety
// The handles are valid; `function` may be called with such a value and `argument` by the shard's
// server while this thread waits.
int32_t linewise_apply(struct linewise_client *client,
                       const struct linewise_array *array,
                       size_t index,
                       linewise_function function,
                       void *argument);

// Calls `function` on the value at `index` with `argument`, which stays as it is until `then` gets the
// code of the outcome, with 0 for an answer: in a later call of this client, or in this one if the
// value is in the client's own shard.
//
// # Safety
// As linewise_apply, until `then` is called; `then` as for linewise_call_async.
int32_t linewise_apply_async(struct linewise_client *client,
                             const struct linewise_array *array,
                             size_t index,
                             linewise_function function,
                             void *argument,
                             linewise_then then,
                             void *context);

// Calls `function` on the value at `index` with `argument`, without an answer.
//
// # Safety
// As linewise_apply, until linewise_barrier or linewise_client_close has returned.
int32_t linewise_apply_post(struct linewise_client *client,
                            const struct linewise_array *array,
                            size_t index,
                            linewise_function function,
                            void *argument);

// Calls `operation` on the values at `count` places of `indexes`, waits for all answers, and writes
// them to `answers` (NULL for none) in that order. 63 requests share a line, and shards work at
// the same time: the fast way to wait. If a place is out of range nothing is called; after another error `answers` is as it was, and some calls may be made.
//
// # Safety
// As linewise_call; `indexes` and `answers` point to `count` places each.
int32_t linewise_call_batch(struct linewise_client *client,
                            const struct linewise_array *array,
                            const size_t *indexes,
                            size_t count,
                            linewise_operation operation,
                            uint64_t operand,
                            uint64_t *answers);

// Calls `function` on the values at `count` places of `indexes`, each with its own of `arguments`, and
// waits until all have returned. Shards work at the same time. If a place is out of range nothing is
// called; after another error some calls may be made.
//
// # Safety
// As linewise_apply, for each argument; `indexes` and `arguments` point to `count` places each.
int32_t linewise_apply_batch(struct linewise_client *client,
                             const struct linewise_array *array,
                             const size_t *indexes,
                             size_t count,
                             linewise_function function,
                             void *const *arguments);

// Calls `function` once with the addresses of the values at `count` places, which live in one shard, and
// with `argument`; waits until it has returned. LINEWISE_ARGUMENT if they live in different shards or
// if one is named twice.
//
// # Safety
// As linewise_apply; `places` points to so many, with valid handles.
int32_t linewise_apply_together(struct linewise_client *client,
                                const struct linewise_place *places,
                                size_t count,
                                linewise_together function,
                                void *argument);

// Calls `function` on the value at `index` with `argument`, and waits until it has returned, from any
// thread: one that has no client because it calls seldom. Slower than linewise_apply.
//
// # Safety
// The handles are valid; `function` may be called with such a value and `argument` by the shard's
// server while this thread waits.
int32_t linewise_domain_apply(const struct linewise_domain *domain,
                              const struct linewise_array *array,
                              size_t index,
                              linewise_function function,
                              void *argument);

// Opens a client for the calling thread; in a flat domain in the first free seat. The thread closes
// it before it ends.
//
// # Safety
// `domain` is a valid handle; `client` points to a place for a handle.
int32_t linewise_client_open(const struct linewise_domain *domain, struct linewise_client **client);

// Opens a client of a flat domain for the calling thread, in the seat of `shard`.
//
// # Safety
// As linewise_client_open.
int32_t linewise_client_open_at(const struct linewise_domain *domain,
                                uint32_t shard,
                                struct linewise_client **client);

// Waits until all requests of a client are answered, and closes it. Not inside a delegated function,
// a callback or a fibre of it, and not for the client that linewise_client_start lends.
//
// # Safety
// `client` is a handle that was not closed, or NULL.
int32_t linewise_client_close(struct linewise_client *client);

// Starts a thread that runs `body` with a client of its own, and afterwards waits until all its
// requests are answered.
//
// # Safety
// `domain` is a valid handle; `body` may be called in another thread with `argument`; `thread`
// points to a place for a handle.
int32_t linewise_client_start(const struct linewise_domain *domain,
                              linewise_body body,
                              void *argument,
                              struct linewise_thread **thread);

// Waits for a thread's end and closes its handle. Returns what went wrong in the thread beside its
// body: no client, or no CPU. Not inside a delegated function, which may be what the thread waits
// for.
//
// # Safety
// `thread` is a handle that was not joined, or NULL.
int32_t linewise_client_join(struct linewise_thread *thread);

// Sends what a client holds, as far as request lines are free. Does not wait.
//
// # Safety
// `client` is a valid handle.
int32_t linewise_flush(struct linewise_client *client);

// Sends what a client holds, runs the callbacks of what has come back, and in a flat domain serves
// once. Does not wait.
//
// # Safety
// `client` is a valid handle.
int32_t linewise_poll(struct linewise_client *client);

// Waits until all requests of a client are answered and their callbacks have run.
//
// # Safety
// `client` is a valid handle.
int32_t linewise_barrier(struct linewise_client *client);

// What a client did so far.
//
// # Safety
// `client` is a valid handle; `stats` points to a structure whose size is set.
int32_t linewise_client_statistics(const struct linewise_client *client,
                                   struct linewise_client_stats *stats);

// Opens a domain, and starts its servers if it is dedicated.
//
// # Safety
// `options` points to options, and to `server_cpu_count` and `client_cpu_count` CPUs if those are
// not 0; `domain` points to a place for a handle.
int32_t linewise_domain_open(const struct linewise_domain_options *options,
                             struct linewise_domain **domain);

// Shuts a domain down: calls are refused from now on, requests on their way are answered, servers
// end. Called again it does nothing. Not inside a delegated function.
//
// # Safety
// `domain` is a valid handle.
int32_t linewise_domain_shutdown(const struct linewise_domain *domain);

// Shuts a domain down and closes it. Clients, their threads and arrays stay valid, and can only be
// closed or joined; values that are left end with the last of them. Not inside a delegated function.
//
// # Safety
// `domain` is a handle that was not closed, or NULL, and no thread uses it from now on.
int32_t linewise_domain_close(struct linewise_domain *domain);

// How many shards a domain has; 0 for NULL.
//
// # Safety
// `domain` is a valid handle or NULL.
uint32_t linewise_domain_shards(const struct linewise_domain *domain);

// What a shard's server did so far.
//
// # Safety
// `domain` is a valid handle; `stats` points to a structure whose size is set.
int32_t linewise_shard_statistics(const struct linewise_domain *domain,
                                  uint32_t shard,
                                  struct linewise_shard_stats *stats);

// The text of the last error of the calling thread; empty if there was none. Valid until the next
// error of this thread, or its end.
const char *linewise_last_error(void);

// Runs `first` as a fibre, and those that it and they spawn, and returns when all have ended. In a
// fibre, linewise_call, linewise_apply and linewise_call_batch let other fibres run until their
// answers are there. A fibre has 256 KiB of stack, and must not close the client.
//
// # Safety
// `client` is a valid handle; the functions may be called in this thread with their arguments until
// this returns. Fibres run between each other's waiting calls and end in any order, so none holds over
// such a call what must nest in a thread: it is not in a catch block of C++, nor between setting a
// thread's variable for a while and setting it back.
int32_t linewise_fibres_run(struct linewise_client *client,
                            linewise_fibre first,
                            void *argument);

// Adds a fibre that runs `body`. It begins when the running fibre waits or ends.
//
// # Safety
// `fibres` is the handle of the running fibre; `body` may be called in this thread with `argument`
// until linewise_fibres_run returns, and holds over its waiting calls what is said there.
int32_t linewise_fibres_spawn(struct linewise_fibres *fibres, linewise_fibre body, void *argument);

#ifdef __cplusplus
} // extern "C"
#endif // __cplusplus

#endif /* LINEWISE_DELEGATE_H */
