// Nothing global: no lookup by name reaches this object, yet its initialiser has to run.
//# trace: 77 | -77
void trace(int);
__attribute__((constructor)) static void init(void) { trace(77); }
__attribute__((destructor)) static void fini(void) { trace(-77); }
