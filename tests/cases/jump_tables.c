//# call: choose(0) = 10
//# call: choose(5) = 97
//# call: choose(9) = 3
//# call: choose(10) = -1
//# call: interpret() = 28
int choose(int n) {
    switch (n) {
    case 0: return 10; case 1: return 31; case 2: return 5; case 3: return 7; case 4: return 90;
    case 5: return 97; case 6: return 12; case 7: return 44; case 8: return 61; case 9: return 3;
    }
    return -1;
}
static const unsigned char program[] = {0, 0, 1, 2, 0, 1, 3};
int interpret(void) {
    static const void *const ops[] = {&&inc, &&twice, &&add, &&end};
    const unsigned char *pc = program;
    int v = 1;
    goto *ops[*pc++];
inc: v += 1; goto *ops[*pc++];
twice: v *= 2; goto *ops[*pc++];
add: v += 7; goto *ops[*pc++];
end: return v;
}
