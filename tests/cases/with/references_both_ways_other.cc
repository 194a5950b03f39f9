extern "C" {
extern int data_here;
int add_here(int);
int data_there = 200;
int numbers_there[] = {0, 1000};
static thread_local int own = 20;
int weak_there(int n) { return own + n + add_here(-6); }
int add_there(int n) { return add_here(n) + own / 2; }
int *address_there() { return &data_here; }
extern int (*const table_there[2])(int);
int (*const table_there[2])(int) = {add_here, add_there};
}
