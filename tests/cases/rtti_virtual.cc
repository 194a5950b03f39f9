//# call: virtual_calls() = 42
//# call: dynamic() = 1
#include <memory>
#include <typeinfo>
#include <string>
struct Shape { virtual ~Shape() {} virtual int area() const = 0; };
struct Square : virtual Shape { int s; explicit Square(int s) : s(s) {} int area() const override { return s * s; } };
struct Rect : virtual Shape { int a, b; Rect(int a, int b) : a(a), b(b) {} int area() const override { return a * b; } };
extern "C" int virtual_calls() {
    std::unique_ptr<Shape> p(new Square(6)), q(new Rect(2, 3));
    return p->area() + q->area();
}
extern "C" int dynamic() {
    std::unique_ptr<Shape> p(new Rect(1, 1));
    return dynamic_cast<Rect *>(p.get()) && !dynamic_cast<Square *>(p.get()) && typeid(*p) == typeid(Rect);
}
