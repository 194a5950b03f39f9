// glibc hands initialisers argc, argv and envp.
//# call: arguments() = 3
extern char **environ;
static int seen;
__attribute__((constructor)) static void init(int argc, char **argv, char **envp) {
    seen = (argc >= 1) + (argv != 0 && argv[0] != 0) + (envp != 0 && envp == environ);
}
int arguments(void) { return seen; }
