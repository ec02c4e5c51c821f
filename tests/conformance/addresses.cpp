// Where 10,000 blocks of operator new lie, alone, in containers, in threads, and while exceptions fly.
#include "common.h"

#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Wide {
    alignas(128) char bytes[200];
};

struct Node {
    long value;
    std::string name;
};

static thread_local const char *last;

static void tell(const char *what, int number, const void *block) {
    const char *here = static_cast<const char *>(block);
    long from_last = last ? static_cast<long>(here - last) : 0L;
    // How far heaps are from mappings and stacks is random.
    if (std::labs(from_last) >> 24)
        std::printf("%s %d %03x far\n", what, number, page_offset(block));
    else
        std::printf("%s %d %03x %+ld\n", what, number, page_offset(block), from_last);
    last = here;
}

static void blocks(const char *where, int count) {
    std::vector<std::unique_ptr<Node>> nodes;
    std::vector<std::unique_ptr<Wide>> wide;
    std::vector<std::unique_ptr<char[]>> arrays;
    for (int i = 0; i < count; i++) {
        switch (i % 4) {
        case 0:
            nodes.push_back(std::make_unique<Node>(Node{i, std::string(static_cast<size_t>(i % 60), 'x')}));
            tell(where, i, nodes.back().get());
            tell(where, i, nodes.back()->name.data());
            break;
        case 1:
            wide.push_back(std::make_unique<Wide>());
            tell(where, i, wide.back().get());
            break;
        default:
            arrays.push_back(std::unique_ptr<char[]>(new (std::nothrow) char[1 + i * 31 % 900]));
            tell(where, i, arrays.back().get());
            if (i % 6 == 3) arrays[arrays.size() / 2].reset();
        }
    }
    tell(where, -1, nodes.data());
    tell(where, -2, arrays.data());
}

// With an argument stacks are left out, which lie anywhere unless randomization is off.
int main(int count, char **) {
    int local = 0;
    begin();
    bool stacks_too = count == 1;
    if (stacks_too) std::printf("a local of main at %03x\n", page_offset(&local));
    tell("first", 0, new int);
    blocks("new", 10000);
    std::map<int, std::string> tree;
    for (int i = 0; i < 1000; i++) {
        auto at = tree.emplace(i * 37 % 1000, "a string that is too long to lie inside").first;
        tell("tree", i, &*at);
    }
    for (int i = 0; i < 100; i++) {
        try {
            if (i % 2) throw std::runtime_error("thrown");
            throw i;
        } catch (const std::exception &error) {
            tell("error", i, &error);
        } catch (int &number) {
            tell("number", i, &number);
        }
    }
    for (int i = 0; i < 4; i++) {
        std::thread([i, stacks_too] {
            int own = 0;
            if (stacks_too) std::printf("thread %d: a local at %03x\n", i, page_offset(&own));
            blocks("thread", 2500);
        }).join();
    }
    return DONE;
}
