// The runtime that two_text.ll and function_pointers.ll import.
void trace(int);
void rt_set_error(void *a, void *b) { (void)a; (void)b; }
int rt_init_once(long *state, int (*f)(int), void (*e)(void *, void *)) {
    *state = 7;
    trace(f(1) == 42 && e == rt_set_error);
    return 0;
}
void rt_unload_once(long *state) { trace((int)*state); }

typedef void saxpy_fn(float, float *, float *, long, long, long, float *, float *, long, long, long);
__attribute__((weak)) int kernel_init(void *state);
static saxpy_fn *kernel;
void runtime_set_error(void *a, void *b) { (void)a; (void)b; }
int runtime_register(void *state, void *f, void *e) { kernel = (saxpy_fn *)f; return state == 0 && e == (void *)runtime_set_error; }
int run_saxpy(void) {
    float x[5] = {1, 2, 3, 4, 5}, y[5] = {-1, -1, -1, -1, -1}, s = 0;
    if (!kernel_init || kernel_init(0) != 1) return -1;
    kernel(2.0f, x, x, 0, 5, 1, y, y, 0, 5, 1);
    for (int i = 0; i < 5; i++) s += y[i];
    return (int)s;
}
