/* The host's half of a kernel: what a compiler that targets NVIDIA's devices puts into an object. It carries the device's code and calls
   the driver, whose functions it declares itself: no header or library of CUDA's is needed. */
#include <stddef.h>

typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;

extern int cuModuleLoadData(CUmodule *module, const void *image);
extern int cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
extern int cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                          unsigned block_z, unsigned shared_bytes, CUstream stream, void **arguments, void **extra);
extern int cuStreamCreate(CUstream *stream, unsigned flags);

/* PTX is a string. */
__asm__(".section .rodata.ptx, \"a\"\n"
        "ptx:\n"
        ".incbin \"saxpy.ptx\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char ptx[] __attribute__((visibility("hidden")));

static CUmodule module;
static CUfunction function;

/* Once, with a context current. Returns the driver's code, as the others. */
int saxpy_load(void) {
    int code = cuModuleLoadData(&module, ptx);
    return code ? code : cuModuleGetFunction(&function, module, "saxpy");
}

/* Whoever takes it unloads it. */
CUmodule saxpy_module(void) { return module; }

/* A stream that does not wait for the default one. */
int saxpy_stream(CUstream *stream) { return cuStreamCreate(stream, 1); }

/* y = a x + y, so many times, one after the other. */
int saxpy(CUstream stream, float a, CUdeviceptr x, CUdeviceptr y, unsigned n, unsigned times) {
    void *arguments[] = {&x, &y, &a, &n};
    int code = 0;
    for (unsigned i = 0; i < times && code == 0; i++)
        code = cuLaunchKernel(function, n / 256 + (n % 256 != 0), 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
    return code;
}
