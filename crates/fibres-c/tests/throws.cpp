// An exception that leaves a function that was passed in: the process must end there and then, and not go on in a
// state that nobody knows. One that is caught inside is nobody else's business, also where its fibre waits before
// and after.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "linewise_fibres.h"

namespace {

void check(std::int32_t code)
{
    if (code != LINEWISE_FIBRES_OK) {
        std::fprintf(stderr, "error %d: %s\n", code, linewise_fibres_last_error());
        std::exit(1);
    }
}

void *raise_it(void *)
{
    std::puts("throws");
    std::fflush(stdout);
    throw std::runtime_error("on purpose");
}

linewise_fibres_pool *other;

void *visits(void *)
{
    check(linewise_fibres_visit(other, raise_it, nullptr, nullptr));
    return nullptr;
}

void *blocks(void *)
{
    check(linewise_fibres_blocking(raise_it, nullptr, nullptr));
    return nullptr;
}

void *catches(void *argument)
{
    for (int i = 0; i < 100; i++) {
        check(linewise_fibres_yield());
        try {
            throw i;
        } catch (int caught) {
            *static_cast<long *>(argument) += caught;
        }
        check(linewise_fibres_migrate(other));
        try {
            check(linewise_fibres_yield());
            throw std::runtime_error("after a wait");
        } catch (const std::exception &) {
            *static_cast<long *>(argument) += 1;
        }
    }
    return argument;
}

} // namespace

int main(int count, char **arguments)
{
    const char *place = count > 1 ? arguments[1] : "";
    linewise_fibres_builder *builder = nullptr;
    check(linewise_fibres_builder_open(&builder));
    check(linewise_fibres_builder_pool(builder, "one", 1));
    check(linewise_fibres_builder_pool(builder, "other", 1));
    linewise_fibres_runtime *runtime = nullptr;
    check(linewise_fibres_start(builder, &runtime));
    linewise_fibres_pool *one = nullptr;
    check(linewise_fibres_runtime_pool(runtime, "one", &one));
    check(linewise_fibres_runtime_pool(runtime, "other", &other));

    linewise_fibres_handle *handle = nullptr;
    if (std::strcmp(place, "fibre") == 0)
        check(linewise_fibres_pool_spawn(one, nullptr, raise_it, nullptr, &handle));
    if (std::strcmp(place, "visit") == 0)
        check(linewise_fibres_pool_spawn(one, nullptr, visits, nullptr, &handle));
    if (std::strcmp(place, "visit of a thread") == 0)
        check(linewise_fibres_visit(one, raise_it, nullptr, nullptr));
    if (std::strcmp(place, "blocking") == 0)
        check(linewise_fibres_pool_spawn(one, nullptr, blocks, nullptr, &handle));
    if (std::strcmp(place, "blocking of a thread") == 0)
        check(linewise_fibres_blocking(raise_it, nullptr, nullptr));
    if (std::strcmp(place, "nowhere") == 0) {
        constexpr int FIBRES = 20;
        linewise_fibres_handle *handles[FIBRES];
        long sums[FIBRES] = {};
        for (int i = 0; i < FIBRES; i++)
            check(linewise_fibres_pool_spawn(one, nullptr, catches, &sums[i], &handles[i]));
        for (int i = 0; i < FIBRES; i++) {
            check(linewise_fibres_join(handles[i], nullptr));
            if (sums[i] != 4950 + 100)
                return 1;
        }
    }
    if (handle != nullptr)
        check(linewise_fibres_join(handle, nullptr));
    check(linewise_fibres_pool_close(one));
    check(linewise_fibres_pool_close(other));
    check(linewise_fibres_close(runtime));
    std::puts("went on");
    return 0;
}
