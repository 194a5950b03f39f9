// D without its runtime: templates, functions evaluated by the compiler, structs with destructors, thread-local variables, C's library.
import core.stdc.stdio, core.stdc.stdlib;

int own = 7;
__gshared int shared_by_all = 1;

struct List(T) {
    private T* items;
    private size_t length, room;
    void put(T item) {
        if (length == room) items = cast(T*) realloc(items, (room = room ? room * 2 : 4) * T.sizeof);
        items[length++] = item;
    }
    auto opSlice() { return items[0 .. length]; }
    ~this() { printf("%zu items\n", length); free(items); }
}

int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
enum table = () { int[10] t; foreach (i, ref v; t) v = fib(cast(int) i); return t; }();

extern (C) int compare(const void* a, const void* b) { return *cast(int*) a - *cast(int*) b; }

extern (C) int main(int argc, char** argv) {
    List!int numbers;
    foreach (i; 0 .. 1000) numbers.put((i * 7919) % 1000);
    auto all = numbers[];
    qsort(all.ptr, all.length, int.sizeof, &compare);
    foreach (i, n; all) if (n != i) return 1;
    own += argc;
    printf("%d %d %d %d\n", own, shared_by_all, table[9], all[$ - 1]);
    foreach (word; ["one", "two"]) printf("%.*s\n", cast(int) word.length, word.ptr);
    return 0;
}
