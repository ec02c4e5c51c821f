// What the programs of this folder share. Each prints what it checked and ends with DONE; where the machine lacks
// what it needs it says so and ends with SKIPPED.
#ifndef CONFORMANCE_COMMON_H
#define CONFORMANCE_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DONE = 23, SKIPPED = 77 };

// Waits until whoever runs us says go: by a byte on the standard input, or by its end.
static inline void begin(void) {
    char byte;
    while (read(0, &byte, 1) < 0 && errno == EINTR) {
    }
}

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            printf("line %d: %s does not hold, errno %d\n", __LINE__, #condition, errno); \
            fflush(stdout);                                                                \
            _exit(1);                                                                      \
        }                                                                                  \
    } while (0)

#define SKIP(...)            \
    do {                     \
        printf("SKIP: ");    \
        printf(__VA_ARGS__); \
        printf("\n");        \
        fflush(stdout);      \
        _exit(SKIPPED);      \
    } while (0)

// An address within its page.
static inline unsigned page_offset(const volatile void *address) {
    return (unsigned)((uintptr_t)address & 0xfff);
}

// Allocates, grows, shrinks and frees `count` blocks of many sizes; the sum of what was read back from them.
static inline unsigned long churn(unsigned count) {
    enum { KEPT = 64 };
    unsigned char *kept[KEPT];
    unsigned long sum = 0;
    memset(kept, 0, sizeof kept);
    for (unsigned i = 0; i < count; i++) {
        unsigned at = i % KEPT;
        size_t size = 16 + (size_t)i * 37 % 3000;
        if (kept[at] && i % 3 == 0) {
            kept[at] = (unsigned char *)realloc(kept[at], size);
        } else {
            if (kept[at]) sum += kept[at][0];
            free(kept[at]);
            kept[at] = (unsigned char *)(i % 5 ? malloc(size) : calloc(1, size));
        }
        if (!kept[at]) return 0;
        memset(kept[at], (int)(i & 0xff), size);
    }
    for (unsigned at = 0; at < KEPT; at++) {
        if (kept[at]) sum += kept[at][0];
        free(kept[at]);
    }
    return sum;
}

#endif
