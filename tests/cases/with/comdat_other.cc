inline int counter() { static int n; return ++n; }
inline int inline_variable = 5;
template <typename T> struct Holder { static T value; };
template <typename T> T Holder<T>::value = 7;
extern "C" int count_there() { return counter(); }
extern "C" int *variable_there() { return &inline_variable; }
extern "C" int *holder_there() { return &Holder<int>::value; }
