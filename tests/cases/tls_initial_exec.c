// A fixed distance from the thread pointer, read from the GOT: of a variable of another object, and of the process.
//# compile: -fPIC -ftls-model=initial-exec
//# with: tls_other.c
//# call: next() = 42
//# call: next() = 43
//# call: own() = 8
//# call: error() = 33
extern __thread int elsewhere;
static __thread int here = 7;
#include <errno.h>
#include <unistd.h>
int next(void) { return ++elsewhere; }
int own(void) { return ++here; }
// glibc's errno by its own name, as its archives refer to it.
extern __thread int process_errno __asm__("errno");
int error(void) {
    process_errno = 0;
    close(-1);
    int seen = process_errno == EBADF && errno == EBADF ? 33 : process_errno;
    return seen;
}
