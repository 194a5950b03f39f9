//# call: signal_frames() = 1
// Unwinders take the return address of what a signal has interrupted as it is, and say so: the table's `S` has to be
// there.
#include <unwind.h>
static int found;
static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *argument) {
    int before = 0;
    _Unwind_GetIPInfo(context, &before);
    found += before;
    return _URC_NO_REASON;
}
__attribute__((visibility("hidden"), used)) void walk(void) { _Unwind_Backtrace(frame, 0); }
void as_in_a_signal(void);
__asm__(".text\n.type as_in_a_signal, %function\nas_in_a_signal:\n.cfi_startproc\n.cfi_signal_frame\n"
#ifdef __x86_64__
        "subq $8, %rsp\n.cfi_adjust_cfa_offset 8\ncall walk\naddq $8, %rsp\n.cfi_adjust_cfa_offset -8\nret\n"
#else
        "stp x29, x30, [sp, -16]!\n.cfi_def_cfa_offset 16\n.cfi_offset 29, -16\n.cfi_offset 30, -8\nbl walk\n"
        "ldp x29, x30, [sp], 16\n.cfi_restore 30\n.cfi_restore 29\n.cfi_def_cfa_offset 0\nret\n"
#endif
        ".cfi_endproc\n");
int signal_frames(void) { found = 0; as_in_a_signal(); return found; }
