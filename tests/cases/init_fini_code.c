// Code in .init and .fini: fragments of a function that crti.o begins and crtn.o ends, as libcrypto's x86_64cpuid.o has
// them.
//# call: aligned() = 1
//# trace: 1 2 3 | 4 5
void trace(int value);
#ifdef __x86_64__
#define CALL "call "
#else
#define CALL "bl "
#endif
#define IS_ALIGNED ((long)__builtin_frame_address(0) % 16 == 0)
static int misaligned;
__attribute__((used)) static void first(void) { misaligned |= !IS_ALIGNED; trace(1); }
__attribute__((used)) static void second(void) { misaligned |= !IS_ALIGNED; trace(2); }
__attribute__((used)) static void last(void) { trace(IS_ALIGNED ? 5 : -5); }
__attribute__((constructor)) static void constructed(void) { trace(3); }
__attribute__((destructor)) static void destructed(void) { trace(4); }
asm(".pushsection .init,\"ax\",@progbits\n" CALL "first\n.balign 16\nslabjit_test_mark: " CALL "second\n.popsection\n"
    ".pushsection .fini,\"ax\",@progbits\n" CALL "last\n.popsection\n");
extern char mark[] asm("slabjit_test_mark") __attribute__((visibility("hidden")));
int aligned(void) { return (long)mark % 16 == 0 && !misaligned; }
