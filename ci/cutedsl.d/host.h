/* What every kernel's C file has: the header that CuTe DSL wrote, and its module, loaded and unloaded by functions with addresses. */
#define HOST(kernel)                                                    \
    static kernel##_Kernel_Module_t module;                             \
    void kernel##_load(void) { kernel##_Kernel_Module_Load(&module); }  \
    void kernel##_unload(void) { kernel##_Kernel_Module_Unload(&module); }
