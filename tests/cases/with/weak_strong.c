int choice(void) { return 2; }
int which_seen_from_there(void) { return choice(); }
