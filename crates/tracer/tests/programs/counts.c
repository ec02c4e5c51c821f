/* Known numbers of accesses of every kind, each to a variable of its own. */
#if defined(__x86_64__)
static long loaded, stored, added, locked, exchanged;
static long vector[2] __attribute__((aligned(64)));

int main(void) {
    for (int i = 0; i < 30011; i++) {
        long value;
        __asm__ volatile("movq %1, %0" : "=r"(value) : "m"(loaded));
    }
    for (int i = 0; i < 40013; i++) __asm__ volatile("movq %1, %0" : "=m"(stored) : "r"(1L));
    for (int i = 0; i < 10009; i++) __asm__ volatile("incq %0" : "+m"(added));
    for (int i = 0; i < 20011; i++) __asm__ volatile("lock incq %0" : "+m"(locked));
    for (int i = 0; i < 15013; i++) {
        long value = 1;
        __asm__ volatile("xchgq %1, %0" : "+m"(exchanged), "+r"(value));
    }
    for (int i = 0; i < 5003; i++) __asm__ volatile("movaps %0, %%xmm0" : : "m"(vector) : "xmm0");
    return 0;
}
#elif defined(__aarch64__)
static long loaded, stored, added;

int main(void) {
    for (int i = 0; i < 30011; i++) {
        long value;
        __asm__ volatile("ldr %0, %1" : "=r"(value) : "m"(loaded));
    }
    for (int i = 0; i < 40013; i++) __asm__ volatile("str %1, %0" : "=m"(stored) : "r"(1L));
    for (int i = 0; i < 20011; i++)
        __asm__ volatile(".arch armv8.1-a\n ldadd %1, %1, %0" : "+Q"(added) : "r"(1L));
    return 0;
}
#endif
