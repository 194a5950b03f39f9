//# compile: -ffunction-sections -fdata-sections
//# call: all() = 21
static int one_data = 1; int two_data = 2; const int three_data = 3; static int zero;
int f1(void) { return one_data; }
int f2(void) { return two_data; }
int f3(void) { return three_data + zero; }
static __attribute__((noinline)) int f4(void) { return 4; }
static __attribute__((noinline)) int f5(void) { return 5; }
__attribute__((noinline)) int f6(void) { return 6; }
int all(void) { return f1() + f2() + f3() + f4() + f5() + f6(); }
