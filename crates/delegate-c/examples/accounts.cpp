// Bank accounts with histories, owned by one server: C++ values, made and destroyed there. Errors are
// codes with a text, also those of a use that is wrong.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "linewise_delegate.h"

namespace {

struct Account {
    std::string owner;
    std::vector<std::int64_t> history;
    std::int64_t balance = 0;
};
static_assert(sizeof(Account) > 48, "lies in memory of its own");

void check(std::int32_t code, const char *what)
{
    if (code != LINEWISE_OK) {
        std::fprintf(stderr, "%s: error %d: %s\n", what, code, linewise_last_error());
        std::exit(1);
    }
}

void expect(std::int32_t code, std::int32_t wanted, const char *what)
{
    if (code != wanted || linewise_last_error()[0] == '\0') {
        std::fprintf(stderr, "%s: code %d instead of %d\n", what, code, wanted);
        std::exit(1);
    }
}

// Handles that close themselves.
struct Close {
    void operator()(linewise_domain *domain) const { check(linewise_domain_close(domain), "close"); }
    void operator()(linewise_client *client) const { check(linewise_client_close(client), "close"); }
    void operator()(linewise_array *array) const { check(linewise_array_close(array), "close"); }
};
template <typename T> using Handle = std::unique_ptr<T, Close>;

int live = 0; // touched by the server alone

Handle<linewise_domain> open_domain()
{
    linewise_domain_options options{};
    options.size = sizeof options;
    options.shards = 1;
    linewise_domain *domain = nullptr;
    check(linewise_domain_open(&options, &domain), "open");
    return Handle<linewise_domain>(domain);
}

Handle<linewise_client> open_client(const Handle<linewise_domain> &domain)
{
    linewise_client *client = nullptr;
    check(linewise_client_open(domain.get(), &client), "client");
    return Handle<linewise_client>(client);
}

// Any callable of one account, by its address: the caller waits for it.
template <typename F>
void apply(const Handle<linewise_client> &client, const Handle<linewise_array> &accounts,
           std::size_t index, F function)
{
    auto run = [](void *value, void *argument) {
        (*static_cast<F *>(argument))(*static_cast<Account *>(value));
    };
    check(linewise_apply(client.get(), accounts.get(), index, run, &function), "apply");
}

} // namespace

int main()
{
    auto domain = open_domain();
    linewise_array_options options{};
    options.size = sizeof options;
    options.count = 8;
    options.value_bytes = sizeof(Account);
    options.begin = [](void *value, std::size_t index, void *) {
        new (value) Account{"owner " + std::to_string(index), {}, 0};
        live += 1;
    };
    options.end = [](void *value) {
        static_cast<Account *>(value)->~Account();
        live -= 1;
    };
    linewise_array *made = nullptr;
    check(linewise_array_new(domain.get(), &options, &made), "array");
    Handle<linewise_array> accounts(made);

    std::vector<std::thread> threads;
    for (int number = 0; number < 3; number++) {
        threads.emplace_back([&] {
            auto client = open_client(domain);
            for (std::int64_t amount = 1; amount <= 1000; amount++)
                apply(client, accounts, static_cast<std::size_t>(amount % 8), [=](Account &account) {
                    account.balance += amount;
                    account.history.push_back(amount);
                });
        });
    }
    for (auto &thread : threads)
        thread.join();

    auto client = open_client(domain);
    std::int64_t total = 0;
    std::size_t entries = 0;
    for (std::size_t index = 0; index < linewise_array_count(accounts.get()); index++)
        apply(client, accounts, index, [&](Account &account) {
            total += account.balance;
            entries += account.history.size();
        });
    std::printf("%lld in %zu entries\n", static_cast<long long>(total), entries);

    // What is wrong is refused, and says why.
    auto nothing = [](void *, std::uint64_t) -> std::uint64_t { return 0; };
    expect(linewise_call(client.get(), accounts.get(), 8, nothing, 0, nullptr), LINEWISE_ARGUMENT,
           "an index out of range");
    expect(linewise_call(nullptr, accounts.get(), 0, nothing, 0, nullptr), LINEWISE_ARGUMENT,
           "no client");
    expect(linewise_call(client.get(), accounts.get(), 0, nullptr, 0, nullptr), LINEWISE_ARGUMENT,
           "no operation");
    std::int32_t elsewhere = LINEWISE_OK;
    std::thread([&] { elsewhere = linewise_flush(client.get()); }).join();
    if (elsewhere != LINEWISE_THREAD)
        return 1;
    // Inside a delegated function nobody waits for the domain that runs it.
    struct Nested {
        linewise_domain *domain;
        std::int32_t code;
    } nested{domain.get(), LINEWISE_OK};
    auto nest = [](void *, void *argument) {
        auto *own = static_cast<Nested *>(argument);
        linewise_client *inner = nullptr;
        own->code = linewise_client_open(own->domain, &inner);
    };
    check(linewise_apply(client.get(), accounts.get(), 0, nest, &nested), "apply");
    if (nested.code != LINEWISE_NESTED)
        return 1;
    auto other = open_domain();
    auto stranger = open_client(other);
    expect(linewise_call(stranger.get(), accounts.get(), 0, nothing, 0, nullptr), LINEWISE_FOREIGN,
           "values of another domain");

    accounts.reset();
    client.reset();
    check(linewise_domain_close(domain.release()), "close");
    if (live != 0)
        return 1;
    return total == 3 * 500500 && entries == 3000 ? 0 : 1;
}
