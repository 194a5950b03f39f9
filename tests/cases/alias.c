//# call: by_alias(1) = 2
//# call: by_weak_alias(1) = 2
//# call: same() = 1
int original(int x) { return x + 1; }
int by_alias(int) __attribute__((alias("original")));
int by_weak_alias(int) __attribute__((weak, alias("original")));
int same(void) { return (void *)by_alias == (void *)original; }
