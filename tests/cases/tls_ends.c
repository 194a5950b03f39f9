// Ends of thread-local sections: behind the last variable, and not where the next section begins.
//# compile: -ftls-model=initial-exec
//# call: size() = 4
//# call: size_of_empty() = 0
//# call: second() = 7
int before = 1; // So that the sections touch each other where they are linked, but not in a thread's block.
__asm__(".section .tdata.a, \"awT\", %progbits\n.balign 4\n.globl a, end_a\n.type a, %tls_object\n.type end_a, %tls_object\n"
        "a: .long 5\nend_a:\n"
        ".section .tdata.b, \"awT\", %progbits\n.balign 8\n.globl b\n.type b, %tls_object\nb: .long 7\n"
        ".section .tbss.c, \"awT\", %nobits\n.globl c, end_c\n.type c, %tls_object\n.type end_c, %tls_object\nc:\nend_c:\n"
        ".text\n");
extern __thread char a[], end_a[], c[], end_c[];
extern __thread int b;
int size(void) { return end_a - a; }
int size_of_empty(void) { return end_c - c; }
int second(void) { return b; }
