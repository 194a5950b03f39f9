asm(".tls_common common_count, 4, 4\n.tls_common common_wide, 256, 64");
extern __thread int common_count;
extern __thread char common_wide[256];
__thread int common_strong = 5;
int *other_count(void) { return &common_count; }
long other_wide(void) { return (long)common_wide; }
