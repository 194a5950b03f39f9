//! The `slabjit` program.

use std::process::Output;

use crate::common::{self, compile, compile_with, good_object, temporary};
use crate::target;

common::tests![
    run_calls_main_with_arguments,
    run_calls_another_entry,
    run_runs_handlers_and_finalizers,
    run_of_a_program_that_calls_exit,
    run_initializes_objects_in_order,
    run_looks_in_shared_libraries,
    run_takes_definitions,
    run_of_a_founding_object,
    run_fails_with_125,
    check_of_good_objects,
    check_of_bad_objects,
    check_as_json,
    check_of_another_architecture,
    version_names_crate_and_llvm,
];

fn slabjit<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Output {
    target::run(env!("CARGO_BIN_EXE_slabjit")).args(arguments).output().unwrap()
}

/// Exit code, standard output and standard error.
fn outcome<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> (Option<i32>, String, String) {
    let output = slabjit(arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn object(name: &str, source: &str) -> String {
    compile(name, source, &[]).to_str().unwrap().to_owned()
}

fn run_calls_main_with_arguments() {
    let source = "#include <stdio.h>
                  int main(int argc, char **argv) { for (int i = 1; i < argc; i++) printf(\"<%s>\", argv[i]); return argc * 10 + (argv[argc] == 0); }";
    let path = object("arguments.c", source);
    assert_eq!(outcome(&["run", &path]), (Some(11), String::new(), String::new()));
    assert_eq!(outcome(&["run", &path, "--", "a", "--entry"]), (Some(31), "<a><--entry>".into(), String::new()));
}

fn run_calls_another_entry() {
    let path = object("entry.c", "int main(void) { return 1; } int other(int argc, char **argv) { return 40 + argc; }");
    assert_eq!(outcome(&["run", "--entry", "other", &path, "--", "x"]).0, Some(42));
}

const SPEAKING: &str = "#include <stdio.h>
    #include <stdlib.h>
    static void handler(void) { puts(\"handler\"); }
    __attribute__((constructor)) static void init(void) { puts(\"init\"); atexit(handler); }
    __attribute__((destructor)) static void fini(void) { puts(\"fini\"); }
    int main(int argc, char **argv) { puts(\"main\"); if (argc > 1) exit(atoi(argv[1])); return 5; }";

fn run_runs_handlers_and_finalizers() {
    let (code, stdout, stderr) = outcome(&["run", &object("speaking.c", SPEAKING)]);
    assert_eq!((code, stderr.as_str()), (Some(5), ""));
    assert!(stdout.starts_with("init\nmain\n"), "{stdout}");
    let mut end: Vec<_> = stdout.lines().skip(2).collect();
    end.sort_unstable();
    assert_eq!(end, ["fini", "handler"]);
}

fn run_of_a_program_that_calls_exit() {
    let (code, stdout, stderr) = outcome(&["run", &object("speaking.c", SPEAKING), "--", "7"]);
    assert_eq!((code, stderr.as_str()), (Some(7), ""));
    // As in a program of its own: handlers, then finalisers.
    assert_eq!(stdout, "init\nmain\nhandler\nfini\n");
}

fn run_initializes_objects_in_order() {
    let init = |i: u32| {
        format!("#include <stdio.h>\n__attribute__((constructor)) static void init(void) {{ printf(\"{i}\"); }}")
    };
    let (one, two) = (object("one.c", &init(1)), object("two.c", &init(2)));
    let main = object("only_main.c", "int main(void) { return 0; }");
    assert_eq!(outcome(&["run", &one, &two, &main]), (Some(0), "12".into(), String::new()));
    assert_eq!(outcome(&["run", &two, &main, &one]), (Some(0), "21".into(), String::new()));
}

fn run_looks_in_shared_libraries() {
    let provider = compile("provided.c", "int provided_number(void) { return 33; }", &[]);
    let shared = common::link_shared("libprovided.so", &[&provider], &[]);
    let path = object("uses_provided.c", "int provided_number(void); int main(void) { return provided_number(); }");
    assert_eq!(outcome(&["run", &path]).0, Some(125));
    assert_eq!(outcome(&["run", "--library", shared.to_str().unwrap(), &path]).0, Some(33));
}

fn run_takes_definitions() {
    let path = object("defined.c", "extern char given; int main(void) { return (int)((unsigned long)&given >> 4); }");
    assert_eq!(outcome(&["run", "--define", "given=0x120", &path]).0, Some(0x12));
    assert_eq!(outcome(&["run", "--define", "given=not-a-number", &path]).0, Some(125));
}

fn run_of_a_founding_object() {
    let code = target::by_arch(
        "incl counter(%rip)\n mov counter(%rip), %eax",
        "adrp x1, counter\n ldr w0, [x1, :lo12:counter]\n add w0, w0, #1\n str w0, [x1, :lo12:counter]",
    );
    let source = format!(
        ".text\n.globl main\n.type main, @function\nmain: {code}\n ret\n
         .section .text,\"aw\",@progbits,unique,1\ncounter: .long 41\n.section .note.GNU-stack,\"\",@progbits\n"
    );
    assert_eq!(outcome(&["run", &object("founding.s", &source)]), (Some(42), String::new(), String::new()));
}

/// Standard error names what is wrong, and nothing is run.
#[track_caller]
fn fails(arguments: &[&str], words: &[&str]) {
    let (code, stdout, stderr) = outcome(arguments);
    assert_eq!((code, stdout.as_str()), (Some(125), ""), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "'{word}' is not in: {stderr}");
    }
}

fn run_fails_with_125() {
    let missing = temporary().join("missing.o");
    let missing = missing.to_str().unwrap();
    fails(&["run", missing], &["missing.o", "No such file"]);
    let good = good_object();
    let good = good.to_str().unwrap();
    fails(&["run", good], &["main"]);
    fails(&["run", "--entry", "nowhere", good], &["nowhere"]);
    let undefined = object(
        "undefined_two.c",
        "int missing_a(void), missing_b(void); int main(void) { return missing_a() + missing_b(); }",
    );
    fails(&["run", &undefined], &["missing_a", "missing_b", "undefined_two.o"]);
    fails(&["run", "--library", "libnowhere-at-all.so.9", good], &["libnowhere-at-all.so.9"]);
    fails(&["run", &undefined, &undefined], &["twice", "main"]);
    fails(&["run"], &["OBJECT"]);
    fails(&["run", "--no-such-option", good], &["--no-such-option"]);
}

fn check_of_good_objects() {
    let good = good_object();
    let (code, stdout, stderr) = outcome(&["check", good.to_str().unwrap()]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("good.o") && stdout.contains(".text"), "{stdout}");
}

fn check_of_bad_objects() {
    let tls = object("checked_tls.c", "__thread int counter; int f(void) { return counter++; }");
    let (code, stdout, _) = outcome(&["check", &tls]);
    assert_eq!(code, Some(1));
    assert!(stdout.contains("checked_tls.o") && stdout.contains("thread-local"), "{stdout}");

    let user = object("checked_user.c", "int checked_provider(void); int f(void) { return checked_provider(); }");
    let provider = object("checked_provider.c", "int checked_provider(void) { return 1; }");
    let (code, stdout, _) = outcome(&["check", &user]);
    assert_eq!(code, Some(1));
    assert!(stdout.contains("checked_provider"), "{stdout}");
    assert_eq!(outcome(&["check", &user, &provider]).0, Some(0), "one object defines what the other needs");
    assert_eq!(outcome(&["check", "--define", "checked_provider=0x1000", &user]).0, Some(0));

    let (code, stdout, stderr) = outcome(&["check", "/nowhere/at-all.o"]);
    assert_eq!(code, Some(1));
    assert!(format!("{stdout}{stderr}").contains("at-all.o"));
}

fn check_as_json() {
    let good = good_object();
    let (code, stdout, _) = outcome(&["check", "--format", "json", good.to_str().unwrap()]);
    assert_eq!(code, Some(0));
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert!(json.to_string().contains("good.o"), "{json}");
}

fn check_of_another_architecture() {
    let source = "int elsewhere(int); int counter; int f(int x) { return elsewhere(x) + counter; }";
    let (triple, name) =
        target::by_arch(("aarch64-unknown-linux-gnu", "AArch64"), ("x86_64-unknown-linux-gnu", "x86-64"));
    let other = compile_with("clang-22", "other.c", source, &[&format!("--target={triple}")]);
    let (code, stdout, _) = outcome(&["check", other.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{stdout}");
    assert!(stdout.contains(name) && stdout.contains("elsewhere"), "{stdout}");
}

fn version_names_crate_and_llvm() {
    let (code, stdout, _) = outcome(&["--version"]);
    assert_eq!(code, Some(0));
    // The LLVM that the crate was compiled for, as its own tool spells it.
    let major = slabjit::llvm_version();
    let llvm = common::tool(&format!("llvm-config-{major}"), &["--version"]);
    assert!(stdout.contains(env!("CARGO_PKG_VERSION")) && stdout.contains(llvm.trim()), "{stdout}");
}
