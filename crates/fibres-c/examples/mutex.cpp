// A bounded buffer of C++ with a lock and two conditions, used by fibres and a thread. The handles close themselves,
// and a fibre's body is any callable.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "linewise_fibres.h"

namespace {

void check(std::int32_t code, const char *what)
{
    if (code != LINEWISE_FIBRES_OK) {
        std::fprintf(stderr, "%s: error %d: %s\n", what, code, linewise_fibres_last_error());
        std::exit(1);
    }
}

struct Close {
    void operator()(linewise_fibres_runtime *it) const { check(linewise_fibres_close(it), "close"); }
    void operator()(linewise_fibres_pool *it) const { check(linewise_fibres_pool_close(it), "close"); }
    void operator()(linewise_fibres_mutex *it) const { check(linewise_fibres_mutex_close(it), "close"); }
    void operator()(linewise_fibres_condition *it) const { check(linewise_fibres_condition_close(it), "close"); }
};
template <typename T> using Handle = std::unique_ptr<T, Close>;

// What a function of the header makes.
template <typename T> Handle<T> made(std::int32_t (*make)(T **))
{
    T *handle = nullptr;
    check(make(&handle), "make");
    return Handle<T>(handle);
}

// Locks for a block, as std::lock_guard does; a destructor may unlock, as that never waits.
class Locked {
public:
    explicit Locked(const Handle<linewise_fibres_mutex> &mutex) : mutex(mutex.get())
    {
        check(linewise_fibres_mutex_lock(this->mutex), "lock");
    }
    ~Locked() { check(linewise_fibres_mutex_unlock(mutex), "unlock"); }
    Locked(const Locked &) = delete;
    Locked &operator=(const Locked &) = delete;

    template <typename Condition>
    void wait(const Handle<linewise_fibres_condition> &changed, Condition condition)
    {
        while (!condition())
            check(linewise_fibres_condition_wait(changed.get(), mutex, UINT64_MAX), "wait");
    }

private:
    linewise_fibres_mutex *mutex;
};

class Buffer {
public:
    void put(std::string text)
    {
        Locked locked(mutex);
        locked.wait(taken, [this] { return texts.size() < 8; });
        texts.push_back(std::move(text));
        check(linewise_fibres_condition_notify_one(filled.get()), "notify");
    }
    std::string take()
    {
        Locked locked(mutex);
        locked.wait(filled, [this] { return !texts.empty(); });
        std::string text = std::move(texts.front());
        texts.pop_front();
        check(linewise_fibres_condition_notify_one(taken.get()), "notify");
        return text;
    }

private:
    Handle<linewise_fibres_mutex> mutex = made(linewise_fibres_mutex_open);
    Handle<linewise_fibres_condition> filled = made(linewise_fibres_condition_open);
    Handle<linewise_fibres_condition> taken = made(linewise_fibres_condition_open);
    std::deque<std::string> texts;
};

using Body = std::function<void()>;

linewise_fibres_handle *spawn(const Handle<linewise_fibres_pool> &pool, Body body)
{
    auto run = [](void *argument) -> void * {
        std::unique_ptr<Body> body(static_cast<Body *>(argument));
        (*body)();
        return nullptr;
    };
    linewise_fibres_handle *handle = nullptr;
    auto owned = std::make_unique<Body>(std::move(body));
    check(linewise_fibres_pool_spawn(pool.get(), nullptr, run, owned.get(), &handle), "spawn");
    owned.release();
    return handle;
}

} // namespace

int main()
{
    linewise_fibres_builder *builder = nullptr;
    check(linewise_fibres_builder_open(&builder), "builder");
    check(linewise_fibres_builder_pool(builder, "workers", 2), "pool");
    linewise_fibres_runtime *started = nullptr;
    check(linewise_fibres_start(builder, &started), "start");
    Handle<linewise_fibres_runtime> runtime(started);
    linewise_fibres_pool *found = nullptr;
    check(linewise_fibres_runtime_pool(runtime.get(), "workers", &found), "pool");
    Handle<linewise_fibres_pool> pool(found);

    constexpr int EACH = 1000;
    Buffer buffer;
    std::vector<linewise_fibres_handle *> handles;
    for (int writer = 0; writer < 10; writer++)
        handles.push_back(spawn(pool, [&buffer, writer] {
            for (int i = 0; i < EACH; i++)
                buffer.put("writer " + std::to_string(writer) + " wrote " + std::to_string(i));
        }));
    std::size_t letters[2] = {0, 0};
    auto read = [&buffer](std::size_t *count) {
        for (int i = 0; i < 5 * EACH; i++)
            *count += buffer.take().size();
    };
    handles.push_back(spawn(pool, [&read, &letters] { read(&letters[0]); }));
    std::thread thread([&read, &letters] { read(&letters[1]); });
    for (auto *handle : handles)
        check(linewise_fibres_join(handle, nullptr), "join");
    thread.join();
    std::printf("%zu letters\n", letters[0] + letters[1]);
    // "writer W wrote I": 15 letters beside the digits of I.
    return letters[0] + letters[1] == 10 * (1000 * 15 + 10 + 90 * 2 + 900 * 3) ? 0 : 1;
}
