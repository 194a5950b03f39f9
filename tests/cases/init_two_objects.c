// Priorities are those of all objects that are linked together; what has the same is initialised in the order of the
// objects.
//# with: init_other_object.c
//# call: ready() = 1
//# trace: 1 2 3 4 5 6 | -6 -5 -4 -3 -2 -1
void trace(int);
static int done;
__attribute__((constructor(200))) static void a(void) { trace(1); }
__attribute__((constructor(300))) static void b(void) { trace(3); }
__attribute__((constructor)) static void c(void) { trace(5); done = 1; }
__attribute__((destructor(200))) static void x(void) { trace(-1); }
__attribute__((destructor(300))) static void y(void) { trace(-3); }
__attribute__((destructor)) static void z(void) { trace(-5); }
int ready(void) { return done; }
