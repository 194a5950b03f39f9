int pick(int);
int from_other(int x) { return pick(x) + 10; }
int (*address_in_other(void))(int) { return pick; }
