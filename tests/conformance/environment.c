// What a program is given: its arguments, its environment, what the kernel tells it beside them, and its names.
#include "common.h"

#include <elf.h>
#include <sys/auxv.h>

extern char **environ;

#define NUMBER(type) printf(#type " %lu\n", getauxval(type))
#define PLACE(type) printf(#type " %03lx\n", getauxval(type) & 0xfff)
#define TEXT(type) printf(#type " %s\n", getauxval(type) ? (const char *)getauxval(type) : "none")

int main(int count, char **arguments, char **environment) {
    begin();
    for (int i = 0; i < count; i++) printf("argument %d: %s\n", i, arguments[i]);
    printf("the end of the arguments: %d\n", arguments[count] == NULL);
    int variables = 0;
    for (char **variable = environ; *variable; variable++, variables++) printf("variable: %s\n", *variable);
    printf("%d variables, main's own: %d\n", variables, environment == environ);
    static const char *const names[] = {"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "GLIBC_TUNABLES", "QEMU_PLUGIN"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        printf("getenv %s: %s, secure: %s\n", names[i], value ? value : "none",
               secure_getenv(names[i]) ? secure_getenv(names[i]) : "none");
    }
    for (char **variable = environ; *variable; variable++)
        if (strcasestr(*variable, "linewise") && !strstr(*variable, "conformance")) printf("not ours: %s\n", *variable);
    // Strings lie one after the other, with nothing between them.
    char *end = arguments[0];
    for (int i = 0; i < count; i++) {
        printf("argument %d at %+ld\n", i, arguments[i] - end);
        end = arguments[i] + strlen(arguments[i]) + 1;
    }
    // Before the first variable (under QEMU), behind the last, and where one is that the user has for the linker, too, lies
    // what nobody sees.
    for (int i = 0; i < variables; i++) {
        int has_own = getenv("LD_PRELOAD") != NULL;
        if (i && !has_own) printf("variable %d at %+ld\n", i, environ[i] - end);
        end = environ[i] + strlen(environ[i]) + 1;
    }
    NUMBER(AT_PAGESZ);
    NUMBER(AT_CLKTCK);
    NUMBER(AT_PHENT);
    NUMBER(AT_PHNUM);
    NUMBER(AT_FLAGS);
    NUMBER(AT_UID);
    NUMBER(AT_EUID);
    NUMBER(AT_GID);
    NUMBER(AT_EGID);
    NUMBER(AT_SECURE);
    NUMBER(AT_HWCAP);
    NUMBER(AT_HWCAP2);
    NUMBER(AT_MINSIGSTKSZ);
    PLACE(AT_BASE);
    PLACE(AT_ENTRY);
    PLACE(AT_PHDR);
    TEXT(AT_EXECFN);
    TEXT(AT_PLATFORM);
    TEXT(AT_BASE_PLATFORM);
    printf("names: %s, %s\n", program_invocation_name, program_invocation_short_name);
    char link[4096];
    ssize_t length = readlink("/proc/self/exe", link, sizeof link - 1);
    CHECK(length > 0);
    link[length] = 0;
    printf("program: %s\n", link);
    char name[64] = "";
    FILE *file = fopen("/proc/self/comm", "r");
    CHECK(file && fgets(name, sizeof name, file));
    fclose(file);
    printf("thread's name: %s", name);
    // An own environment of nothing.
    CHECK(clearenv() == 0);
    printf("after clearenv: %s\n", getenv("PATH") ? getenv("PATH") : "none");
    CHECK(setenv("ONE", "1", 1) == 0);
    variables = 0;
    for (char **variable = environ; variable && *variable; variable++, variables++) printf("variable: %s\n", *variable);
    printf("%d variables\n", variables);
    return DONE;
}
