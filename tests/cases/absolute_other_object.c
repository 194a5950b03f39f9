//# compile: -fPIC
//# with: absolute_definitions.s
//# call: small() = 4660
//# call: large() = 1
extern char abs_small, abs_large;
char *volatile table[] = {&abs_small, &abs_large};
int small(void) { return table[0] == &abs_small ? (int)(unsigned long)&abs_small : -1; }
int large(void) { return (unsigned long)&abs_large == 0x123456789abcdef0ul && table[1] == &abs_large; }
