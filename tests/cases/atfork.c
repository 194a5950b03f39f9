// prepare, parent and child handlers run while the library is there.
//# turns: (each runs the handlers of whatever is loaded)
//# call: installed() = 0
//# call: forked() = 5
//# call: in_parent() = 11
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
static int prepared, parents, children;
static void prepare(void) { prepared += 1; }
static void parent(void) { parents += 10; }
static void child(void) { children += 4; }
int installed(void) { return pthread_atfork(prepare, parent, child); }
int forked(void) {
    pid_t p = fork();
    if (p == 0) _exit(prepared + parents + children);
    int status;
    waitpid(p, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
int in_parent(void) { return prepared + parents + children; }
