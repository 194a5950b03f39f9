struct Negative { int n; };
extern int cleanups;
struct Cleanup { ~Cleanup() { ++cleanups; } };
template <int N> int check(int n) {
    Cleanup cleanup;
    if (n < 0) throw Negative{n};
    return n + N;
}
inline int first(int n) { Cleanup cleanup; return check<100>(n); }
inline int second(int n) {
    try { return check<100>(n); } catch (int) { return -1; }
}
