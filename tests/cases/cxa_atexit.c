//# call: registered() = 0
//# trace: | 30 20 10 11
extern int __cxa_atexit(void (*)(void *), void *, void *);
extern void *__dso_handle __attribute__((visibility("hidden")));
void trace(int);
static void handler(void *value) { trace((int)(long)value); }
static void late(void *value) {
    // A handler registered by a handler still runs.
    trace((int)(long)value);
    __cxa_atexit(handler, (void *)((long)value + 1), &__dso_handle);
}
int registered(void) {
    return __cxa_atexit(late, (void *)10, &__dso_handle) + __cxa_atexit(handler, (void *)20, &__dso_handle) +
           __cxa_atexit(handler, (void *)30, &__dso_handle);
}
