//! `slabjit run`, and initialisers of libraries: a program behaves as the same object does when it is linked.
//!
//! The oracle is that program, linked by gcc or g++; of initialisers, what `dlopen` passes to those of the same object.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use slabjit::{JitEngine, Symbol};

use crate::common::{self, compile, compile_with, link_shared, once_per, temporary, tool};
use crate::target;

common::tests![
    a_program_gets_one_block_of_vectors,
    a_program_has_its_own_name,
    initialisers_get_what_dlopen_passes,
    signals_and_floating_point_are_those_of_a_fresh_process,
    endless_output_ends_with_its_reader,
    closed_streams_lead_to_nothing_that_is_loaded,
    raised_signals_end_a_program,
    exceptions_that_nobody_catches_terminate,
    pthread_exit_in_main,
    forced_unwinding_ends_where_a_program_begins,
    archives_give_the_members_that_are_needed,
    an_archive_is_told_by_its_content,
    a_hidden_main_is_called,
    names_of_a_program_are_found,
    a_program_without_an_entry_runs_nothing,
    stacks_are_executable_where_that_is_asked_for,
    programs_lie_where_they_are_placed,
    programs_are_laid_out;
    parts: vectors_of_a_library,
];

fn slabjit<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = target::run(env!("CARGO_BIN_EXE_slabjit"));
    command.args(arguments);
    command
}

/// How a process ended: its exit code, its signal, and what it wrote to standard output.
type End = (Option<i32>, Option<i32>, String);

fn end(output: &Output) -> End {
    (output.status.code(), output.status.signal(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Links objects into a program, as a compiler does.
fn link(objects: &[&Path]) -> PathBuf {
    let paths: Vec<_> = objects.iter().map(|object| object.to_string_lossy()).collect();
    once_per(&["program", &paths.join(" ")], "program", |program| {
        let mut arguments: Vec<OsString> = vec!["-o".into(), program.into()];
        arguments.extend(objects.iter().map(OsString::from));
        arguments.push("-pthread".into());
        tool("g++", &arguments);
    })
}

/// Runs objects with arguments, natively and by slabjit, and expects the same of both. Returns it, and slabjit's
/// standard error.
#[track_caller]
fn same_as_linked(objects: &[&Path], arguments: &[&str]) -> (End, String) {
    let environment = [("SLABJIT_VARIABLE", "of a program")];
    let native = target::run(link(objects)).args(arguments).envs(environment).output().unwrap();
    let mut all: Vec<&OsStr> = vec!["run".as_ref()];
    all.extend(objects.iter().map(|object| object.as_os_str()));
    all.push("--".as_ref());
    all.extend(arguments.iter().map(|argument| OsStr::new(*argument)));
    let ours = slabjit(&all).envs(environment).output().unwrap();
    let stderr = String::from_utf8_lossy(&ours.stderr).into_owned();
    assert_eq!(end(&ours), end(&native), "slabjit: {stderr}, native: {}", String::from_utf8_lossy(&native.stderr));
    (end(&ours), stderr)
}

#[track_caller]
fn same(name: &str, source: &str, arguments: &[&str]) -> (End, String) {
    let compiler = if name.ends_with(".cc") { "g++" } else { "gcc" };
    same_as_linked(&[&compile_with(compiler, name, source, &[])], arguments)
}

const VECTORS: &str = r#"
    #include <elf.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/auxv.h>
    #include <unistd.h>
    extern char **environ;
    static int of_init; static char **argv_of_init, **envp_of_init;
    static void tell(const char *who, int argc, char **argv, char **envp) {
        printf("%s: %d arguments, the word before them %ld, after them %d\n", who, argc, ((long *)argv)[-1], argv[argc] != 0);
        for (int i = 1; i < argc; i++) printf("<%s>", argv[i]);
        printf("\nbehind them %d, environ %d\n", envp == argv + argc + 1, envp == environ);
        int variable = 0; char **at = envp;
        for (; *at; at++) variable += !strcmp(*at, "SLABJIT_VARIABLE=of a program");
        printf("variable %d\n", variable);
        for (Elf64_auxv_t *a = (Elf64_auxv_t *)(at + 1); ; a++) {
            if (a->a_type == AT_PAGESZ) printf("pages %d\n", a->a_un.a_val == sysconf(_SC_PAGESIZE));
            if (a->a_type == AT_RANDOM) printf("random %d\n", a->a_un.a_val == getauxval(AT_RANDOM));
            if (a->a_type == AT_NULL) break;
        }
    }
    __attribute__((constructor)) static void init(int argc, char **argv, char **envp) {
        of_init = argc; argv_of_init = argv; envp_of_init = envp;
        tell("init", argc, argv, envp);
    }
    int main(int argc, char **argv, char **envp) {
        tell("main", argc, argv, envp);
        return argc == of_init && argv == argv_of_init && envp == envp_of_init ? argc : 100;
    }"#;

fn a_program_gets_one_block_of_vectors() {
    for arguments in [&[][..], &["one", "", "--entry", "four words in one"]] {
        let ((code, ..), _) = same("vectors.c", VECTORS, arguments);
        assert_eq!(code, Some(1 + arguments.len() as i32));
    }
    // Arguments are bytes.
    let object = compile("vectors.c", VECTORS, &[]);
    // SAFETY: no invariant of a string's is relied upon: it is for the system.
    let bytes = unsafe { OsStr::from_encoded_bytes_unchecked(b"\xff\xfe") };
    let ours = slabjit(&[OsStr::new("run"), object.as_os_str(), OsStr::new("--"), bytes]).output().unwrap();
    assert!(ours.stdout.windows(4).any(|at| at == b"<\xff\xfe>"), "{ours:?}");
    // The first object is argv[0].
    let source = "#include <stdio.h>\nint main(int argc, char **argv) { puts(argv[0]); return 0; }";
    let (first, second) = (compile("empty_first.c", "", &[]), compile("name_of_program.c", source, &[]));
    let ours = slabjit(&[OsStr::new("run"), first.as_os_str(), second.as_os_str()]).output().unwrap();
    assert_eq!(end(&ours), (Some(0), None, format!("{}\n", first.display())));
}

fn a_program_has_its_own_name() {
    let source = "#define _GNU_SOURCE\n#include <errno.h>\n#include <stdio.h>
        int main(int argc, char **argv) { printf(\"%d %s\", program_invocation_name == argv[0], program_invocation_short_name); return 0; }";
    let object = compile("own_name.c", source, &[]);
    let ours = slabjit(&[OsStr::new("run"), object.as_os_str()]).output().unwrap();
    assert_eq!(end(&ours), (Some(0), None, "1 own_name.o".to_owned()));
}

fn initialisers_get_what_dlopen_passes() {
    let end = common::child_with("vectors_of_a_library", &[("SLABJIT_VARIABLE", "of a library")]);
    assert_eq!(end.code, Some(0), "{end:?}");
}

/// In one process, an object that is loaded, and one that is opened by `dlopen`: before the environment has moved, and
/// after.
fn vectors_of_a_library() {
    let engine = JitEngine::new().unwrap();
    let mut all = Vec::new();
    for round in ["before", "after"] {
        let source = format!(
            "#include <elf.h>
             extern char **environ;
             struct seen {{ long argc; char **argv, **envp; int same, behind; unsigned long pages; }} seen;
             __attribute__((constructor)) static void init_{round}(int argc, char **argv, char **envp) {{
                 seen.argc = argc; seen.argv = argv; seen.envp = envp;
                 seen.same = envp == environ; seen.behind = envp == argv + argc + 1;
                 char **at = argv + argc + 1;
                 while (*at) at++;
                 for (Elf64_auxv_t *a = (Elf64_auxv_t *)(at + 1); a->a_type != AT_NULL; a++)
                     if (a->a_type == AT_PAGESZ) seen.pages = a->a_un.a_val;
             }}
             void *see(void) {{ return &seen; }}"
        );
        type Seen = [usize; 5];
        let object = compile(&format!("vectors_{round}.c"), &source, &[]);
        let shared = link_shared(&format!("libvectors_{round}.so"), &[&object], &[]);
        // SAFETY: they are as they are written above.
        let (ours, theirs) = unsafe {
            let library = engine.add_object_file(&object).unwrap();
            let see: Symbol<unsafe extern "C" fn() -> *const Seen> = library.get("see").unwrap();
            let opened = libloading::Library::new(&shared).unwrap();
            let see_too = opened.get::<unsafe extern "C" fn() -> *const Seen>(b"see").unwrap();
            (see().read(), see_too().read())
        };
        assert_eq!(ours, theirs, "{round}");
        let [argc, _, _, flags, pages] = ours;
        assert_eq!((argc, pages), (std::env::args().count(), target::page_size()), "{round}");
        all.push((flags & 0xffff_ffff, flags >> 32));
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var("SLABJIT_ANOTHER", "moves the environment") };
    }
    assert_eq!(all, [(1, 1), (1, 0)]);
}

fn signals_and_floating_point_are_those_of_a_fresh_process() {
    let source = r#"
        #include <fenv.h>
        #include <signal.h>
        #include <stdio.h>
        static int of_init;
        __attribute__((constructor)) static void init(void) {
            printf("init %d %d\n", fetestexcept(FE_ALL_EXCEPT), fegetround());
            feraiseexcept(FE_OVERFLOW);
            of_init = fetestexcept(FE_ALL_EXCEPT);
        }
        int main(void) {
            printf("main %d\n", fetestexcept(FE_ALL_EXCEPT) == of_init);
            for (int s = 1; s < 32; s++) {
                struct sigaction a;
                sigaction(s, 0, &a);
                printf("%d", a.sa_handler == SIG_DFL ? 0 : a.sa_handler == SIG_IGN ? 1 : 2);
            }
            stack_t stack;
            sigaltstack(0, &stack);
            sigset_t mask;
            sigprocmask(SIG_SETMASK, 0, &mask);
            printf("\nstack %d, mask", stack.ss_flags);
            for (int s = 1; s < 65; s++) printf(" %d", sigismember(&mask, s));
            return 0;
        }"#;
    let object = compile("fresh.c", source, &["-D_GNU_SOURCE"]);
    let native = once_per(&["fresh program"], "program", |program| {
        tool("gcc", &["-o".as_ref(), program.as_os_str(), object.as_os_str(), "-lm".as_ref()]);
    });
    let native = target::run(native).output().unwrap();
    let ours = slabjit(&["run".as_ref(), object.as_os_str(), "--library".as_ref(), "libm.so.6".as_ref()]);
    assert_eq!(end(&{ ours }.output().unwrap()), end(&native));
    assert!(end(&native).2.contains("init 0 "), "{native:?}");
}

/// Reads a line of what a process writes, closes the pipe, and waits for its end.
fn end_after_a_line(mut command: Command) -> (Option<i32>, Option<i32>) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        if let Some(status) = child.try_wait().unwrap() {
            return (status.code(), status.signal());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("it goes on without a reader");
}

fn endless_output_ends_with_its_reader() {
    let object = compile("endless.c", "#include <stdio.h>\nint main(void) { for (;;) puts(\"line\"); }", &[]);
    let native = end_after_a_line(target::run(link(&[&object])));
    assert_eq!(native, (None, Some(libc::SIGPIPE)));
    assert_eq!(end_after_a_line(slabjit(&[OsStr::new("run"), object.as_os_str()])), native);
}

fn closed_streams_lead_to_nothing_that_is_loaded() {
    let source = "#include <stdio.h>\n#include <sys/stat.h>
                  static int kind(int fd) { struct stat s; return fstat(fd, &s) == 0 && S_ISCHR(s.st_mode); }
                  int main(void) { return puts(\"written\") < 0 || fflush(stdout) ? 1 : 10 + kind(0) + kind(1) + kind(2); }";
    let object = compile("closed_streams.c", source, &[]);
    let run = slabjit(&["run".as_ref(), "--layout".as_ref(), "packed".as_ref(), object.as_os_str()]);
    let closed = r#"exec "$@" <&- >&- 2>&-"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", closed, "sh"]).arg(run.get_program()).args(run.get_args());
    assert_eq!(shell.status().unwrap().code(), Some(13));
}

fn raised_signals_end_a_program() {
    let source = "#include <signal.h>\n#include <stdlib.h>
                  int main(int argc, char **argv) { raise(atoi(argv[1])); return 3; }";
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGPIPE] {
        let ((_, by, _), _) = same("raises.c", source, &[&signal.to_string()]);
        assert_eq!(by, Some(signal));
    }
}

fn exceptions_that_nobody_catches_terminate() {
    let source = |throws: &str| {
        format!(
            "#include <cstdio>\n#include <cstdlib>\n#include <exception>\n#include <stdexcept>\n#include <unistd.h>
             struct Guard {{ ~Guard() {{ std::puts(\"a destructor has run\"); }} }};
             static void ours() {{ std::puts(\"our own\"); std::fflush(stdout); _exit(3); }}
             [[noreturn]] static void thrown() {{ Guard guard; throw std::runtime_error(\"thrown at last\"); }}
             {throws}"
        )
    };
    let own = "std::set_terminate(ours);";
    for (name, throws) in [
        ("in_main", "int main(int argc, char **) { if (argc > 1) SET thrown(); }"),
        (
            "of_another_function",
            "static void f() noexcept(false) { thrown(); } int main(int argc, char **) { if (argc > 1) SET try { f(); \
             } catch (int) {} }",
        ),
        ("in_an_initialiser", "static struct I { I() { SET thrown(); } } i; int main() {}"),
        ("in_an_exit_handler", "int main(int argc, char **) { if (argc > 1) SET std::atexit([] { thrown(); }); }"),
        ("in_a_finaliser", "__attribute__((destructor)) static void f() { SET thrown(); } int main() {}"),
        (
            "in_a_noexcept_function",
            "static void f() noexcept { thrown(); } int main(int argc, char **) { if (argc > 1) SET f(); }",
        ),
    ] {
        let always = throws.contains("int main() {}");
        let ((code, signal, stdout), _) =
            same(&format!("throws_{name}.cc"), &source(&throws.replace("SET", own)), &["1"]);
        assert_eq!((code, signal, stdout.contains("our own\n")), (Some(3), None, true), "{name}: {stdout}");
        let arguments = if always { &[][..] } else { &["1"] };
        let defaults = source(&throws.replace("SET", ""));
        let ((_, signal, _), stderr) = same(&format!("throws_{name}.cc"), &defaults, arguments);
        assert_eq!(signal, Some(libc::SIGABRT), "{name}");
        assert!(stderr.contains("std::runtime_error") && stderr.contains("thrown at last"), "{name}: {stderr}");
    }
}

fn pthread_exit_in_main() {
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        static void handler(void) { puts("handler"); }
        static void *other(void *first) {
            pthread_join(*(pthread_t *)first, 0);
            puts("the other goes on");
            return 0;
        }
        static pthread_t first;
        __attribute__((destructor)) static void fini(void) { puts("fini"); }
        int main(int argc, char **argv) {
            pthread_t thread;
            first = pthread_self();
            atexit(handler);
            if (argc > 1) pthread_create(&thread, 0, other, &first);
            pthread_exit((void *)7);
        }"#;
    // There the program that is linked hangs, too: nobody is told that its first thread has ended.
    let large_pages = target::not_with_large_pages_of_qemu("it loses the end of a first thread");
    for arguments in [&[][..], &["with another"]].into_iter().take(if large_pages { 1 } else { 2 }) {
        let ((code, _, stdout), _) = same("thread_exits.c", source, arguments);
        assert_eq!((code, stdout.contains("handler\nfini\n")), (Some(0), true), "{stdout}");
    }
    let source = r#"
        #include <cstdio>
        #include <pthread.h>
        struct Guard { const char *name; ~Guard() { std::puts(name); } };
        __attribute__((noinline)) static void inner() { Guard guard{"inner"}; pthread_exit(nullptr); }
        int main() { Guard guard{"outer"}; try { inner(); } catch (...) { std::puts("caught"); throw; } }"#;
    let ((code, _, stdout), _) = same("thread_exits.cc", source, &[]);
    assert_eq!((code, stdout.as_str()), (Some(0), "inner\ncaught\nouter\n"));
}

/// As g++.dg/eh/forced*.C and g++.dg/abi/forced*.C do it.
fn forced_unwinding_ends_where_a_program_begins() {
    let source = r#"
        #include <cstdio>
        #include <cstdlib>
        #include <cstring>
        #include <unwind.h>
        static int frames;
        static _Unwind_Reason_Code stop(int, _Unwind_Action actions, _Unwind_Exception_Class, _Unwind_Exception *, _Unwind_Context *, void *) {
            frames++;
            if (!(actions & _UA_END_OF_STACK)) return _URC_NO_REASON;
            std::printf("the end, after some frames: %d\n", frames > 2);
            std::exit(5);
        }
        struct Guard { const char *name; ~Guard() { std::puts(name); } };
        __attribute__((noinline)) static void unwinds() {
            Guard guard{"guard"};
            static _Unwind_Exception exception;
            std::memset(&exception, 0, sizeof exception);
            _Unwind_ForcedUnwind(&exception, stop, nullptr);
            std::puts("not reached");
        }
        int main() { Guard guard{"guard of main"}; try { unwinds(); } catch (...) { std::puts("caught"); throw; } return 1; }"#;
    let ((code, _, stdout), _) = same("forced.cc", source, &[]);
    assert_eq!((code, stdout.starts_with("guard\ncaught\nguard of main\nthe end")), (Some(5), true), "{stdout}");
}

/// An archive of these objects.
fn archive(name: &str, objects: &[&Path]) -> PathBuf {
    let path = temporary().join(name);
    let mut arguments: Vec<OsString> = vec!["rcs".into(), path.clone().into()];
    arguments.extend(objects.iter().map(OsString::from));
    let _ = std::fs::remove_file(&path);
    tool("ar", &arguments);
    path
}

fn speaking(name: &str, says: &str, rest: &str) -> PathBuf {
    let source = format!(
        "#include <stdio.h>\n__attribute__((constructor)) static void init(void) {{ puts(\"{says}\"); }}\n{rest}"
    );
    compile(&format!("{name}.c"), &source, &[])
}

fn archives_give_the_members_that_are_needed() {
    let needed = speaking("needed", "needed", "int deeper(void); int needed(void) { return deeper() + 1; }");
    let deeper = speaking("deeper", "deeper", "int deeper(void) { return 40; }");
    let other = speaking("not_needed", "not needed", "int missing(void); int other(void) { return missing(); }");
    let main = speaking("needs", "main", "int needed(void); int main(void) { return needed() + 1; }");
    let library = archive("libneeded.a", &[&other, &needed, &deeper]);
    let ((code, _, stdout), _) = same_as_linked(&[&main, &library], &[]);
    assert_eq!(code, Some(42));
    assert!(!stdout.contains("not needed"), "{stdout}");
    // The entry is as good as an import.
    let with_main = archive("libwithmain.a", &[&other, &main, &needed, &deeper]);
    assert_eq!(same_as_linked(&[&with_main], &[]).0.0, Some(42));

    // `check` looks at the same.
    let check = |arguments: &[&Path]| {
        let ours = slabjit(&["check", "-q"]).args(arguments).output().unwrap();
        let lines = String::from_utf8_lossy(&ours.stdout).into_owned();
        (ours.status.code(), lines.lines().map(|line| line.rsplit_once('/').unwrap().1.to_owned()).collect::<Vec<_>>())
    };
    let all = ["needs.o: loads", "libneeded.a(needed.o): loads", "libneeded.a(deeper.o): loads"].map(str::to_owned);
    assert_eq!(check(&[&main, &library]), (Some(0), all.to_vec()));
    assert_eq!(check(&[&library, &main]), (Some(0), all.to_vec()));
    let (code, lines) = check(&[&library]);
    assert_eq!((code, lines.len()), (Some(1), 3));
    assert!(lines[0].contains("not_needed.o") && lines[0].ends_with("does not load: undefined: missing"), "{lines:?}");
}

fn an_archive_is_told_by_its_content() {
    let main = compile("needs_forty.c", "int forty(void); int main(void) { return forty(); }", &[]);
    let forty = compile("forty.c", "int forty(void) { return 40; }", &[]);
    let library = archive("forty.without-extension", &[&forty]);
    assert_eq!(same_as_linked(&[&main, &library], &[]).0.0, Some(40));
    let object = temporary().join("an-object.a");
    std::fs::copy(&forty, &object).unwrap();
    assert_eq!(same_as_linked(&[&main, &object], &[]).0.0, Some(40));
}

fn a_hidden_main_is_called() {
    let source = "__attribute__((visibility(\"hidden\"))) int main(int argc, char **argv) { return 40 + argc; }";
    assert_eq!(same("hidden_main.c", source, &["x"]).0.0, Some(42));
    let source =
        "#pragma GCC visibility push(hidden)\nextern \"C\" int other() { return 43; }\nint main() { return 1; }";
    let object = compile_with("g++", "hidden_entry.cc", source, &[]);
    let ours = slabjit(&["run".as_ref(), "--entry".as_ref(), "other".as_ref(), object.as_os_str()]).output().unwrap();
    assert_eq!(ours.status.code(), Some(43), "{ours:?}");
}

/// Shared libraries that a program opens find its names, also after they were closed, and so does `dlsym`: as in a
/// program that was linked with `-rdynamic`.
fn names_of_a_program_are_found() {
    let plugin = "extern int counted; int plain(void); int use(void) { return counted++ + plain(); }";
    let plugin = link_shared("libuses_program.so", &[&compile("uses_program.c", plugin, &["-fPIC"])], &[]);
    let source = "#define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        int counted = 30;
        int plain(void) { return 4; }
        __attribute__((visibility(\"hidden\"))) int concealed(void) { return 5; }
        int main(int argc, char **argv) {
            for (int i = 0; i < 3; i++) {
                int found = dlsym(RTLD_DEFAULT, \"plain\") == plain;
                void *plugin = dlopen(argv[1], i == 1 ? RTLD_LAZY : RTLD_NOW);
                if (!plugin) return puts(dlerror()), 1;
                int (*use)(void) = dlsym(plugin, \"use\");
                int used = use();
                printf(\"%d %d %d %p\\n\", found, used, counted, dlsym(RTLD_DEFAULT, \"concealed\"));
                if (dlclose(plugin)) return 2;
            }
            return 0;
        }";
    let object = compile("opens_plugins.c", source, &[]);
    let native = once_per(&["program with names", &object.to_string_lossy()], "program", |program| {
        tool("g++", &[OsStr::new("-rdynamic"), OsStr::new("-o"), program.as_os_str(), object.as_os_str()]);
    });
    let native = target::run(native).arg(&plugin).output().unwrap();
    let ours = slabjit(&["run".as_ref(), object.as_os_str(), "--".as_ref(), plugin.as_os_str()]).output().unwrap();
    assert_eq!(native.status.code(), Some(0), "{native:?}");
    assert_eq!(end(&ours), end(&native), "{ours:?}");
}

fn a_program_without_an_entry_runs_nothing() {
    let object =
        speaking("no_entry", "an initialiser", "int f(void) { return 1; } static int main(void) { return 2; }");
    let data = speaking("entry_is_data", "an initialiser", "int main[] = { 1, 2 };");
    let variable = speaking("entry_is_thread_local", "an initialiser", "__thread int main = 1;");
    let member =
        speaking("entry_of_member", "an initialiser", "int missing(void); int main(void) { return missing(); }");
    let with_main = archive("libmissing.a", &[&member]);
    let shared = speaking("shared_speaks", "an initialiser of a library", "int from_shared(void) { return 1; }");
    let shared = link_shared("libspeaks.so", &[&shared], &[]);
    for (inputs, words) in [
        (&[&object][..], &["'main'", "--entry", "they define f;"][..]),
        (&[&data], &["'main' is data", "--entry"]),
        (&[&variable], &["'main'", "thread-local", "--entry"]),
        (&[&object, &with_main], &["missing", "entry_of_member.o"]),
    ] {
        let ours = slabjit(&["run"]).args(inputs).output().unwrap();
        let stderr = String::from_utf8_lossy(&ours.stderr);
        assert_eq!(end(&ours), (Some(125), None, String::new()), "{stderr}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{words:?}: {stderr}");
    }
    let ours = slabjit(&["run", "--library"]).args([&shared, &object]).output().unwrap();
    assert_eq!(end(&ours), (Some(125), None, String::new()));
    // What is wrong with an object is said first.
    let text = object.with_extension("c");
    let ours = slabjit(&["run", "--library"]).args([&shared, &text]).output().unwrap();
    assert!(String::from_utf8_lossy(&ours.stderr).contains("not an ELF object"), "{ours:?}");
}

fn stacks_are_executable_where_that_is_asked_for() {
    let source = "__attribute__((noipa)) static int apply(int (*f)(int), int x) { return f(x); }
                  int main(int argc, char **argv) { int add(int x) { return x + argc; } return apply(add, 41); }";
    let object = compile("nested_main.c", source, &[]);
    assert_eq!(target::run(link(&[&object])).status().unwrap().code(), Some(42));
    // A C library that does it for nobody is told to.
    let tunables = ("GLIBC_TUNABLES", "glibc.rtld.execstack=2");
    let ours = slabjit(&["run", "--executable-stack"]).arg(&object).envs([tunables]).output().unwrap();
    assert_eq!(ours.status.code(), Some(42), "{ours:?}");
    assert_eq!(slabjit(&["run"]).arg(&object).output().unwrap().status.code(), Some(125));
}

fn programs_lie_where_they_are_placed() {
    if target::only_on_x86_64("qemu-user decides where things lie, see `placement`") {
        return;
    }
    // Refers to the C library's variable directly, as plain `gcc -c` has it.
    let near =
        compile("near.c", "#include <stdio.h>\nint main(void) { fputs(\"near\", stderr); return 0; }", &["-fPIE"]);
    let low = compile("low.c", "static char here; int main(void) { return (int)(long)&here == 0; }", &["-fno-pic"]);
    let anywhere = compile("anywhere.c", "int main(void) { return 0; }", &[]);
    for (object, place, code) in [
        (&near, "near-libraries", 0),
        (&near, "low2g", 125),
        (&low, "low2g", 0),
        (&low, "near-libraries", 125),
        (&anywhere, "anywhere", 0),
    ] {
        let ours = slabjit(&["run", "--place", place]).arg(object).output().unwrap();
        assert_eq!(ours.status.code(), Some(code), "{place}: {ours:?}");
        let checked = slabjit(&["check", "-q", "--place", place]).arg(object).output().unwrap();
        assert_eq!(checked.status.code(), Some(i32::from(code != 0)), "{place}: {checked:?}");
    }
    let ours = slabjit(&["run", "--place", "low2g"]).arg(&near).output().unwrap();
    let stderr = String::from_utf8_lossy(&ours.stderr);
    assert!(stderr.contains("--place near-libraries") && stderr.contains("-fPIC"), "{stderr}");
    let ours = slabjit(&["run", "--place", "near-libraries"]).arg(&low).output().unwrap();
    let stderr = String::from_utf8_lossy(&ours.stderr);
    assert!(stderr.contains("--place low2g"), "{stderr}");
}

fn programs_are_laid_out() {
    // Whether the page of `main` is one that several objects share.
    let source = r#"
        #include <stdio.h>
        #include <string.h>
        int main(void) {
            char line[4096]; int shared = 2; unsigned long start, end;
            FILE *maps = fopen("/proc/self/maps", "r");
            while (fgets(line, sizeof line, maps))
                if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start <= (unsigned long)main && (unsigned long)main < end)
                    shared = strstr(line, "memfd") != 0;
            return 10 + shared;
        }"#;
    let object = compile("laid_out.c", source, &[]);
    for (layout, code) in [("per-object", 10), ("packed", 11)] {
        let ours = slabjit(&["run", "--layout", layout]).arg(&object).output().unwrap();
        assert_eq!(ours.status.code(), Some(code), "{layout}: {ours:?}");
    }
}
