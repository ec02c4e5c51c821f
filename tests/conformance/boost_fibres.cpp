// Fibres of boost.context: protected stacks, pooled ones, exceptions on them, and fibres that move between threads.
#include "common.h"

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ctx = boost::context;

static unsigned long sum;

static ctx::fiber body(ctx::fiber &&caller, int number) {
    std::vector<std::unique_ptr<std::string>> kept;
    for (int round = 0; round < 30; round++) {
        kept.push_back(std::make_unique<std::string>(static_cast<size_t>(40 + number + round), 'x'));
        sum += churn(20);
        try {
            if (round % 5 == 0) throw std::runtime_error("on a fibre");
        } catch (const std::exception &error) {
            sum += strlen(error.what());
        }
        caller = std::move(caller).resume();
    }
    for (auto &text : kept) sum += text->size();
    return std::move(caller);
}

template <class Stack> static void with(const char *name, Stack stack) {
    std::vector<ctx::fiber> fibres;
    for (int i = 0; i < 32; i++)
        fibres.emplace_back(std::allocator_arg, stack, [i](ctx::fiber &&caller) { return body(std::move(caller), i); });
    for (int round = 0; round < 31; round++)
        for (auto &fibre : fibres)
            if (fibre) fibre = std::move(fibre).resume();
    int left = 0;
    for (auto &fibre : fibres) left += static_cast<bool>(fibre);
    std::printf("%s: %d left, sum %lu\n", name, left, sum);
}

int main() {
    begin();
    with("protected", ctx::protected_fixedsize_stack(32 << 10));
    with("fixed", ctx::fixedsize_stack(32 << 10));
    with("pooled", ctx::pooled_fixedsize_stack(32 << 10));
    ctx::fiber moving(std::allocator_arg, ctx::protected_fixedsize_stack(64 << 10),
                      [](ctx::fiber &&caller) { return body(std::move(caller), 7); });
    for (int i = 0; i < 31; i++) std::thread([&moving] { moving = std::move(moving).resume(); }).join();
    std::printf("moved through 31 threads: %d, sum %lu\n", static_cast<bool>(moving), sum);
    return DONE;
}
