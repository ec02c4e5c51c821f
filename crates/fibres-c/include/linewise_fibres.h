/* linewise_fibres.h: user threads (fibres) on pools of pinned workers, which can move to where the data is.
 *
 * Made from the Rust sources by `cargo xtask header`; do not edit.
 *
 * Errors: functions return LINEWISE_FIBRES_OK or another code; linewise_fibres_last_error() has the text of
 * the calling fibre's last one, or the calling thread's. Handles: whoever gets one closes it; NULL is an
 * error, but may be closed. Everything may be used by several fibres and threads at once, but closed by
 * one, when no other uses it; a thread that is no worker is blocked where a fibre would wait.
 * Shutting down: a call that has to wait, and each sleep and yield, returns LINEWISE_FIBRES_CANCELLED in a
 * fibre whose runtime shuts down, each time; the fibre cleans up and returns. What need not wait, as a lock
 * that is free, is done as ever.
 * Functions that are passed in must return: no longjmp or pthread_exit may leave them, and an exception of
 * C++ that does ends the process. Between waiting calls fibres of one worker run in any order: what they
 * must not hold there is said at linewise_fibres_start.
 * Threads: a fibre stays on its worker's thread, but where it migrates, visits, or was spawned roaming, and
 * before it begins. `errno` is a variable of the thread: linewise_fibres_last_errno() is the fibre's.
 * After fork() the child has none of the workers: spawning is refused there (LINEWISE_FIBRES_FORKED), a
 * fibre that waits ends the child.
 * Times are in nanoseconds. Linking: -llinewise_fibres, or `pkg-config --cflags --libs linewise-fibres`. */

#ifndef LINEWISE_FIBRES_H
#define LINEWISE_FIBRES_H

#include <stddef.h>
#include <stdint.h>

// All went well.
#define LINEWISE_FIBRES_OK 0

// An argument is null, out of range, or of an unknown version.
#define LINEWISE_FIBRES_ARGUMENT 1

// The runtime is shut down: no new fibres.
#define LINEWISE_FIBRES_SHUTDOWN 3

// A call that waits for a whole runtime, inside a fibre or inside linewise_fibres_blocking of one of its own.
#define LINEWISE_FIBRES_NESTED 4

// The runtime belongs to the parent process.
#define LINEWISE_FIBRES_FORKED 8

// The system refused something; linewise_fibres_last_errno() has its number.
#define LINEWISE_FIBRES_SYSTEM 9

// A defect of the library: it panicked.
#define LINEWISE_FIBRES_INTERNAL 10

// The time was over before.
#define LINEWISE_FIBRES_TIMED_OUT 11

// The runtime of the calling fibre shuts down: it is to clean up and return. Every further call that has to
// wait returns this at once.
#define LINEWISE_FIBRES_CANCELLED 20

// The caller is no fibre.
#define LINEWISE_FIBRES_NO_FIBRE 21

// A function that was passed in, written in Rust, panicked.
#define LINEWISE_FIBRES_PANICKED 22

// The fibre has no value: its runtime was shut down before it began.
#define LINEWISE_FIBRES_NO_VALUE 23

// Nobody sends to the channel any more, and it is empty; or linewise_fibres_channel_finish was called.
#define LINEWISE_FIBRES_CLOSED 24

// It cannot be had without waiting, or is in use.
#define LINEWISE_FIBRES_BUSY 25

// The mutex is not the caller's, or is so already.
#define LINEWISE_FIBRES_OWNER 26

// For linewise_fibres_io_wait: there is something to read or to accept, or the other side has closed.
#define LINEWISE_FIBRES_READABLE 0

// There is room to write, or a connection is made.
#define LINEWISE_FIBRES_WRITABLE 1

// Holds so many fibres or threads until all have come, again and again.
struct linewise_fibres_barrier;

// What a runtime is to be.
struct linewise_fibres_builder;

// A channel of pointers, which any number send to and receive from.
struct linewise_fibres_channel;

// A condition variable.
struct linewise_fibres_condition;

// A fibre, or a thread that is no worker, to be woken by others.
struct linewise_fibres_fibre;

// A file whose calls block the fibre and not its worker. They are waited for even where the caller is
// cancelled.
struct linewise_fibres_file;

// The one who may wait for a fibre and take its value.
struct linewise_fibres_handle;

// A socket, or an end of a pipe, whose calls block the fibre and not its worker. On a thread that is no worker,
// and in a runtime without events, they block the thread.
struct linewise_fibres_io;

// A mutex that blocks the fibre and not its worker. Threads may use it too.
struct linewise_fibres_mutex;

// A pool of a runtime: one worker or more, among which fibres that have not begun are stolen.
struct linewise_fibres_pool;

// Pools of workers, which run fibres.
struct linewise_fibres_runtime;

// What a fibre begins with. Set `size`; zero means the default for all others.
struct linewise_fibres_spawn_options {
    // `sizeof (struct linewise_fibres_spawn_options)`.
    size_t size;
    // A name, for messages and for whoever records; NULL for none.
    const char *name;
    // Bytes of the stack, rounded up to a power of two, 1 GiB at most; 64 KiB by default. C and C++ may
    // need more: what is not used takes no memory.
    size_t stack_bytes;
    // Not 0: idle workers take the fibre wherever it waits. What linewise_fibres_migrate asks of its caller
    // holds then at every call that waits.
    uint64_t roaming;
};

// What a fibre runs, or what is run elsewhere for it. What it returns goes to whoever waits for it.
typedef void *(*linewise_fibres_function)(void *argument);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a channel for `capacity` pointers, at least 1.
//
// # Safety
// `channel` points to a place for a handle.
int32_t linewise_fibres_channel_open(size_t capacity, struct linewise_fibres_channel **channel);

// Sends `value`; waits while there is no room, for so long at most: UINT64_MAX without end, 0 not at all
// (LINEWISE_FIBRES_BUSY).
//
// # Safety
// `channel` is a valid handle.
int32_t linewise_fibres_channel_send(const struct linewise_fibres_channel *channel,
                                     void *value,
                                     uint64_t nanoseconds);

// Receives the oldest pointer; waits while there is none, for so long at most: UINT64_MAX without end, 0 not at
// all (LINEWISE_FIBRES_BUSY). LINEWISE_FIBRES_CLOSED once all is received and nobody sends any more.
//
// # Safety
// `channel` is a valid handle; `value` is NULL or a place for a value.
int32_t linewise_fibres_channel_receive(const struct linewise_fibres_channel *channel,
                                        void **value,
                                        uint64_t nanoseconds);

// Says that no more is sent: later calls that send are refused (LINEWISE_FIBRES_CLOSED), those that wait go
// on, and who receives gets what is left.
//
// # Safety
// `channel` is a valid handle.
int32_t linewise_fibres_channel_finish(const struct linewise_fibres_channel *channel);

// Closes a channel. Pointers that are left in it are lost.
//
// # Safety
// `channel` is a handle that was not closed, or NULL, and nobody uses it from now on or waits there.
int32_t linewise_fibres_channel_close(struct linewise_fibres_channel *channel);

// The text of the last error of the calling fibre, or of the calling thread if it is none; empty if there was
// none. Valid until the next error of the caller, or its end.
const char *linewise_fibres_last_error(void);

// The system's number of that error, as in <errno.h>; 0 if it has none. Unlike `errno` it belongs to the fibre.
int32_t linewise_fibres_last_errno(void);

// Begins a fibre that runs `function`, in `pool`; NULL: in that of the calling fibre. `options` may be NULL.
// If `handle` is not NULL it gets a handle, to be joined or detached; the fibre may run before that is
// written.
//
// # Safety
// `pool` is a valid handle or NULL; `options` is NULL, or points to options; `function` may be called in
// the pool's threads with `argument`, and keeps what linewise_fibres_start asks for; `handle` is NULL or a
// place for a handle.
int32_t linewise_fibres_pool_spawn(const struct linewise_fibres_pool *pool,
                                   const struct linewise_fibres_spawn_options *options,
                                   linewise_fibres_function function,
                                   void *argument,
                                   struct linewise_fibres_handle **handle);

// Waits until a fibre has ended, gets what its function returned (`value` may be NULL), and closes the handle,
// also where there is no value: LINEWISE_FIBRES_PANICKED, LINEWISE_FIBRES_NO_VALUE, LINEWISE_FIBRES_FORKED. The
// handle stays where the caller is cancelled, or asks for itself.
//
// # Safety
// `handle` was neither joined nor detached, and nobody else uses it; `value` is NULL or a place for a value.
int32_t linewise_fibres_join(struct linewise_fibres_handle *handle,
                             void **value);

// Closes a handle, and lets the fibre run on alone.
//
// # Safety
// `handle` was neither joined nor detached, or is NULL.
int32_t linewise_fibres_detach(struct linewise_fibres_handle *handle);

// 1 if a fibre has ended, 0 if it has not or the handle is NULL.
//
// # Safety
// `handle` is a valid handle or NULL.
int32_t linewise_fibres_is_finished(const struct linewise_fibres_handle *handle);

// Lets the other fibres of this worker run; on a thread that is no worker, other threads.
int32_t linewise_fibres_yield(void);

// Waits for at least so long; other fibres run meanwhile.
int32_t linewise_fibres_sleep(uint64_t nanoseconds);

// Waits until linewise_fibres_unpark is called for the caller, or returns at once if it was since the last
// time. May return early.
int32_t linewise_fibres_park(void);

// The same, for so long at most.
int32_t linewise_fibres_park_for(uint64_t nanoseconds);

// 1 if the caller is a fibre, else 0.
int32_t linewise_fibres_is_fibre(void);

// The calling fibre, or the calling thread if it is none; to be woken by linewise_fibres_unpark.
//
// # Safety
// `fibre` points to a place for a handle.
int32_t linewise_fibres_current(struct linewise_fibres_fibre **fibre);

// Lets its linewise_fibres_park return. Nothing happens if it has ended.
//
// # Safety
// `fibre` is a valid handle.
int32_t linewise_fibres_unpark(const struct linewise_fibres_fibre *fibre);

// A fibre's number, unique in the process; 0 for a thread, and for NULL.
//
// # Safety
// `fibre` is a valid handle or NULL.
uint64_t linewise_fibres_id(const struct linewise_fibres_fibre *fibre);

// Its name, valid until the handle is closed; empty if it has none, and for NULL.
//
// # Safety
// `fibre` is a valid handle or NULL.
const char *linewise_fibres_name(const struct linewise_fibres_fibre *fibre);

// Closes a handle of a fibre that may be woken.
//
// # Safety
// `fibre` is a handle that was not closed, or NULL.
int32_t linewise_fibres_fibre_close(struct linewise_fibres_fibre *fibre);

// Runs `function` on a worker of `pool` and comes back, to the same thread, with what it returned (`value` may
// be NULL): the fibre moves there and back, which takes no stack and no memory. In that pool it is a call. On
// a thread that is none of the runtime's workers a fibre of its own runs it, and the caller waits.
//
// The function runs on another thread of the kernel, on the caller's stack: no address of a thread's
// variable goes there, nor the value that `errno` had.
//
// # Safety
// `pool` is a valid handle; `function` may be called in the pool's threads with `argument`, and keeps what
// linewise_fibres_start asks for; `value` is NULL or a place for a value.
int32_t linewise_fibres_visit(const struct linewise_fibres_pool *pool,
                              linewise_fibres_function function,
                              void *argument,
                              void **value);

// Moves the calling fibre, with its stack, to a worker of `pool`, a pool of its own runtime, and goes on there;
// stays where it is if it is in that pool.
//
// # Safety
// `pool` is a valid handle. The fibre goes on in another thread of the kernel. So nothing that it holds
// belongs to its thread: no lock of a thread (pthread_mutex_t, std::mutex), no address of a _Thread_local
// variable. `errno` is one: compilers keep its address within a function, so neither the function that calls
// this, nor one that is inlined into it, uses `errno` or another thread's variable both before and after.
// What the C library declares to be constant, as pthread_self(), is kept even by a caller that calls a function
// which is not inlined: call it through a volatile pointer.
int32_t linewise_fibres_migrate(const struct linewise_fibres_pool *pool);

// Runs `function` on a thread where it may block, and waits for what it returns (`value` may be NULL), even
// where the caller is cancelled. On a thread that is no worker it runs there.
//
// # Safety
// `function` may be called in another thread with `argument`; `value` is NULL or a place for a value.
int32_t linewise_fibres_blocking(linewise_fibres_function function,
                                 void *argument,
                                 void **value);

// Opens a file with the flags and the mode of `open`, and O_CLOEXEC.
//
// # Safety
// `path` is a string; `file` points to a place for a handle.
int32_t linewise_fibres_file_open(const char *path,
                                  int32_t flags,
                                  uint32_t mode,
                                  struct linewise_fibres_file **file);

// Reads up to `count` bytes at `offset`; `done`, which may be NULL, gets how many: 0 at the end.
//
// # Safety
// `file` is a valid handle; `buffer` has room for `count` bytes; `done` is NULL or a place for a number.
int32_t linewise_fibres_file_read_at(const struct linewise_fibres_file *file,
                                     void *buffer,
                                     size_t count,
                                     uint64_t offset,
                                     size_t *done);

// Writes up to `count` bytes at `offset`; `done`, which may be NULL, gets how many.
//
// # Safety
// `file` is a valid handle; `bytes` points to `count` bytes; `done` is NULL or a place for a number.
int32_t linewise_fibres_file_write_at(const struct linewise_fibres_file *file,
                                      const void *bytes,
                                      size_t count,
                                      uint64_t offset,
                                      size_t *done);

// Waits until what was written is on the disk.
//
// # Safety
// `file` is a valid handle.
int32_t linewise_fibres_file_sync(const struct linewise_fibres_file *file);

// Closes a file.
//
// # Safety
// `file` is a handle that was not closed, or NULL, and nobody uses it from now on.
int32_t linewise_fibres_file_close(struct linewise_fibres_file *file);

// Takes a descriptor, and sets it to return at once where it is not ready (O_NONBLOCK), which stays so. If
// `owns` is not 0, it is closed with the handle; else the caller closes it, after the handle. There is one
// handle at a time for a descriptor, for the fibres of one runtime: that in which one first waits for it. Files
// on a disk are not for this: linewise_fibres_file_open.
//
// # Safety
// `io` points to a place for a handle; the descriptor is open until the handle is closed.
int32_t linewise_fibres_io_open(int32_t fd,
                                int32_t owns,
                                struct linewise_fibres_io **io);

// Its descriptor; -1 for NULL.
//
// # Safety
// `io` is a valid handle or NULL.
int32_t linewise_fibres_io_descriptor(const struct linewise_fibres_io *io);

// Reads up to `count` bytes; `done`, which may be NULL, gets how many: 0 if the other side has closed.
//
// # Safety
// `io` is a valid handle; `buffer` has room for `count` bytes; `done` is NULL or a place for a number.
int32_t linewise_fibres_io_read(const struct linewise_fibres_io *io,
                                void *buffer,
                                size_t count,
                                size_t *done);

// Writes up to `count` bytes, at least one of them; `done`, which may be NULL, gets how many. Where the other
// side of a socket is gone this fails (EPIPE), and no signal comes; that of a pipe sends SIGPIPE.
//
// # Safety
// `io` is a valid handle; `bytes` points to `count` bytes; `done` is NULL or a place for a number.
int32_t linewise_fibres_io_write(const struct linewise_fibres_io *io,
                                 const void *bytes,
                                 size_t count,
                                 size_t *done);

// Waits for the next connection to a socket that listens; it owns its descriptor, which is closed in programs
// that are executed.
//
// # Safety
// `io` is a valid handle; `connection` points to a place for a handle.
int32_t linewise_fibres_io_accept(const struct linewise_fibres_io *io,
                                  struct linewise_fibres_io **connection);

// Connects a socket to an address (a struct sockaddr of some kind), and waits until it is connected.
//
// # Safety
// `io` is a valid handle; `address` points to `length` bytes.
int32_t linewise_fibres_io_connect(const struct linewise_fibres_io *io,
                                   const void *address,
                                   size_t length);

// Waits until a descriptor is LINEWISE_FIBRES_READABLE or LINEWISE_FIBRES_WRITABLE, for so long at most
// (UINT64_MAX: without end): for calls that have no function here. They return at once (EAGAIN) where they would
// have to wait, and are made again after this.
//
// # Safety
// `io` is a valid handle.
int32_t linewise_fibres_io_wait(const struct linewise_fibres_io *io,
                                uint32_t readiness,
                                uint64_t nanoseconds);

// Closes a handle, and its descriptor if it owns that.
//
// # Safety
// `io` is a handle that was not closed, or NULL, and nobody uses it from now on or waits for it.
int32_t linewise_fibres_io_close(struct linewise_fibres_io *io);

// A runtime that is to be, as yet without a pool.
//
// # Safety
// `builder` points to a place for a handle.
int32_t linewise_fibres_builder_open(struct linewise_fibres_builder **builder);

// Adds a pool of so many workers, which the kernel places.
//
// # Safety
// `builder` is a valid handle that no other thread uses; `name` is a string.
int32_t linewise_fibres_builder_pool(struct linewise_fibres_builder *builder,
                                     const char *name,
                                     size_t workers);

// Adds a pool with a worker pinned to each of these CPUs.
//
// # Safety
// As linewise_fibres_builder_pool; `cpus` points to `cpu_count` numbers.
int32_t linewise_fibres_builder_pinned_pool(struct linewise_fibres_builder *builder,
                                            const char *name,
                                            const uint32_t *cpus,
                                            size_t cpu_count);

// Lets idle workers take fibres of other pools too, before these begin.
//
// # Safety
// `builder` is a valid handle that no other thread uses.
int32_t linewise_fibres_builder_steal_across_pools(struct linewise_fibres_builder *builder);

// Leaves out what sockets and files need: a socket then blocks its worker.
//
// # Safety
// As linewise_fibres_builder_steal_across_pools.
int32_t linewise_fibres_builder_without_events(struct linewise_fibres_builder *builder);

// How often an idle worker looks around before it sleeps.
//
// # Safety
// As linewise_fibres_builder_steal_across_pools.
int32_t linewise_fibres_builder_looks_before_sleep(struct linewise_fibres_builder *builder,
                                                   uint32_t looks);

// Looks at each move whether the fibre takes along an address of its old thread's variables, and says so
// on the standard error. For tests.
//
// # Safety
// As linewise_fibres_builder_steal_across_pools.
int32_t linewise_fibres_builder_check_moves(struct linewise_fibres_builder *builder);

// Closes a builder that is not to be started.
//
// # Safety
// `builder` is a handle that was neither closed nor started, or NULL.
int32_t linewise_fibres_builder_close(struct linewise_fibres_builder *builder);

// Starts the workers. The builder is closed in every case.
//
// Fibres of one worker run between each other's waiting calls, and end in any order. So no fibre holds over a
// waiting call what is right only while the calls of a thread nest: it is not in a catch block of C++ nor
// in a destructor that an exception runs, nor between setting a thread's variable for a while and setting it
// back, and holds no lock that belongs to its thread (pthread_mutex_t, std::mutex).
//
// # Safety
// `builder` is a handle that was neither closed nor started; `runtime` points to a place for a handle; the
// functions that its fibres run keep what is said above.
int32_t linewise_fibres_start(struct linewise_fibres_builder *builder,
                              struct linewise_fibres_runtime **runtime);

// Waits until every fibre of a runtime has ended. Not in a fibre, nor in linewise_fibres_blocking of one of its
// own (LINEWISE_FIBRES_NESTED).
//
// # Safety
// `runtime` is a valid handle.
int32_t linewise_fibres_wait(const struct linewise_fibres_runtime *runtime);

// Shuts a runtime down: new fibres are refused, the waiting calls of those that run return
// LINEWISE_FIBRES_CANCELLED, those that have not begun never do, and all are waited for: one that neither
// waits nor returns is waited for without end. First it waits for the threads that are in
// linewise_fibres_wait. Called again it does nothing. Not in a fibre, nor in linewise_fibres_blocking of one of its
// own (LINEWISE_FIBRES_NESTED).
//
// # Safety
// `runtime` is a valid handle.
int32_t linewise_fibres_shut_down(const struct linewise_fibres_runtime *runtime);

// Shuts a runtime down, and closes it. Handles of its pools and fibres stay valid, and can be closed or
// joined. Not in a fibre.
//
// # Safety
// `runtime` is a handle that was not closed, or NULL, and no thread uses it from now on.
int32_t linewise_fibres_close(struct linewise_fibres_runtime *runtime);

// The pool of this name.
//
// # Safety
// `runtime` is a valid handle; `name` is a string; `pool` points to a place for a handle.
int32_t linewise_fibres_runtime_pool(const struct linewise_fibres_runtime *runtime,
                                     const char *name,
                                     struct linewise_fibres_pool **pool);

// The pool where the calling fibre runs.
//
// # Safety
// `pool` points to a place for a handle.
int32_t linewise_fibres_pool_here(struct linewise_fibres_pool **pool);

// A pool's name, valid until the handle is closed; empty for NULL.
//
// # Safety
// `pool` is a valid handle or NULL.
const char *linewise_fibres_pool_name(const struct linewise_fibres_pool *pool);

// How many workers a pool has; 0 for NULL.
//
// # Safety
// `pool` is a valid handle or NULL.
size_t linewise_fibres_pool_workers(const struct linewise_fibres_pool *pool);

// Closes a handle of a pool. The pool goes on.
//
// # Safety
// `pool` is a handle that was not closed, or NULL.
int32_t linewise_fibres_pool_close(struct linewise_fibres_pool *pool);

// Makes a mutex.
//
// # Safety
// `mutex` points to a place for a handle.
int32_t linewise_fibres_mutex_open(struct linewise_fibres_mutex **mutex);

// Waits until nobody has a mutex, and takes it. Refused where the caller has it
// (LINEWISE_FIBRES_OWNER); not taken where the caller is cancelled.
//
// # Safety
// `mutex` is a valid handle.
int32_t linewise_fibres_mutex_lock(const struct linewise_fibres_mutex *mutex);

// Takes a mutex if nobody has it, else LINEWISE_FIBRES_BUSY.
//
// # Safety
// `mutex` is a valid handle.
int32_t linewise_fibres_mutex_try_lock(const struct linewise_fibres_mutex *mutex);

// Frees a mutex that the caller has.
//
// # Safety
// `mutex` is a valid handle.
int32_t linewise_fibres_mutex_unlock(const struct linewise_fibres_mutex *mutex);

// Closes a mutex; LINEWISE_FIBRES_BUSY where it is locked.
//
// # Safety
// `mutex` is a handle that was not closed, or NULL, and nobody uses it from now on.
int32_t linewise_fibres_mutex_close(struct linewise_fibres_mutex *mutex);

// Makes a condition that nobody waits for.
//
// # Safety
// `condition` points to a place for a handle.
int32_t linewise_fibres_condition_open(struct linewise_fibres_condition **condition);

// Frees the mutex, waits to be notified, for so long at most (UINT64_MAX: without end), and takes the mutex
// again: the caller has it afterwards whatever is returned, also where it is cancelled or the time was over.
// May return early.
//
// # Safety
// Both are valid handles.
int32_t linewise_fibres_condition_wait(const struct linewise_fibres_condition *condition,
                                       const struct linewise_fibres_mutex *mutex,
                                       uint64_t nanoseconds);

// Wakes one that waits.
//
// # Safety
// `condition` is a valid handle.
int32_t linewise_fibres_condition_notify_one(const struct linewise_fibres_condition *condition);

// Wakes all that wait.
//
// # Safety
// `condition` is a valid handle.
int32_t linewise_fibres_condition_notify_all(const struct linewise_fibres_condition *condition);

// Closes a condition.
//
// # Safety
// `condition` is a handle that was not closed, or NULL, and nobody uses it from now on or waits for it.
int32_t linewise_fibres_condition_close(struct linewise_fibres_condition *condition);

// Makes a barrier for `count`, at least 1.
//
// # Safety
// `barrier` points to a place for a handle.
int32_t linewise_fibres_barrier_open(size_t count, struct linewise_fibres_barrier **barrier);

// Waits until all have come; `leader`, which may be NULL, gets 1 for one of them and 0 for the others. One that
// is cancelled has not come.
//
// # Safety
// `barrier` is a valid handle; `leader` is NULL or a place for a number.
int32_t linewise_fibres_barrier_wait(const struct linewise_fibres_barrier *barrier,
                                     int32_t *leader);

// Closes a barrier.
//
// # Safety
// `barrier` is a handle that was not closed, or NULL, and nobody waits there.
int32_t linewise_fibres_barrier_close(struct linewise_fibres_barrier *barrier);

#ifdef __cplusplus
} // extern "C"
#endif // __cplusplus

#endif /* LINEWISE_FIBRES_H */
