// gcc marks an inline function's static STB_GNU_UNIQUE: one instance in the library. (For dlopen one in the process, so no counting.)
//# tools: gcc
//# with: comdat_unique_other.cc
//# call: same_address() = 1
inline int *instance() { static int n = 5; return &n; }
extern "C" int *instance_there();
extern "C" int same_address() { return instance_there() == instance() && *instance() == 5; }
