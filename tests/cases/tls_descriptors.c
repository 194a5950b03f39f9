// Variables found through descriptors, in dynamic and in static storage; calls through descriptors leave all other
// registers alone.
//# arch: x86_64 (where descriptors are asked for; on AArch64 they are the default, and every other case has them)
//# compile: -mtls-dialect=gnu2 -ftls-model=global-dynamic
//# with: tls_other.c
//# call: vectors() = 1906
//# call: next() = 52
//# call: own(3) = 20
//# call: many(1, 2, 3, 4) = 1234
extern __thread int elsewhere;
static __thread int here = 7;
__thread int a, b, c, d;
int next(void) { return ++elsewhere; }
int own(int x) { return here += x; }
int many(int p, int q, int r, int s) {
    a += 1000 * p;
    b += 100 * q;
    c += 10 * r;
    d += s;
    return a + b + c + d;
}
__attribute__((noinline)) static double one(double x) { return x; }
int vectors(void) {
    // Sums that live in vector registers while descriptors are called; the first call of a thread has its block made,
    // which changes such registers.
    double s = one(1), t = one(2), u = one(3);
    for (int i = 0; i < 10; i++) {
        here += 1;
        s += i * t;
        t += u;
        elsewhere += 1;
        u += 1;
    }
    return (int)(s + t + u);
}
