//# compile: -g -gz=zlib
//# call: f(3) = 12
struct point { int x, y; };
static int sum(struct point p) { return p.x + p.y; }
int f(int x) { struct point p = {x, x * 3}; return sum(p); }
