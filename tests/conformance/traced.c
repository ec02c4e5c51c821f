// Whether the process is traced, as programs ask that want no debugger.
#include "common.h"

int main(void) {
    begin();
    char line[512];
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "TracerPid:", 10) == 0) printf("traced: %d\n", atoi(line + 10) != 0);
    fclose(file);
    printf("%lu\n", churn(1000));
    return DONE;
}
