//# with: exceptions_thrower.cc
//# call: catch_from_there(6) = 42
//# call: catch_class() = 77
struct Problem { virtual ~Problem() {} int code; explicit Problem(int c) : code(c) {} };
extern "C" int thrower(int n);
void class_thrower();
extern "C" int catch_from_there(int n) { try { return thrower(n); } catch (int e) { return e; } }
extern "C" int catch_class() { try { class_thrower(); } catch (const Problem &p) { return p.code; } return -1; }
