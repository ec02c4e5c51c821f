/* Transfers between accounts on two servers, written as code that waits: each transfer is a fibre, and
 * while one waits for its answer the others go on. The total is checked at the end. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "linewise_delegate.h"

enum { SHARDS = 2, ACCOUNTS = 100, TRANSFERS = 2000, BALANCE = 1000 };

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int32_t code = (call);                                                                     \
        if (code != LINEWISE_OK) {                                                                 \
            fprintf(stderr, "%s: error %d: %s\n", #call, code, linewise_last_error());             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct bank {
    struct linewise_client *client;
    struct linewise_array *accounts;
    size_t begun;
    size_t done;
};

static void begin(void *value, size_t index, void *context)
{
    (void)index;
    *(uint64_t *)value = *(uint64_t *)context;
}

/* Takes up to `amount`, and returns what it took. */
static uint64_t take(void *value, uint64_t amount)
{
    uint64_t *balance = value;
    uint64_t taken = amount < *balance ? amount : *balance;
    *balance -= taken;
    return taken;
}

static uint64_t give(void *value, uint64_t amount)
{
    return *(uint64_t *)value += amount;
}

static uint64_t read_balance(void *value, uint64_t unused)
{
    (void)unused;
    return *(uint64_t *)value;
}

static void transfer(struct linewise_fibres *fibres, void *argument)
{
    (void)fibres;
    struct bank *bank = argument;
    size_t number = bank->begun++;
    uint64_t taken;
    CHECK(linewise_call(bank->client, bank->accounts, number * 7 % ACCOUNTS, take, number % 50, &taken));
    CHECK(linewise_call(bank->client, bank->accounts, number * 13 % ACCOUNTS, give, taken, NULL));
    bank->done++;
}

static void all_transfers(struct linewise_fibres *fibres, void *argument)
{
    for (int i = 0; i < TRANSFERS; i++)
        CHECK(linewise_fibres_spawn(fibres, transfer, argument));
}

int main(void)
{
    struct linewise_domain_options options = {
        .size = sizeof options,
        .shards = SHARDS,
        .placement = LINEWISE_PLACE_ROUND_ROBIN,
    };
    struct linewise_domain *domain;
    CHECK(linewise_domain_open(&options, &domain));

    uint64_t balance = BALANCE;
    struct linewise_array_options accounts = {
        .size = sizeof accounts,
        .spread = 1,
        .count = ACCOUNTS,
        .value_bytes = sizeof(uint64_t),
        .begin = begin,
        .context = &balance,
    };
    struct bank bank = {0};
    CHECK(linewise_array_new(domain, &accounts, &bank.accounts));
    CHECK(linewise_client_open(domain, &bank.client));
    CHECK(linewise_fibres_run(bank.client, all_transfers, &bank));

    /* All balances at once: both servers work at the same time. */
    size_t indexes[ACCOUNTS];
    uint64_t balances[ACCOUNTS], total = 0;
    for (size_t i = 0; i < ACCOUNTS; i++)
        indexes[i] = i;
    CHECK(linewise_call_batch(bank.client, bank.accounts, indexes, ACCOUNTS, read_balance, 0, balances));
    for (size_t i = 0; i < ACCOUNTS; i++)
        total += balances[i];

    CHECK(linewise_client_close(bank.client));
    CHECK(linewise_array_close(bank.accounts));
    CHECK(linewise_domain_close(domain));
    printf("%zu transfers, %" PRIu64 " in all\n", bank.done, total);
    return bank.done == TRANSFERS && total == (uint64_t)ACCOUNTS * BALANCE ? 0 : 1;
}
