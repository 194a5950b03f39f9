// The weak definition is in the first object, the strong one in the second: the strong one wins for both.
//# with: weak_strong.c
//# call: which() = 2
//# call: which_seen_from_there() = 2
int which_seen_from_there(void);
__attribute__((weak)) int choice(void) { return 1; }
int which(void) { return choice(); }
