//# call: watched(4) = 5
// SystemTap's probes, as in libstdc++ and CPython: notes that are not mapped, with relocations, which LLVM 15 and 16
// refuse.
int counter = 1;
int watched(int x) {
    __asm__ volatile("990: nop\n"
                     ".pushsection .note.stapsdt,\"\",%note\n.balign 4\n.4byte 8, 16, 3\n.asciz \"stapsdt\"\n"
                     ".8byte 990b\n.8byte counter\n.popsection\n");
    return x + counter;
}
