void trace(int);
__attribute__((constructor)) static void last(void) { trace(12); }
__attribute__((constructor(102))) static void early(void) { trace(2); }
__attribute__((constructor(301))) static void late(void) { trace(9); }
__attribute__((destructor)) static void end_last(void) { trace(-12); }
__attribute__((destructor(102))) static void end_early(void) { trace(-2); }
__attribute__((destructor(301))) static void end_late(void) { trace(-9); }
