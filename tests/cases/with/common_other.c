int shared[16];
int counter;
int initialised_there = 8;
int *other_shared(void) { return shared; }
int other_sum(void) { int s = 0; for (int i = 0; i < 16; i++) s += shared[i]; return s; }
void other_count(void) { counter++; }
