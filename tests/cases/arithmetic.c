//# call: add(1, 2) = 3
//# call: mix(7, -3) = 20
//# call: wide(3) = 9
int add(int a, int b) { return a + b; }
int mix(int a, int b) { return a * 5 / 2 - (b << 1) + (a % b) - (a ^ b) - (b >> 1) - 12; }
int wide(int a) { unsigned long long x = 0x123456789abcdef0ull * (unsigned)a; return (int)(x / 0x123456789abcdef0ull * a) ; }
