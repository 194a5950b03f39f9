// Two objects that refer to each other in every way; the second has a thread-local variable of its own.
//# with: references_both_ways_other.cc
//# call: sum() = 1245
//# call: set(7) = 28
//# call: through_table(0, 5) = 15
//# call: through_table(1, 5) = 25
//# call: same() = 3
extern "C" {
extern int data_there;
int weak_there(int) __attribute__((weak));
int nowhere(int) __attribute__((weak));
int add_there(int);
int *address_there();
int data_here = 40;
int add_here(int n) { return n + 10; }
int (*const table_here[])(int) = {add_here, add_there};
extern int (*const table_there[2])(int);
extern int numbers_there[2];
int sum() { return add_there(data_there) + weak_there(1) + (nowhere ? 1 : 0) + numbers_there[1]; }
int set(int n) {
    data_there = n;
    data_here = 2 * n;
    int both = *address_there() + data_there + data_here / 2;
    data_there = 200;
    data_here = 40;
    return both;
}
int through_table(int which, int n) { return table_there[which](n); }
int same() {
    return (address_there() == &data_here) + (table_here[0] == table_there[0]) + (table_here[1] == table_there[1]);
}
}
