/* Sums what a member leads to, three calls deep, for a second of its own time. */
#include <stdlib.h>
#include <time.h>

struct state { long rounds; int *numbers; };

enum { COUNT = 1 << 16 };

__attribute__((noipa)) long sum(const int *values, long count)
{
    long sum = 0;
    for (long at = 0; at < count; at++) sum += values[at * 16 % COUNT];
    return sum;
}

__attribute__((noipa)) long middle(struct state *state, long count)
{
    char room[200];
    __asm__ volatile("" : : "r"(room) : "memory");
    return sum(state->numbers, count) + state->rounds++;
}

__attribute__((noipa)) long outer(struct state *state)
{
    struct timespec now;
    long total = 0;
    do {
        total += middle(state, COUNT) & 1;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while (now.tv_sec < 1);
    return total;
}

int main(void)
{
    struct state state = {0, calloc(COUNT, sizeof(int))};
    return state.numbers && outer(&state) >= 0 ? 0 : 1;
}
