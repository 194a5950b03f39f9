inline int *instance() { static int n = 5; return &n; }
extern "C" int *instance_there() { return instance(); }
