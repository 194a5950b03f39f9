// C++: a variable that two objects define (COMDAT), one with a constructor in another object, one that is weak and one that is hidden.
//# compile[gcc]: -fno-gnu-unique
//# with: tls_two_objects_other.cc
//# compile[gcc]: -fno-gnu-unique
//# call: both() = 12
//# call: both() = 14
//# call: made() = 101
//# call: made() = 102
//# call: hidden() = 8
struct Counter {
    int n;
    Counter(int n) : n(n) {}
};
inline thread_local int common = 10;
template <typename T> struct Of { static thread_local T value; };
template <typename T> thread_local T Of<T>::value = T(1);
extern thread_local Counter constructed;
extern __thread int elsewhere __attribute__((visibility("hidden")));
extern "C" int bump();
extern "C" int both() {
    int theirs = bump();
    return ++common == theirs + 1 ? theirs + Of<long>::value : -1;
}
extern "C" int made() { return ++constructed.n; }
extern "C" int hidden() { return ++elsewhere; }
