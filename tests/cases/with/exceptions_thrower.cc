struct Problem { virtual ~Problem() {} int code; explicit Problem(int c) : code(c) {} };
extern "C" int thrower(int n) { throw n * 7; }
void class_thrower() { throw Problem(77); }
