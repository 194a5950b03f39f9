// A data symbol of the C library.
//# compile: -fPIC
//# call: same() = 1
#include <stdlib.h>
extern char **environ;
int same(void) { return environ != 0 && environ[0] != 0 && getenv("PATH") != 0; }
