__attribute__((visibility("hidden"))) int hidden_function(int x) { return x * 2 + 1; }
__attribute__((visibility("hidden"))) int hidden_data = 3;
__attribute__((visibility("protected"))) int protected_data = 2;
