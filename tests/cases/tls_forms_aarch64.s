## arch: aarch64 (relocations of that ABI which compilers do not make)
## tools: gcc
## call: general() = 7
## call: local() = 8
## call: local_pages() = 9
## call: local_load() = 9
## call: descriptor() = 9
.macro begin name
    .globl \name
    .type \name, %function
\name:
    stp x29, x30, [sp, #-16]!
    mov x29, sp
.endm
.macro end_with_next
    ldr w1, [x0]
    add w1, w1, #1
    str w1, [x0]
    mov w0, w1
    ldp x29, x30, [sp], #16
    ret
.endm
    .section .tdata, "awT", %progbits
    .balign 4
    // GNU ld, the only linker that knows these, gives the module's entry the symbol's offset: it is to be 0.
first: .word 1
v:  .word 6
    .text
begin general
    adr x0, :tlsgd:v
    bl __tls_get_addr
    nop
    end_with_next
begin local
    adr x0, :tlsldm:first
    bl __tls_get_addr
    nop
    add x0, x0, #:dtprel_hi12:v, lsl #12
    add x0, x0, #:dtprel_lo12_nc:v
    end_with_next
begin local_pages
    adrp x0, :tlsldm:first
    add x0, x0, #:tlsldm_lo12_nc:first
    bl __tls_get_addr
    nop
    movz x1, #:dtprel_g1:v
    movk x1, #:dtprel_g0_nc:v
    add x0, x0, x1
    end_with_next
begin local_load
    adr x0, :tlsldm:first
    bl __tls_get_addr
    nop
    ldr w0, [x0, #:dtprel_lo12:v]
    ldp x29, x30, [sp], #16
    ret
begin descriptor
    ldr x1, :tlsdesc:v
    adr x0, :tlsdesc:v
    .tlsdesccall v
    blr x1
    mrs x1, tpidr_el0
    ldr w0, [x1, x0]
    ldp x29, x30, [sp], #16
    ret
