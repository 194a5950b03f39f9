// Thread-local common variables, which older compilers made of `__thread int x;`: of all objects one.
//# tools: gcc
//# with: tls_common_other.c
//# call: count() = 1
//# call: count() = 2
//# call: same() = 1
//# call: rests() = 0
//# call: strong() = 5
//# call: of_another_thread() = 0
#include <pthread.h>
asm(".tls_common common_count, 4, 4\n.tls_common common_wide, 4, 4");
asm(".tls_common common_strong, 4, 4\n.tls_common common_array, 64, 64");
extern __thread int common_count, common_wide, common_strong;
extern __thread char common_array[64];
int *other_count(void);
long other_wide(void);
int count(void) { return ++common_count; }
int same(void) { return other_count() == &common_count; }
int rests(void) { return ((long)common_array | other_wide()) % 64; }
int strong(void) { return common_strong; }
static void *seen(void *result) {
    *(int *)result = common_count + *other_count();
    return 0;
}
int of_another_thread(void) {
    pthread_t thread;
    int result = -1;
    pthread_create(&thread, 0, seen, &result);
    pthread_join(thread, 0);
    return result;
}
