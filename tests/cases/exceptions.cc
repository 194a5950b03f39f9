//# call: caught(5) = 105
//# call: caught(0) = 1
//# call: destructors_run() = 12
//# call: by_type() = 3
#include <stdexcept>
#include <string>
static int depth(int n) {
    if (n == 0) return 1;
    if (n == 5) throw n + 100;
    return depth(n - 1);
}
extern "C" int caught(int n) {
    try { return depth(n); } catch (int e) { return e; }
}
static int released;
struct Guard { int n; ~Guard() { released += n; } };
static void nested() { Guard a{4}; Guard b{8}; throw std::runtime_error("nested"); }
extern "C" int destructors_run() {
    released = 0;
    try { nested(); } catch (const std::exception &e) { return std::string(e.what()) == "nested" ? released : -1; }
    return -2;
}
struct Base { virtual ~Base() = default; virtual int id() const { return 1; } };
struct Derived : Base { int id() const override { return 3; } };
extern "C" int by_type() {
    try { try { throw Derived(); } catch (const Base &) { throw; } } catch (const Derived &d) { return d.id(); }
    return -1;
}
