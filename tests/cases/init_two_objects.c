// Objects are initialised in the order in which they were added, each with its own priorities, and finalised in reverse.
//# oracle: none (a linker sorts the priorities of all its inputs together; objects that are added one by one cannot be)
//# with: init_other_object.c
//# call: ready() = 1
//# trace: 1 3 5 2 4 6 | -6 -4 -2 -5 -3 -1
void trace(int);
static int done;
__attribute__((constructor(200))) static void a(void) { trace(1); }
__attribute__((constructor(300))) static void b(void) { trace(3); }
__attribute__((constructor)) static void c(void) { trace(5); done = 1; }
__attribute__((destructor(200))) static void x(void) { trace(-1); }
__attribute__((destructor(300))) static void y(void) { trace(-3); }
__attribute__((destructor)) static void z(void) { trace(-5); }
int ready(void) { return done; }
