extern char __dso_handle __attribute__((visibility("hidden")));
char *other_handle(void) { return &__dso_handle; }
