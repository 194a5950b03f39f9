// One instance of what both objects define. (What gcc makes STB_GNU_UNIQUE is in comdat_unique.cc.)
//# compile[gcc]: -fno-gnu-unique
//# with: comdat_other.cc
//# call: count_here() = 1
//# call: count_there() = 2
//# call: count_here() = 3
//# call: same_address() = 1
inline int counter() { static int n; return ++n; }
inline int inline_variable = 5;
template <typename T> struct Holder { static T value; };
template <typename T> T Holder<T>::value = 7;
extern "C" int count_there();
extern "C" int *variable_there();
extern "C" int *holder_there();
extern "C" int count_here() { return counter(); }
extern "C" int same_address() { return variable_there() == &inline_variable && holder_there() == &Holder<int>::value; }
