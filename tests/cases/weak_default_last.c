//# with: weak_default.c
//# call: which() = 2
//# call: which_seen_from_there() = 2
int which_seen_from_there(void);
int choice(void) { return 2; }
int which(void) { return choice(); }
