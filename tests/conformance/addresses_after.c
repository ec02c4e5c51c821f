// Where blocks lie after calls that make the C library and the loader allocate: how much they take depends on how
// many variables, libraries, keys and handlers there are.
#include "common.h"

#include <dlfcn.h>
#include <iconv.h>
#include <langinfo.h>
#include <locale.h>
#include <netdb.h>
#include <pthread.h>
#include <time.h>
#include <wchar.h>

enum { VARIABLES = 100, KEYS = 40, HANDLERS = 40 };

static void *first;

// Some blocks of many sizes: who took memory for himself has moved them.
static void tell(const char *after) {
    static const size_t sizes[] = {24, 40, 72, 128, 136, 264, 520, 1032, 2056, 5000, 20000};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) blocks[i] = malloc(sizes[i]);
    printf("after %s:", after);
    for (int i = 0; i < COUNT; i++) printf(" %03x %+ld", page_offset(blocks[i]), (char *)blocks[i] - (char *)first);
    printf("\n");
    // Every other one stays, so that what comes later cannot fill the same holes.
    for (int i = 0; i < COUNT; i += 2) free(blocks[i]);
}

static void handler(void) {
}

static void *thread(void *argument) {
    pthread_key_t *keys = argument;
    for (int i = 0; i < KEYS; i++) CHECK(pthread_setspecific(keys[i], keys) == 0);
    volatile int local = 0;
    void *block = malloc(100);
    printf("in a thread: a local at %03x, a block at %03x\n", page_offset(&local), page_offset(block));
    free(block);
    return NULL;
}

int main(void) {
    begin();
    first = malloc(8);
    tell("nothing");
    for (int i = 0; i < VARIABLES; i++) {
        char name[32];
        snprintf(name, sizeof name, "VARIABLE_%d", i);
        CHECK(setenv(name, "its value", 1) == 0);
        if (i % 20 == 0) tell("setenv");
    }
    static char put[] = "PUT=into it";
    CHECK(putenv(put) == 0);
    tell("putenv");
    CHECK(unsetenv("VARIABLE_50") == 0);
    tell("unsetenv");
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL);
    CHECK(library != NULL);
    tell("dlopen of libm for all");
    CHECK(dlopen("libresolv.so.2", RTLD_LAZY | RTLD_GLOBAL) != NULL);
    tell("dlopen of libresolv for all");
    CHECK(dlsym(library, "cos") != NULL);
    CHECK(dlsym(RTLD_DEFAULT, "no_such_function_anywhere") == NULL);
    printf("%s\n", dlerror());
    tell("dlerror");
    CHECK(dlopen("libnosuchlibrary.so", RTLD_NOW) == NULL);
    printf("%s\n", dlerror());
    tell("a failed dlopen");
    CHECK(dlclose(library) == 0);
    tell("dlclose");
    pthread_key_t keys[KEYS];
    for (int i = 0; i < KEYS; i++) {
        CHECK(pthread_key_create(&keys[i], NULL) == 0);
        CHECK(pthread_setspecific(keys[i], keys) == 0);
    }
    printf("the last key is %u\n", keys[KEYS - 1]);
    tell("40 keys");
    for (int i = 0; i < HANDLERS; i++) CHECK(atexit(handler) == 0);
    tell("40 handlers");
    struct addrinfo *found = NULL;
    int code = getaddrinfo("127.0.0.1", "80", NULL, &found);
    printf("getaddrinfo: %d\n", code);
    if (found) freeaddrinfo(found);
    tell("getaddrinfo of a number");
    found = NULL;
    code = getaddrinfo("localhost", NULL, NULL, &found);
    printf("getaddrinfo: %d\n", code);
    if (found) freeaddrinfo(found);
    tell("getaddrinfo of a name");
    iconv_t converter = iconv_open("UTF-16", "ISO-8859-15");
    printf("iconv: %s\n", converter == (iconv_t)-1 ? "none" : "opened");
    tell("iconv_open");
    if (converter != (iconv_t)-1) iconv_close(converter);
    printf("locale: %s\n", setlocale(LC_ALL, "C.UTF-8") ? nl_langinfo(CODESET) : "none");
    tell("setlocale");
    wchar_t wide[32];
    printf("wide: %zu\n", mbstowcs(wide, "\xc3\xa4\xe2\x82\xac", 32));
    tell("mbstowcs");
    time_t then = 86400;
    printf("local hour %d\n", localtime(&then)->tm_hour);
    tell("localtime");
    FILE *file = fopen("/dev/null", "w");
    CHECK(file != NULL);
    fprintf(file, "%f %s", 0.1, "buffered");
    tell("fopen");
    fclose(file);
    FILE *pipe = popen("exit 0", "r");
    CHECK(pipe != NULL && pclose(pipe) == 0);
    tell("popen");
    pthread_t other;
    CHECK(pthread_create(&other, NULL, thread, keys) == 0);
    pthread_join(other, NULL);
    tell("a thread");
    return DONE;
}
