// Variables of the object's own, found through __tls_get_addr: general and local dynamic.
//# call: next() = 6
//# call: next() = 7
//# call: sum() = 12
//# call: zero(3) = 3
//# call: zero(4) = 7
//# call: aligned() = 0
//# call: text() = 104
__thread int counter = 5;
static __thread long a = 2, b = 3;
static __thread int none[1000];
__thread char wide[3] __attribute__((aligned(256))) = "hi";
int next(void) { return ++counter; }
int sum(void) { return (int)(a + b) + counter; }
int zero(int x) { return none[999] += x; }
int aligned(void) { return (int)((unsigned long)wide % 256); }
int text(void) { return wide[0]; }
