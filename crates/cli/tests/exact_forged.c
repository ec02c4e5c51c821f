/* A program under `--source exact` that finds the memory which the tracer shares with linewise and writes into it what
   never happened, for as many milliseconds as the second word says. The first word:
   images    processes that begin and end at once
   future    accesses that are yet to come
   nonsense  whatever comes
   The numbers are those of crates/tracer/src/region. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#ifndef RINGS_USED
#define RINGS_USED 72
#endif
enum { RINGS = 4096, RING_HEADER = 384, TABLES = 1024, TURN = 256, FORGED = 50 };
static const uint64_t RINGS_OFFSET = 4096 + (1 << 20), WORDS = 1 << 17;

static char *shared(void) {
    FILE *maps = fopen("/proc/thread-self/maps", "r");
    char line[512];
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "/memfd:linewise ") || strstr(line, "/memfd:linewise\n"))
            return (char *)strtoull(line, 0, 16);
    return 0;
}

static uint64_t milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static char *base;
#define WORD64(ring, offset) (*(volatile uint64_t *)(base + RINGS_OFFSET + (ring) * RING_HEADER + (offset)))
#define WORD32(ring, offset) (*(volatile uint32_t *)(base + RINGS_OFFSET + (ring) * RING_HEADER + (offset)))
enum { HEAD = 0, TAIL = 128, STATE = 256, KIND = 260, PID = 264, TID = 268, IMAGE = 272, PARENT = 276, OPENED = 280 };

static void opened(unsigned ring, unsigned kind, unsigned image) {
    WORD32(ring, KIND) = kind;
    /* Of nobody, or the rings of this process would be taken for those of a program that it replaced. */
    WORD32(ring, PID) = kind ? 1 << 23 | image : (uint32_t)getpid();
    WORD32(ring, TID) = WORD32(ring, PID);
    WORD32(ring, IMAGE) = image;
    WORD32(ring, PARENT) = 0;
    WORD64(ring, HEAD) = 0;
    WORD64(ring, TAIL) = 0;
    WORD64(ring, OPENED) = __rdtsc();
    WORD32(ring, STATE) = 2;
}

static uint64_t random_word = 88172645463325252u;

static uint64_t any(void) {
    random_word ^= random_word << 13;
    random_word ^= random_word >> 7;
    return random_word ^= random_word << 17;
}

static volatile uint64_t *words;
static uint64_t head;

static void put(uint64_t word) {
    words[head++ & (WORDS - 1)] = word;
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    uint64_t end = milliseconds() + (count > 2 ? strtoull(arguments[2], 0, 10) : 100);
    base = shared();
    if (!base || memcmp(base, "linewise", 8)) {
        printf("not found\n");
        return 9;
    }
    uint64_t data = (RINGS_OFFSET + RINGS * RING_HEADER + TABLES * 12 + 4095) / 4096 * 4096;
    data += RINGS * TURN;
    words = (volatile uint64_t *)(base + data + FORGED * WORDS * 8);
    /* Nobody claimed that ring, so that it may not be written to yet. */
    if (mprotect((void *)words, WORDS * 8, PROT_READ | PROT_WRITE) != 0) {
        printf("no ring\n");
        return 9;
    }
    *(volatile uint32_t *)(base + RINGS_USED) = RINGS;
    if (!strcmp(what, "images")) {
        for (unsigned image = 1000; milliseconds() < end;)
            for (unsigned ring = 100; ring < RINGS; ring++) {
                if (WORD32(ring, STATE) != 0) continue;
                opened(ring, 1, image++);
                WORD32(ring, STATE) = 3;
            }
        printf("done\n");
        return 4;
    }
    opened(FORGED, 0, 0);
    for (uint64_t number = 1; milliseconds() < end;) {
        uint64_t room = WORDS - (head - WORD64(FORGED, TAIL));
        if (room > WORDS) head = WORD64(FORGED, TAIL), room = WORDS;
        for (; room > 16; room = room > 16 ? room - 16 : 0, number++) {
            if (!strcmp(what, "future")) {
                put(13);
                put(__rdtsc() + ((uint64_t)1 << 40));
                for (int i = 0; i < 14; i++) put((number * 14 + i) << 22 | 7);
            } else {
                for (int i = 0; i < 16; i++) put(any());
            }
        }
        WORD64(FORGED, HEAD) = head;
    }
    printf("done\n");
    return 4;
}
