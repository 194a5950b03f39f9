//# call: ready() = 1
//# trace: 101 102 500 1000 1001 | -1001 -1000 -500 -102 -101
void trace(int);
static int done;
__attribute__((constructor)) static void plain(void) { trace(1000); }
__attribute__((constructor(500))) static void late(void) { trace(500); }
__attribute__((constructor(101))) static void first(void) { trace(101); }
__attribute__((constructor)) static void plain_again(void) { trace(1001); done = 1; }
__attribute__((constructor(102))) static void second(void) { trace(102); }
__attribute__((destructor)) static void end_plain(void) { trace(-1000); }
__attribute__((destructor(500))) static void end_late(void) { trace(-500); }
__attribute__((destructor(101))) static void end_first(void) { trace(-101); }
__attribute__((destructor)) static void end_plain_again(void) { trace(-1001); }
__attribute__((destructor(102))) static void end_second(void) { trace(-102); }
int ready(void) { return done; }
