//# tools: clang-22
//# compile: -fPIC -g -Wa,--crel,--allow-experimental-crel
//# linker: clang-22 -fuse-ld=lld
//# call: caught() = 9
//# trace: 1 | -1
extern "C" void trace(int);
struct Noisy { Noisy() { trace(1); } ~Noisy() { trace(-1); } };
static Noisy noisy;
extern "C" int caught() { try { throw 9; } catch (int e) { return e; } }
