/* Names objects that a program's own pools hand out, for linewise.
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
 * Without linewise each call is a load and a branch. Nothing has to be linked. The name, a constant string
 * of up to 128 bytes, should be that of the type.
 */
#ifndef LINEWISE_H
#define LINEWISE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Defined by the heap recorder where it is loaded, null otherwise. */
extern void linewise_object_begins(const void *object, size_t size, const char *name)
    __attribute__((weak));
extern void linewise_object_ends(const void *object) __attribute__((weak));

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

#endif
