/* For linewise: names objects that a program's own pools hand out, and marks what threads work for.
 *
 * linewise names memory from malloc by where it was allocated. Of a pool it sees only the large block that
 * the pool asked for. A pool that calls these where it hands out and takes back objects gives each of them
 * a name, bounds and an allocation stack of its own:
 *
 *     void *session = pool_take(&pool);
 *     LINEWISE_OBJECT(session, sizeof(struct session), "struct session");
 *     ...
 *     LINEWISE_OBJECT_END(session);
 *     pool_give_back(&pool, session);
 *
 * A thread that says for whom it works, and at which step of the work it is, has its samples told apart by
 * that. A thread for each connection says it once, an event loop at each switch of connections:
 *
 *     LINEWISE_SESSION(connection->id, "connection");
 *     LINEWISE_PHASE("parse");
 *     ...
 *     LINEWISE_PHASE("reply");
 *     ...
 *     LINEWISE_PHASE_END();
 *     LINEWISE_SESSION_END();
 *
 * A thread is in one session and one phase at a time: the next begins where another was not ended.
 *
 * Without linewise each call is a load and a branch. Nothing has to be linked. A name is a string of up to
 * 128 bytes, what is longer is cut off. That of an object should be that of its type, those of sessions and
 * phases should be few.
 */
#ifndef LINEWISE_H
#define LINEWISE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Defined by the heap recorder where it is loaded, null otherwise. */
extern void linewise_object_begins(const void *object, size_t size, const char *name)
    __attribute__((weak));
extern void linewise_object_ends(const void *object) __attribute__((weak));
extern void linewise_session_begins(uint64_t id, const char *name)
    __attribute__((weak));
extern void linewise_session_ends(void) __attribute__((weak));
extern void linewise_phase_begins(const char *name) __attribute__((weak));
extern void linewise_phase_ends(void) __attribute__((weak));

#ifdef __cplusplus
}
#endif

/* An object of `size` bytes begins at `object`. */
#define LINEWISE_OBJECT(object, size, name)                                    \
    ((void)(linewise_object_begins                                             \
                ? (linewise_object_begins((object), (size), (name)), 0)        \
                : 0))

/* The object at `object` ends; its memory stays the pool's. */
#define LINEWISE_OBJECT_END(object)                                            \
    ((void)(linewise_object_ends ? (linewise_object_ends((object)), 0) : 0))

/* From now on this thread works for session `id`. */
#define LINEWISE_SESSION(id, name)                                             \
    ((void)(linewise_session_begins                                            \
                ? (linewise_session_begins((id), (name)), 0)                   \
                : 0))

/* From now on this thread works for no session. */
#define LINEWISE_SESSION_END()                                                 \
    ((void)(linewise_session_ends ? (linewise_session_ends(), 0) : 0))

/* From now on this thread is in this phase. */
#define LINEWISE_PHASE(name)                                                   \
    ((void)(linewise_phase_begins ? (linewise_phase_begins((name)), 0) : 0))

/* From now on this thread is in no phase. */
#define LINEWISE_PHASE_END()                                                   \
    ((void)(linewise_phase_ends ? (linewise_phase_ends(), 0) : 0))

#endif
