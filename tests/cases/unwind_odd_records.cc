// Unwind records whose lengths are no multiples of 4, as in libffi's unix64.o: exceptions pass through them.
//# with: odd_records.c
//# call: caught_through(7) = 49
//# call: caught_through_both(6) = 42
extern "C" int odd_through(int (*)(int), int);
extern "C" int odd_through_too(int (*)(int), int);
struct Guard { int &n; ~Guard() { n *= 7; } };
static int thrower(int n) { throw n; }
static int both(int n) { return odd_through(thrower, n); }
extern "C" int caught_through(int n) {
    int r = n;
    try { Guard guard{r}; odd_through_too(thrower, n); } catch (int e) { return e == n ? r : -1; }
    return -2;
}
extern "C" int caught_through_both(int n) {
    int r = n;
    try { Guard guard{r}; odd_through_too(both, n); } catch (int e) { return e == n ? r : -1; }
    return -2;
}
