extern int values[3];
int sum(void) { return values[0] + values[1] + values[2]; }
