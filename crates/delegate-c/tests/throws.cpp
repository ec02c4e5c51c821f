// An exception that leaves a function that was passed in: the process must end there and then, and not
// go on in a state that nobody knows.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "linewise_delegate.h"

namespace {

[[noreturn]] void raise_it()
{
    std::puts("throws");
    std::fflush(stdout);
    throw std::runtime_error("on purpose");
}

std::uint64_t operation(void *, std::uint64_t throws)
{
    if (throws != 0)
        raise_it();
    return 0;
}

void callback(void *, std::int32_t, std::uint64_t)
{
    raise_it();
}

void body(linewise_client *, void *)
{
    raise_it();
}

void check(std::int32_t code)
{
    if (code != LINEWISE_OK) {
        std::fprintf(stderr, "error %d: %s\n", code, linewise_last_error());
        std::exit(1);
    }
}

} // namespace

int main(int count, char **arguments)
{
    const char *place = count > 1 ? arguments[1] : "";
    linewise_domain_options options{};
    options.size = sizeof options;
    options.shards = 1;
    linewise_domain *domain = nullptr;
    check(linewise_domain_open(&options, &domain));
    linewise_array_options values{};
    values.size = sizeof values;
    values.count = 1;
    values.value_bytes = 8;
    linewise_array *array = nullptr;
    check(linewise_array_new(domain, &values, &array));
    linewise_client *client = nullptr;
    check(linewise_client_open(domain, &client));

    if (std::strcmp(place, "operation") == 0)
        linewise_call(client, array, 0, operation, 1, nullptr);
    if (std::strcmp(place, "callback") == 0) {
        check(linewise_call_async(client, array, 0, operation, 0, callback, nullptr));
        linewise_barrier(client);
    }
    if (std::strcmp(place, "body") == 0) {
        linewise_thread *thread = nullptr;
        check(linewise_client_start(domain, body, nullptr, &thread));
        linewise_client_join(thread);
    }
    std::puts("went on");
    return 0;
}
