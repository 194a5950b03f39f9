//# call: count() = 3
//# call: sum() = 60
__attribute__((used, section("my_set"))) static const int a = 10;
__attribute__((used, section("my_set"))) static const int b = 20;
__attribute__((used, section("my_set"))) static const int c = 30;
extern const int __start_my_set[], __stop_my_set[];
int count(void) { return (int)(__stop_my_set - __start_my_set); }
int sum(void) { int s = 0; for (const int *p = __start_my_set; p != __stop_my_set; p++) s += *p; return s; }
