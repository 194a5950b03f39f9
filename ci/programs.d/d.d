// Module constructors, garbage collection, exceptions, thread-local variables, associative arrays, unit tests.
import core.memory, core.thread, std.algorithm, std.conv, std.range, std.stdio, std.string;

int own;
__gshared int order;
static this() { own = 7; }
shared static this() { order = 1; writeln("constructed"); }
shared static ~this() { writeln("destroyed"); }

class Node { Node next; ubyte[100] load; this(Node n) { next = n; } }

void main(string[] arguments) {
    writeln(arguments.length, " ", own, " ", order);
    Node list;
    foreach (round; 0 .. 50) {
        list = null;
        foreach (i; 0 .. 2000) list = new Node(list);
    }
    GC.collect();
    writeln(iota(1, 11).map!(x => x * x).filter!(x => x % 2).sum, " ", "a,b,c".split(",").retro.join("-"));
    try throw new Exception("thrown");
    catch (Exception e) writeln("caught ", e.msg);
    int[string] counts;
    foreach (word; "one two two three three three".split) counts[word]++;
    foreach (key; counts.keys.sort) writeln(key, " ", counts[key]);
    int seen = -1;
    auto thread = new Thread({ seen = own; own = 9; });
    thread.start();
    thread.join();
    writeln(seen, " ", own, " ", to!string(3.25));
}
