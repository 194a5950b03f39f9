__attribute__((weak)) int choice(void) { return 1; }
int which_seen_from_there(void) { return choice(); }
