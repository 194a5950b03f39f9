struct Counter {
    int n;
    Counter(int n) : n(n) {}
};
inline thread_local int common = 10;
template <typename T> struct Of { static thread_local T value; };
template <typename T> thread_local T Of<T>::value = T(1);
thread_local Counter constructed(100);
__attribute__((visibility("hidden"))) __thread int elsewhere = 7;
extern "C" int bump() {
    Of<long>::value += 0;
    return ++common;
}
