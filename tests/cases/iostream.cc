// Static objects: built before the first call, destroyed in reverse at removal.
//# compile[gcc]: -fno-gnu-unique
//# call: built() = 5
//# call: text() = 1
//# trace: 1 2 | -2 -1
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>
extern "C" void trace(int);
struct Noisy {
    int n;
    std::string name;
    explicit Noisy(int n) : n(n), name(std::string(40, 'x') + std::to_string(n)) { trace(n); }
    ~Noisy() { trace(-n); }
};
static Noisy one(1), two(2);
static std::map<std::string, std::vector<int>> table = {{"a", {1, 2}}, {"b", {3, 4, 5}}};
extern "C" int built() { int n = 0; for (auto &[k, v] : table) n += v.size(); return n; }
extern "C" int text() {
    std::ostringstream s;
    s << "pi " << 3.5 << ' ' << two.name.size();
    std::cout << std::flush;
    return s.str() == "pi 3.5 41";
}
