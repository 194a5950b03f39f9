//# call: next() = 101
//# call: next() = 102
//# call: next() = 103
int next(void) {
    static int counter = 100;
    return ++counter;
}
