// Two weak definitions: the first object's is used by both.
//# with: weak_default.c
//# call: which() = 3
//# call: which_seen_from_there() = 3
int which_seen_from_there(void);
__attribute__((weak)) int choice(void) { return 3; }
int which(void) { return choice(); }
