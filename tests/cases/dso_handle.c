//# call: has_handle() = 1
//# call: near() = 1
extern char __dso_handle __attribute__((visibility("hidden")));
static char here;
int has_handle(void) { return &__dso_handle != 0; }
int near(void) {
    long d = &__dso_handle - &here;
    return d < 0x7fffffff && d > -0x7fffffff;
}
