//# libs: libgcc_s.so.1
//# call: divide() = 1234
typedef unsigned __int128 u128;
volatile u128 big = (u128)1234 << 100, small = (u128)1 << 100;
int divide(void) { return (int)(big / small); }
