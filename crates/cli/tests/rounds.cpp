// Rounds of two threads that count beside each other. What glibc begins threads with stays in the register in which Go keeps its
// goroutine.
#include <atomic>
#include <thread>

static std::atomic<long> parts[2];

int main()
{
    auto part = [](int mine) {
        for (long i = 0; i < 500000; i++)
            parts[mine].fetch_add(1, std::memory_order_relaxed);
    };
    for (int round = 0; round < 160; round++) {
        std::thread one(part, 0), other(part, 1);
        one.join();
        other.join();
    }
    return parts[0] + parts[1] != 160000000;
}
