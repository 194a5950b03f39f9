// Hidden symbols are shared by the objects of a library and reached without a GOT.
//# compile: -fPIC
//# with: hidden_other.c
//# call: call_hidden(20) = 41
//# call: read_hidden() = 5
__attribute__((visibility("hidden"))) int hidden_function(int);
extern __attribute__((visibility("hidden"))) int hidden_data;
extern __attribute__((visibility("protected"))) int protected_data;
int call_hidden(int x) { return hidden_function(x); }
int read_hidden(void) { return hidden_data + protected_data; }
