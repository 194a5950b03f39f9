__attribute__((visibility("hidden"))) __thread int first = 100;
__attribute__((visibility("hidden"))) __thread int second = 15;
