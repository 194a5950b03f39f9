//# compile: -fPIC -fno-plt
//# call: length() = 4
#include <string.h>
#include <stdlib.h>
volatile const char *text = "slab";
int length(void) { return abs(-(int)strlen((const char *)text)); }
