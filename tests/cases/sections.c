//# call: read_data() = 11
//# call: read_bss() = 0
//# call: write_both() = 25
//# call: read_rodata(3) = 40
int data = 11;
static int hidden_data[3] = {1, 2, 3};
int bss;
static long big_bss[5000];
const int rodata[] = {10, 20, 30, 40};
int read_data(void) { return data; }
int read_bss(void) { return bss + (int)big_bss[4999] + (int)big_bss[0]; }
int write_both(void) { data += 2; bss = 5; big_bss[4999] = 7; hidden_data[1] = 0; return data + bss + (int)big_bss[4999] + hidden_data[1]; }
int read_rodata(int i) { return rodata[i]; }
