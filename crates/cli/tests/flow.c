/* Packets that go from thread to thread: a producer allocates and fills them; 7 of 10 it hands to a
   consumer, which reads and frees them, the others it looks at once more and drops itself. At the end the
   program prints how many went which way.

   flow SECONDS [keep | many]: `keep` frees nothing; with `many` packets take eight paths through functions
   of their own, of frequencies from 40 to 2 of 100, half of them to the other thread. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct packet {
    long kind;
    long length;
    unsigned char bytes[16];
    long checksum;
    struct packet *next;
};

enum { SLOTS = 16 };

static _Atomic(struct packet *) queue[SLOTS];
static atomic_ulong head, tail;
static atomic_int over;
static long sum;

#define APART __attribute__((noinline))

static APART struct packet *make_packet(unsigned number) {
    struct packet *packet = malloc(sizeof *packet);
    packet->kind = number & 3;
    packet->length = 16;
    return packet;
}

static APART void fill(struct packet *packet, unsigned number) {
    memset(packet->bytes, (int)number, sizeof packet->bytes);
    packet->checksum = packet->kind + number;
}

static APART void hand_over(struct packet *packet) {
    unsigned long at = atomic_load(&head);
    while (at - atomic_load(&tail) >= SLOTS)
        if (atomic_load(&over))
            return;
    packet->next = NULL;
    atomic_store(&queue[at % SLOTS], packet);
    atomic_store(&head, at + 1);
}

static APART void reject(struct packet *packet) {
    sum += packet->checksum;
    packet->kind = -1;
    free(packet);
}

/* Eight ways, each through a function that touches another place. */
#define WAY(number, place)                                                                                   \
    static APART void way_##number(struct packet *packet) { packet->place += number + 1; }
WAY(0, kind)
WAY(1, length)
WAY(2, checksum)
WAY(3, bytes[3])
WAY(4, kind)
WAY(5, length)
WAY(6, checksum)
WAY(7, bytes[11])

static void (*const ways[8])(struct packet *) = {way_0, way_1, way_2, way_3, way_4, way_5, way_6, way_7};
static const unsigned shares[8] = {40, 60, 75, 85, 91, 95, 98, 100};

static APART long check(struct packet *packet) { return packet->checksum + packet->length; }

static APART void consume(struct packet *packet) {
    sum += check(packet);
    packet->kind = 7;
    free(packet);
}

static void *consumer(void *unused) {
    (void)unused;
    for (;;) {
        unsigned long at = atomic_load(&tail);
        if (at == atomic_load(&head)) {
            if (atomic_load(&over))
                return NULL;
            continue;
        }
        struct packet *packet = atomic_load(&queue[at % SLOTS]);
        atomic_store(&tail, at + 1);
        consume(packet);
    }
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    double length = argc > 1 ? atof(argv[1]) : 1;
    int keep = argc > 2 && !strcmp(argv[2], "keep");
    int many = argc > 2 && !strcmp(argv[2], "many");
    pthread_t thread;
    pthread_create(&thread, NULL, consumer, NULL);
    double end = seconds() + length;
    uint64_t random = 88172645463325252ull;
    long handed = 0, rejected = 0;
    volatile unsigned idle;
    for (unsigned number = 0; number % 64 != 0 || seconds() < end; number++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        struct packet *packet = make_packet(number);
        fill(packet, number);
        if (keep) {
            if (number > 20000)
                break;
        } else if (many) {
            unsigned way = 0;
            while ((random >> 20) % 100 >= shares[way])
                way++;
            ways[way](packet);
            if (way % 2) {
                hand_over(packet);
                handed++;
            } else {
                reject(packet);
                rejected++;
            }
        } else if ((random >> 20) % 10 < 7) {
            hand_over(packet);
            handed++;
        } else {
            reject(packet);
            rejected++;
        }
        for (unsigned i = 0; i < 5000; i++)
            idle = i;
    }
    while (keep && seconds() < end)
        ;
    atomic_store(&over, 1);
    pthread_join(thread, NULL);
    printf("%ld %ld\n", handed, rejected);
    return 0;
}
