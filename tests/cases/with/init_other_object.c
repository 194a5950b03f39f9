void trace(int);
__attribute__((constructor(200))) static void a(void) { trace(2); }
__attribute__((constructor(300))) static void b(void) { trace(4); }
__attribute__((constructor)) static void c(void) { trace(6); }
__attribute__((destructor(200))) static void x(void) { trace(-2); }
__attribute__((destructor(300))) static void y(void) { trace(-4); }
__attribute__((destructor)) static void z(void) { trace(-6); }
