// Values that know their own address: each must stay where it was begun, whatever its size. A short
// std::string points into itself, and the ends of a std::list to its head.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>
#include <new>
#include <string>

#include "linewise_delegate.h"

namespace {

void check(std::int32_t code)
{
    if (code != LINEWISE_OK) {
        std::fprintf(stderr, "error %d: %s\n", code, linewise_last_error());
        std::exit(1);
    }
}

// One that says itself whether it was moved.
template <std::size_t BYTES> struct Stays {
    const void *self = this;
    char more[BYTES - sizeof(void *)] = {};
    void append(char letter) { more[0] += self == this ? letter : '?'; }
    ~Stays() { append('.'); if (self != this) std::abort(); }
};

struct Text : std::string {
    void append(char letter) { push_back(letter); }
};

struct List : std::list<char> {
    void append(char letter) { push_back(letter); }
};

template <typename T> std::uint64_t append(void *value, std::uint64_t letter)
{
    static_cast<T *>(value)->append(static_cast<char>(letter));
    return reinterpret_cast<std::uintptr_t>(value);
}

template <typename T> void try_values(linewise_domain *domain, linewise_client *client, std::uint32_t spread)
{
    constexpr std::size_t COUNT = 10;
    const void *begun[COUNT] = {};
    linewise_array_options options{};
    options.size = sizeof options;
    options.count = COUNT;
    options.spread = spread;
    options.value_bytes = sizeof(T);
    options.context = begun;
    options.begin = [](void *value, std::size_t index, void *context) {
        new (value) T{};
        static_cast<const void **>(context)[index] = value;
    };
    options.end = [](void *value) { static_cast<T *>(value)->~T(); };
    linewise_array *array = nullptr;
    check(linewise_array_new(domain, &options, &array));
    for (std::size_t index = 0; index < COUNT; index++)
        for (char letter = 'a'; letter <= 'e'; letter++) {
            std::uint64_t place = 0;
            check(linewise_call(client, array, index, append<T>, static_cast<std::uint64_t>(letter), &place));
            if (place != reinterpret_cast<std::uintptr_t>(begun[index])) {
                std::fprintf(stderr, "a value of %zu bytes was moved\n", sizeof(T));
                std::exit(1);
            }
        }
    check(linewise_array_close(array));
}

} // namespace

int main()
{
    linewise_domain_options options{};
    options.size = sizeof options;
    options.shards = 2;
    linewise_domain *domain = nullptr;
    check(linewise_domain_open(&options, &domain));
    linewise_client *client = nullptr;
    check(linewise_client_open(domain, &client));
    for (std::uint32_t spread = 0; spread < 2; spread++) {
        try_values<Text>(domain, client, spread);
        try_values<List>(domain, client, spread);
        try_values<Stays<16>>(domain, client, spread);
        try_values<Stays<48>>(domain, client, spread);
        try_values<Stays<49>>(domain, client, spread);
        try_values<Stays<1000>>(domain, client, spread);
    }
    check(linewise_client_close(client));
    check(linewise_domain_close(domain));
    std::puts("all stayed");
    return 0;
}
