//# compile: -fcommon
//# with: common_other.c
//# call: fill() = 16
//# call: other_sum() = 120
//# call: same_counter() = 9
int shared[4];
int counter;
int initialised_there;
int other_sum(void);
int *other_shared(void);
void other_count(void);
int fill(void) {
    for (int i = 0; i < 16; i++) other_shared()[i] = i;
    return other_shared() == shared ? 16 : -1;
}
int same_counter(void) { counter = 4; other_count(); return counter + initialised_there / 2; }
