//# call: present() = 0
//# call: also_by_data() = 0
//# call: libc_is_found() = 1
__attribute__((weak)) int nowhere_defined(int);
__attribute__((weak)) extern int nowhere_data;
__attribute__((weak)) int abs(int);
int (*volatile pointer)(int) = nowhere_defined;
int present(void) { return nowhere_defined ? nowhere_defined(1) : 0; }
int also_by_data(void) { return (pointer != 0) + (&nowhere_data != 0); }
int libc_is_found(void) { return abs ? abs(-1) : 0; }
