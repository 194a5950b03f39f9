// prepare, parent and child handlers run while the library is there.
//# call: installed() = 0
//# call: forked() = 5
//# call: in_parent() = 11
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
static int prepared, parents, children;
// Other tests may fork at the same time, in other threads.
static pthread_t forks;
static void prepare(void) { prepared += pthread_equal(forks, pthread_self()); }
static void parent(void) { parents += pthread_equal(forks, pthread_self()) ? 10 : 0; }
static void child(void) { children += 4; }
int installed(void) { return pthread_atfork(prepare, parent, child); }
int forked(void) {
    forks = pthread_self();
    pid_t p = fork();
    if (p == 0) _exit(prepared + parents + children);
    int status;
    waitpid(p, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
int in_parent(void) { return prepared + parents + children; }
