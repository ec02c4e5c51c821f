// A target for tests of the heap recorder: every form of operator new and delete, in two threads, with memory that
// there is not in between. Says how many blocks are left and their bytes, and how many there were.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <sys/mman.h>
#include <thread>

// All sizes leave 5 when divided by 8: unlike those of the libraries' own blocks.
static const std::size_t SLOTS = 256, FORMS = 8;
struct Block { std::size_t size; std::size_t form; };
static std::atomic<Block *> slots[SLOTS];
static std::atomic<long> made, refused;
// An allocator that was built as C ends the program where there is no memory.
static bool throws;
static const std::align_val_t ALIGNED{64};

__attribute__((noinline)) static Block *make_block(std::size_t size, std::size_t form) {
    void *block = nullptr;
    switch (form) {
    case 0: block = ::operator new(size); break;
    case 1: block = ::operator new[](size); break;
    case 2: block = ::operator new(size, std::nothrow); break;
    case 3: block = ::operator new[](size, std::nothrow); break;
    case 4: block = ::operator new(size, ALIGNED); break;
    case 5: block = ::operator new[](size, ALIGNED); break;
    case 6: block = ::operator new(size, ALIGNED, std::nothrow); break;
    case 7: block = ::operator new[](size, ALIGNED, std::nothrow); break;
    default: block = std::malloc(size);
    }
    if (!block || (form / 4 == 1 && reinterpret_cast<std::size_t>(block) % 64)) std::abort();
    made++;
    return new (block) Block{size, form};
}

static void end_block(Block *block, unsigned how) {
    if (!block) return;
    std::size_t size = block->size;
    void *bytes = block;
    switch (block->form) {
    case 0: case 2:
        if (how % 3 == 0) ::operator delete(bytes);
        else if (how % 3 == 1) ::operator delete(bytes, size);
        else ::operator delete(bytes, std::nothrow);
        break;
    case 1: case 3:
        if (how % 3 == 0) ::operator delete[](bytes);
        else if (how % 3 == 1) ::operator delete[](bytes, size);
        else ::operator delete[](bytes, std::nothrow);
        break;
    case 4: case 6:
        if (how % 3 == 0) ::operator delete(bytes, ALIGNED);
        else if (how % 3 == 1) ::operator delete(bytes, size, ALIGNED);
        else ::operator delete(bytes, ALIGNED, std::nothrow);
        break;
    case 5: case 7:
        if (how % 3 == 0) ::operator delete[](bytes, ALIGNED);
        else if (how % 3 == 1) ::operator delete[](bytes, size, ALIGNED);
        else ::operator delete[](bytes, ALIGNED, std::nothrow);
        break;
    default: std::free(bytes);
    }
}

// An allocation that fails, in a frame with something to destroy on the way out.
struct Destroyed { ~Destroyed() { refused++; } };
static void ask_too_much(unsigned how) {
    Destroyed destroyed;
    volatile std::size_t much = std::size_t(1) << 62;
    bool thrown = false;
    try {
        if (how % 2) end_block(static_cast<Block *>(::operator new(much)), 0);
        else end_block(static_cast<Block *>(::operator new[](much, ALIGNED)), 0);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    if (!thrown || ::operator new(much, std::nothrow)) std::abort();
}

static void churn(unsigned seed) {
    auto next = [&seed] { return (seed = seed * 1664525 + 1013904223) >> 8; };
    for (int round = 0; round < 4000; round++) {
        Block *block = next() % 3 ? make_block(21 + next() % 75 * 8, next() % (FORMS + 1)) : nullptr;
        end_block(slots[next() % SLOTS].exchange(block), next());
        if (throws && round % 16 == 0) ask_too_much(next());
    }
}

// Frees what was kept for this, once.
static void *reserve;
static void give_way() {
    if (!reserve) throw std::bad_alloc();
    std::free(reserve);
    reserve = nullptr;
}

int main(int count_of_arguments, char **) {
    throws = count_of_arguments == 1;
    std::thread one(churn, 1), two(churn, 2);
    one.join();
    two.join();
    std::set_new_handler(give_way);
    reserve = std::malloc(4093);
    made++;
    if (throws) ask_too_much(1);
    else give_way();
    if (reserve || refused.load() != (throws ? 501 : 0)) std::abort();
    // Memory that the program maps by itself after all that.
    if (mmap(nullptr, 77 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) std::abort();
    std::size_t count = 0, bytes = 0;
    for (auto &slot : slots)
        if (Block *block = slot) count++, bytes += block->size;
    std::printf("%zu %zu %ld\n", count, bytes, made.load());
    return 0;
}
