// All objects of a library see one handle.
//# with: dso_handle_other.c
//# call: same() = 1
extern char __dso_handle __attribute__((visibility("hidden")));
char *other_handle(void);
int same(void) { return other_handle() == &__dso_handle; }
