//! The `slabjit` program.

use std::process::Output;

use crate::common::{self, compile, compile_with, good_object, temporary, tool};
use crate::target;

common::tests![
    run_calls_main_with_arguments,
    run_calls_another_entry,
    run_runs_handlers_and_finalizers,
    run_of_a_program_that_calls_exit,
    run_initializes_objects_in_order,
    run_looks_in_shared_libraries,
    run_takes_definitions,
    run_compiles_functions_when_they_are_called,
    run_compiles_ir,
    run_of_a_founding_object,
    run_fails_with_125,
    run_reports_crashes_if_asked,
    errors_speak_the_words_of_the_command_line,
    names_are_printed_without_control_characters,
    check_in_one_line_an_object,
    check_outlives_its_reader,
    check_of_good_objects,
    check_of_bad_objects,
    check_as_json,
    check_of_another_architecture,
    check_judges_references,
    map_draws_objects_of_both_architectures,
    check_counts_what_objects_take_together,
    check_says_what_is_known_of_undefined_names,
    map_escapes_names,
    map_writes_all_or_nothing,
    link_makes_what_run_loads,
    link_writes_the_same_bytes_each_time,
    link_packs_relocations_on_request,
    link_fails_with_1,
    check_says_what_the_cpu_must_have,
    contracts_are_linked_in,
    cache_folders_are_looked_after,
    version_names_crate_and_llvm,
    version_says_what_the_machine_offers,
    completions_are_scripts,
    manual_has_a_page_for_each_command,
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

    let folder = shared.parent().unwrap().to_str().unwrap();
    assert_eq!(outcome(&["run", "-L", folder, "--library", "libprovided.so", &path]).0, Some(33));
    let (code, _, stderr) = outcome(&["run", "--library-path", folder, &path]);
    assert_eq!(code, Some(125));
    assert!(stderr.contains(shared.to_str().unwrap()), "{stderr}");
    let (code, stdout, _) = outcome(&["check", "-L", folder, &path]);
    assert_eq!(code, Some(1));
    let line = format!("undefined: provided_number (exported by {}; add --library)", shared.display());
    assert!(stdout.contains(&line), "{stdout}");
    let (_, stdout, _) = outcome(&["check", "--format", "json", "-L", folder, &path]);
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json[0]["undefined"], serde_json::json!(["provided_number"]));
    assert_eq!(json[0]["exported_by"]["provided_number"], serde_json::json!([shared]));
}

fn run_takes_definitions() {
    let path = object("defined.c", "extern char given; int main(void) { return (int)((unsigned long)&given >> 4); }");
    assert_eq!(outcome(&["run", "--define", "given=0x120", &path]).0, Some(0x12));
    assert_eq!(outcome(&["run", "--define", "given=not-a-number", &path]).0, Some(125));
}

fn run_compiles_ir() {
    let source = "@string = constant [3 x i8] c\"ir\\00\"\ndeclare i32 @puts(ptr)\n\
        define i32 @main(i32 %argc, ptr %argv) { %a = call i32 @puts(ptr @string) %b = add i32 %argc, 40 ret i32 %b }\n";
    let text = common::once_per(&["cli ir", source], "ll", |path| std::fs::write(path, source).unwrap());
    let bitcode = common::once_per(&["cli bitcode", source], "bc", |path| {
        let assembler = format!("llvm-as-{}", slabjit::llvm_version());
        tool(&assembler, &[text.as_os_str(), "-o".as_ref(), path.as_os_str()]);
    });
    let (text, bitcode) = (text.to_str().unwrap(), bitcode.to_str().unwrap());
    for level in ["-O0", "-O3", "--opt-level=1"] {
        for input in [text, bitcode] {
            assert_eq!(outcome(&["run", level, input, "--", "there"]), (Some(42), "ir\n".into(), String::new()));
        }
    }
    let (code, stdout, _) = outcome(&["check", text]);
    assert!(code == Some(0) && stdout.contains("main") || stdout.contains(".text"), "{stdout}");
    let bad = common::once_per(&["cli bad ir"], "ll", |path| std::fs::write(path, "define nothing").unwrap());
    fails(&["run", bad.to_str().unwrap()], &["not valid LLVM IR", "expected"]);
    fails(&["run", "-O4", text], &["0, 1, 2 or 3"]);
}

fn run_compiles_functions_when_they_are_called() {
    // Whatever is broken in it, its other functions run: there is no such mnemonic on any machine.
    let source = "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } \
        { i32 65535, ptr @begin, ptr null }]\n@text = constant [6 x i8] c\"begin\\00\"\ndeclare i32 @puts(ptr)\n\
        declare i32 @add(i32)\n\
        define internal void @begin() { %a = call i32 @puts(ptr @text) ret void }\n\
        define i32 @broken(i32 %n) { call void asm sideeffect \".slabjit_has_no_such_directive\", \"\"() ret i32 1 }\n\
        define i32 @main(i32 %argc, ptr %argv) { %wants = icmp sgt i32 %argc, 1 br i1 %wants, label %yes, label %no\n\
        yes: %b = call i32 @broken(i32 1) ret i32 %b\n\
        no: %c = call i32 @add(i32 %argc) ret i32 %c }\n";
    let text = common::once_per(&["cli lazy ir", source], "ll", |path| std::fs::write(path, source).unwrap());
    let text = text.to_str().unwrap();
    let add = object("add.c", "int add(int n) { return n + 40; }");
    let archive = common::once_per(&["cli lazy archive"], "a", |path| {
        tool("ar", &["rcs".as_ref(), path.as_os_str(), std::ffi::OsStr::new(&add)]);
    });
    for provider in [&*add, archive.to_str().unwrap()] {
        assert_eq!(outcome(&["run", "--lazy", text, provider]), (Some(41), "begin\n".into(), String::new()));
    }
    fails(&["run", text, &add], &["cannot compile", "slabjit_has_no_such_directive"]);
    let (code, stdout, stderr) = outcome(&["run", "--lazy", text, &add, "--", "more"]);
    assert!(code.is_none() || code == Some(134), "{code:?}");
    assert_eq!(stdout, "");
    assert!(stderr.contains("'broken'") && stderr.contains("slabjit_has_no_such_directive"), "{stderr}");
    let (code, stdout, stderr) = outcome(&["run", "--lazy", "--entry", "nowhere", text, &add]);
    assert_eq!((code, &*stdout), (Some(125), ""));
    assert!(
        stderr.contains("no input defines the entry 'nowhere'; name the function to call with --entry"),
        "{stderr}"
    );
    // An entry of an object, and its initialisers.
    let object = object(
        "main.c",
        "int n; __attribute__((constructor)) static void f(void) { n = 7; } int main(void) { return n; }",
    );
    assert_eq!(outcome(&["run", "--lazy", &object]).0, Some(7));
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
    fails(&["run", "--entry", "add", "--library", "libnowhere-at-all.so.9", good], &["libnowhere-at-all.so.9"]);
    fails(&["run", &undefined, &undefined], &["twice", "main"]);
    fails(&["run"], &["OBJECT"]);
    fails(&["run", "--no-such-option", good], &["--no-such-option"]);
}

/// What a user of the program cannot write.
#[track_caller]
fn assert_no_method(text: &str) {
    for word in ["::", "Builder", "JitEngine", "ArenaPlacement", "SlabLayout", "Limits"] {
        assert!(!text.contains(word), "'{word}' is in: {text}");
    }
}

fn errors_speak_the_words_of_the_command_line() {
    let good = good_object();
    let good = good.to_str().unwrap();
    let temporary = temporary();
    let in_folder = |name: &str| temporary.join(name).to_str().unwrap().to_owned();
    let exported = compile("exported_word.c", "int exported_word(void) { return 33; }", &[]);
    let shared = common::link_shared("libexported_word.so", &[&exported], &[]);
    let (shared, folder) = (shared.to_str().unwrap(), shared.parent().unwrap().to_str().unwrap());
    let missing = object(
        "missing_word.c",
        "int exported_word(void), __cpu_word(void), TVMFFIWord(void); int main(void) { return exported_word() + \
         __cpu_word() + TVMFFIWord(); }",
    );
    let far = object("far_word.s", uses_far());
    let large = |name: &str| {
        object(
            &format!("{name}.c"),
            &format!("char {name}[1100 << 20]; int main_of_{name}(void) {{ return {name}[7]; }}"),
        )
    };
    let (one, other) = (large("large_one"), large("large_other"));
    let thin = in_folder("thin.a");
    tool("ar", &["rcs", "--thin", &thin, good]);
    let bitcode = in_folder("bitcode.o");
    std::fs::write(&bitcode, b"BC\xc0\xde....").unwrap();
    let archived = in_folder("archived.a");
    tool("ar", &["rcs", &archived, good]);
    let cases: &[(&[&str], &[&str])] = &[
        (
            &[&missing],
            &["exported_word (from ", "archive that defines them", "--library", "-L FOLDER", "--define NAME=ADDR"],
        ),
        (&[&missing], &["gcc -print-libgcc-file-name", "libtvm_ffi.so"]),
        (&["-L", folder, &missing], &["is exported by", &format!("add --library {shared}")]),
        (&[good], &["'main'", "--entry", "add, counter"]),
        (&["--entry", "counter", good], &["data", "--entry"]),
        (&["--entry", "add", "--library", "nowhere/libx.so", good], &["nowhere/libx.so", "-L", "--library"]),
        (&["--entry", "add", "--library", "libnowhere.so.9", good], &["libnowhere.so.9", "-L", "--library"]),
        (&["--entry", "add", "--library", good, good], &["--library", "a relocatable object"]),
        (&["--entry", "add", "--library", &archived, good], &["--library", "an archive"]),
        (&["--entry", "add", "--define", "add=0", good], &["'add' has the address 0", "--define add=ADDR"]),
        (&[shared], &["shared object", "--library"]),
        (&["--entry", "use", "--define", "far=0x712345678", &far], &["'far'", "-fPIC", "--place near-libraries"]),
        (&["--entry", "add", good, good], &["is defined twice", "leave one of them out"]),
        (&["--entry", "main_of_large_one", &one, &other], &["arena is exhausted", "give fewer objects"]),
        (&[&thin], &["thin archive", "ar rcs"]),
        (&[&bitcode], &["not valid LLVM IR"]),
        (&[&in_folder("no such.o")], &["no such.o", "No such file"]),
    ];
    for (arguments, words) in cases {
        let (code, stdout, stderr) = outcome(&[&["run"], *arguments].concat());
        assert_eq!((code, stdout.as_str()), (Some(125), ""), "{arguments:?}: {stderr}");
        words.iter().for_each(|word| assert!(stderr.contains(word), "'{word}' is not in: {stderr}"));
        assert_no_method(&stderr);
    }
    let nested = object(
        "nested_word.c",
        "__attribute__((noipa)) static int apply(int (*f)(int), int x) { return f(x); }
         int main(int argc, char **argv) { int add(int x) { return x + argc; } return apply(add, 40); }",
    );
    fails(&["run", &nested], &["executable stacks", "--executable-stack"]);
    let (code, stdout, _) = outcome(&["check", &nested]);
    assert!(code == Some(1) && stdout.contains("--executable-stack"), "{stdout}");
    assert_eq!(outcome(&["check", "-q", "--executable-stack", &nested]).0, Some(0));
    for arguments in [
        &[missing.as_str()][..],
        &[&nested],
        &["-L", folder, &missing],
        &[shared],
        &[good, good],
        &[&thin],
        &["--define", "far=0x712345678", &far],
    ] {
        for quiet in [&["check", "-q"][..], &["check"]] {
            let (code, stdout, stderr) = outcome(&[quiet, arguments].concat());
            assert_eq!((code, stderr.as_str()), (Some(1), ""), "{arguments:?}: {stdout}");
            assert_no_method(&stdout);
        }
    }
    let (code, help, _) = outcome(&["link", "--help"]);
    assert_eq!(code, Some(0));
    assert_no_method(&help);
    for of in ["run", "check", "map"] {
        let (code, help, _) = outcome(&[of, "--help"]);
        assert_eq!(code, Some(0));
        assert_no_method(&help);
        assert!(["--library", "-L", "--define", "--place"].iter().all(|option| help.contains(option)), "{help}");
    }
}

/// No line of a text is one that a name has made, and no escape sequence is in it.
#[track_caller]
fn assert_no_control(text: &str) {
    let acts = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!text.contains(acts), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
}

fn names_are_printed_without_control_characters() {
    let hostile = "\u{1b}[31mred\nforged: loads\r\u{9b}2J\u{202e}";
    // GNU's assembler takes such names.
    let source = format!(
        ".section \"s{hostile}\", \"aw\"\n.quad \"u{hostile}\"\n.globl \"d{hostile}\"\n\"d{hostile}\": .quad 0\n\
         .text\n.globl main\nmain: nop\n"
    );
    let plain = object("hostile_names.s", &source);
    let path = temporary().join(format!("{hostile}.o"));
    std::fs::copy(&plain, &path).unwrap();
    let path = path.to_str().unwrap();
    for arguments in [
        &["run", path][..],
        &["run", "--entry", hostile, path],
        &["run", path, path],
        &["run", "--library", path, "--entry", &format!("d{hostile}"), path],
        &["run", &format!("{path}.missing")],
        &["check", path],
        &["check", "-q", path],
        &["check", path, path],
        &["check", &format!("{path}.missing")],
        &["map", path, "-o", &format!("/nowhere/{hostile}")],
    ] {
        let (code, stdout, stderr) = outcome(arguments);
        assert!(matches!(code, Some(1 | 125)), "{stdout}{stderr}");
        assert_no_control(&stdout);
        assert_no_control(&stderr);
        assert!(
            format!("{stdout}{stderr}").contains("\\u{1b}[31mred\\nforged: loads\\r\\u{9b}2J\\u{202e}"),
            "{stdout}{stderr}"
        );
    }
    // For machines, names are what they are.
    let (_, stdout, _) = outcome(&["check", "--format", "json", path]);
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json[0]["object"], path);
    assert_eq!(json[0]["undefined"], serde_json::json!([format!("u{hostile}")]));
}

fn check_in_one_line_an_object() {
    let good = good_object();
    let good = good.to_str().unwrap();
    let undefined =
        object("quiet.c", "int missing_a(void), missing_b(void); int f(void) { return missing_a() + missing_b(); }");
    let far = object("judged.s", uses_far());
    for option in ["-q", "--quiet"] {
        let (code, stdout, stderr) = outcome(&["check", option, good]);
        assert_eq!((code, stdout, stderr), (Some(0), format!("{good}: loads\n"), String::new()));
        let (code, stdout, _) =
            outcome(&["check", option, "--define", "far=0x712345678", good, &undefined, &far, good, "/nowhere.o"]);
        assert_eq!(code, Some(1));
        let lines: Vec<_> = stdout.lines().collect();
        let [first, second, third, fourth, fifth] = *lines else { panic!("{stdout}") };
        assert_eq!(first, format!("{good}: loads"));
        assert_eq!(second, format!("{undefined}: does not load: undefined: missing_a, missing_b"));
        assert!(third.starts_with(&format!("{far}: does not load: ")) && third.contains("far"), "{third}");
        assert!(fourth.starts_with(&format!("{good}: does not load: ")) && fourth.contains("twice"), "{fourth}");
        assert!(fifth.starts_with("/nowhere.o: does not load: ") && fifth.contains("No such file"), "{fifth}");
    }
    assert_eq!(outcome(&["check", "-q", "--format", "json", good]).0, Some(2));
}

fn check_outlives_its_reader() {
    let good = good_object();
    let good = good.to_str().unwrap();
    for (arguments, expected) in [
        (&["check", good][..], 0),
        (&["check", "-q", good, "/nowhere.o"], 1),
        (&["check", "--format", "json", good], 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let program = env!("CARGO_BIN_EXE_slabjit");
        let child = target::run(program).args(arguments).stdout(writer).stderr(std::process::Stdio::piped()).spawn();
        let output = child.unwrap().wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*stderr), (Some(expected), ""), "{arguments:?}");
    }
    // A full disk is something else.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = target::run(env!("CARGO_BIN_EXE_slabjit")).args(["check", good]).stdout(full).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("No space left"), "{stderr}");
}

fn check_of_good_objects() {
    let good = good_object();
    let (code, stdout, stderr) = outcome(&["check", good.to_str().unwrap()]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("good.o") && stdout.contains(".text"), "{stdout}");
}

fn check_of_bad_objects() {
    let bad = object("checked_wax.s", ".section .wax,\"wax\",%progbits\nnop\n");
    let (code, stdout, _) = outcome(&["check", &bad]);
    assert_eq!(code, Some(1));
    assert!(stdout.contains("checked_wax.o") && stdout.contains("writable and executable"), "{stdout}");

    let user = object("checked_user.c", "int checked_provider(void); int f(void) { return checked_provider(); }");
    let provider = object("checked_provider.c", "int checked_provider(void) { return 1; }");
    let (code, stdout, _) = outcome(&["check", &user]);
    assert_eq!(code, Some(1));
    let last = stdout.trim_end().lines().next_back();
    assert!(stdout.contains("checked_provider") && last == Some("does not load with what was given"), "{stdout}");
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

/// Assembly of this machine that takes the address of `far`, and that loads from it.
fn uses_far() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        ".text\n.globl take, use\ntake: leaq far(%rip),%rax\n ret\nuse: movl far(%rip),%eax\n ret\n"
    } else {
        ".text\n.globl take, use\ntake: adrp x0, far\n ret\nuse: ldr x0, far\n ret\n"
    }
}

fn check_judges_references() {
    let path = object("judged.s", uses_far());
    // No arena is near of it, see `reach`.
    let far = ["check", "--format", "json", "--define", "far=0x712345678", &path];
    let (code, stdout, _) = outcome(&far);
    assert_eq!(code, Some(1), "{stdout}");
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let references = json[0]["plan"]["references"].as_array().unwrap();
    let verdicts: Vec<_> = references.iter().map(|r| (r["symbol"].as_str().unwrap(), &r["verdict"])).collect();
    assert_eq!(verdicts, [("far", &"bridged".into()), ("far", &"refused".into())]);
    assert_eq!(json[0]["loads"], false);
    let (least, greatest) =
        (references[1]["distance"][0].as_i64().unwrap(), references[1]["limit"][0].as_i64().unwrap());
    assert!(least < greatest, "{stdout}");

    // Running says the same.
    let (code, stdout, stderr) = outcome(&["run", "--entry", "take", "--define", "far=0x712345678", &path]);
    assert_eq!((code, stdout.as_str()), (Some(125), ""));
    assert!(stderr.contains("far") && !stderr.contains("'take'"), "{stderr}");

    // What another object defines lies in the arena.
    let provider = object("judged_far.c", "int far[4];");
    let (code, stdout, _) = outcome(&["check", "--format", "json", &path, &provider]);
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert!(json[0]["plan"]["references"].as_array().unwrap().iter().any(|r| r["verdict"] == "in_arena"), "{stdout}");
    assert_eq!(code, Some(0), "{stdout}");
    let (_, stdout, _) = outcome(&["check", "--define", "far=0x712345678", &path]);
    assert!(stdout.contains("bridged: .text+") && stdout.contains("refused: .text+"), "{stdout}");
}

/// Draws objects, and returns the exit code and the picture.
fn drawn(name: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let path = temporary().join(name);
    let (code, stdout, stderr) = outcome(&[&["map", "-o", path.to_str().unwrap()], arguments].concat());
    assert_eq!(stdout, "", "{stderr}");
    (code, std::fs::read_to_string(path).unwrap_or_default())
}

/// The texts that a picture shows.
#[track_caller]
fn texts(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    assert_eq!(document.root_element().tag_name().namespace(), Some("http://www.w3.org/2000/svg"));
    let shown = document.descendants().filter(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "text")));
    shown.map(|n| n.children().filter_map(|c| c.text().filter(|_| c.is_text())).collect()).collect()
}

fn map_draws_objects_of_both_architectures() {
    let source = "int elsewhere(int); int counter = 3; const int table[3] = {1, 2, 3};
                  int f(int x) { return elsewhere(x) + counter + table[x]; }";
    let compile = |name: &str, target: &str| {
        let path = compile_with("clang-22", name, source, &[&format!("--target={target}-unknown-linux-gnu"), "-O1"]);
        path.to_str().unwrap().to_owned()
    };
    let (arm, x86) = (compile("drawn_arm.c", "aarch64"), compile("drawn_x86.c", "x86_64"));
    let (code, svg) = drawn("both.svg", &[&arm, &x86]);
    assert_eq!(code, Some(0));
    let shown = texts(&svg);
    for wanted in ["elsewhere", ".text", ".data", ".rodata", "code (R-X)", "read-only data", "writable data"] {
        let times = shown.iter().filter(|text| text.starts_with(wanted)).count();
        assert!(times >= 2, "'{wanted}' is shown {times} times: {shown:?}");
    }
    for wanted in ["AArch64, ", "x86-64, ", "always in range", "in range within the arena", "bridged", "refused"] {
        assert!(shown.iter().any(|text| text.starts_with(wanted)), "'{wanted}': {shown:?}");
    }
    // Nothing defines `elsewhere`, which is judged for this machine only.
    let of = |machine: &str| shown.iter().find(|text| text.starts_with(machine)).unwrap();
    let (native, foreign) = target::by_arch(("x86-64, ", "AArch64, "), ("AArch64, ", "x86-64, "));
    assert!(of(native).ends_with("; does not load") && of(foreign).ends_with("; loads"), "{shown:?}");
    assert!(shown.iter().any(|text| text.starts_with("1 problem(s)")), "{shown:?}");
    // Nothing is where it is by chance.
    assert_eq!(drawn("again.svg", &[&arm, &x86]).1, svg);
    // What does not load is drawn as well.
    let far = ["--define", "far=0x712345678", &object("drawn_far.s", uses_far())];
    let (code, svg) = drawn("far.svg", &far);
    assert_eq!(code, Some(0));
    assert_eq!(drawn("again.svg", &far).1, svg);
    let document = roxmltree::Document::parse(&svg).unwrap();
    let titles: Vec<_> =
        document.descendants().filter(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "title"))).collect();
    for wanted in ["1 × bridged", "1 × refused"] {
        assert!(titles.iter().any(|title| title.text() == Some(wanted)), "{wanted}: {svg}");
    }
}

/// Each by itself fits into an arena.
fn check_counts_what_objects_take_together() {
    let object = |n: u32| object(&format!("half{n}.s"), &format!(".globl half{n}\n.bss\nhalf{n}: .skip 1200 << 20\n"));
    let (one, two) = (object(1), object(2));
    assert_eq!(outcome(&["check", &one]).0, Some(0));
    assert_eq!(outcome(&["check", &two]).0, Some(0));
    let (code, stdout, _) = outcome(&["check", &one, &two]);
    assert_eq!(code, Some(1));
    assert!(
        stdout.contains("conflict: with the objects before it, it takes 2516582400 bytes of the arena's"),
        "{stdout}"
    );
    let (code, _, stderr) = outcome(&["run", "--entry", "half1", &one, &two]);
    assert!(code == Some(125) && stderr.contains("the arena is exhausted"), "{stderr}");
}

fn check_says_what_is_known_of_undefined_names() {
    let source = "extern char __ehdr_start, __morestack; void *at[] = { &__ehdr_start, &__morestack };";
    let (code, stdout, _) = outcome(&["check", &object("known_names.c", source)]);
    assert_eq!(code, Some(1));
    for wanted in ["undefined: __ehdr_start (is a bound of the file", "undefined: __morestack (is in libgcc.a"] {
        assert!(stdout.contains(wanted), "{wanted}: {stdout}");
    }
}

fn map_escapes_names() {
    let hostile = "<script>&amp;\u{1}\u{fffe}'</svg>]]>-->";
    let source = format!(
        ".section \"{hostile}\", \"aw\"\n.quad \"{hostile}x\"\n.globl \"{hostile}y\"\n\"{hostile}y\": .quad 0\n"
    );
    // GNU's assembler takes such names.
    let (code, svg) = drawn("hostile.svg", &[&object("hostile.s", &source)]);
    assert_eq!(code, Some(0));
    let shown = texts(&svg);
    let seen = hostile.replace(['\u{1}', '\u{fffe}'], "\u{fffd}");
    assert!(shown.contains(&seen), "{seen:?}: {shown:?}");
    assert!(shown.contains(&format!("{seen}x")), "{shown:?}");
}

fn map_writes_all_or_nothing() {
    let good = good_object();
    let good = good.to_str().unwrap();
    let output = temporary().join("nothing.svg");
    let path = output.to_str().unwrap();
    let text = object("no_object.c", "int f;").replace(".o", ".c");
    for objects in [&["/nowhere/at-all.o"][..], &[good, &text], &[good, "/nowhere/at-all.o"]] {
        let (code, stdout, stderr) = outcome(&[&["map", "-o", path], objects].concat());
        assert_eq!((code, stdout.as_str()), (Some(1), ""));
        assert!(stderr.contains(objects.last().unwrap()), "{stderr}");
        assert!(!output.exists());
    }
    // A picture that is there stays.
    std::fs::write(&output, "old").unwrap();
    assert_eq!(outcome(&["map", "-o", path, "/nowhere/at-all.o"]).0, Some(1));
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "old");
    let (code, _, stderr) = outcome(&["map", good, "-o", "/nowhere/at-all.svg"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("at-all.svg"), "{stderr}");
    assert_eq!(outcome(&["map", good]).0, Some(2));
    // Nothing is left beside it.
    assert_eq!(outcome(&["map", good, "-o", path]).0, Some(0));
    let beside = std::fs::read_dir(temporary()).unwrap().map(|entry| entry.unwrap().file_name());
    let beside: Vec<_> = beside.filter(|name| name.to_string_lossy().starts_with("nothing.svg")).collect();
    assert_eq!(beside, ["nothing.svg"]);
}

fn link_makes_what_run_loads() {
    let speaking = object("speaking_image.c", SPEAKING);
    let (needed, image) = (temporary().join("needed_image.a"), temporary().join("speaking_image.so"));
    let image = image.to_str().unwrap();
    assert_eq!(outcome(&["link", &speaking, "-o", image]), (Some(0), String::new(), String::new()));
    let spoken = "init\nmain\nhandler\nfini\n";
    for layout in ["packed", "per-object"] {
        assert_eq!(outcome(&["run", "--layout", layout, image]), (Some(5), spoken.into(), String::new()));
        assert_eq!(outcome(&["run", "--layout", layout, image, "--", "7"]), (Some(7), spoken.into(), String::new()));
    }
    let member = compile("needed_image.c", "int needed(int n) { return n + 1; }", &[]);
    tool("ar", &["rcs", needed.to_str().unwrap(), member.to_str().unwrap()]);
    let main = object("main_image.c", "int needed(int); int main(int argc, char **argv) { return needed(argc); }");
    assert_eq!(outcome(&["link", "-o", image, &main, needed.to_str().unwrap()]).0, Some(0));
    assert_eq!(outcome(&["run", image, "--", "a", "b"]), (Some(4), String::new(), String::new()));
}

fn link_writes_the_same_bytes_each_time() {
    let objects =
        [object("first_same.c", SPEAKING), object("second_same.c", "int f(int n) { static int k; return k += n; }")];
    let link = |number: usize| {
        let image = temporary().join(format!("same{number}.so"));
        let arguments = ["link", "-o", image.to_str().unwrap(), &objects[0], &objects[1]];
        assert_eq!(outcome(&arguments).0, Some(0));
        std::fs::read(image).unwrap()
    };
    let first = link(0);
    assert!((1..target::by_qemu(20, 2)).all(|number| link(number) == first));
}

fn link_packs_relocations_on_request() {
    let source = "static int numbers[] = {4, 5}; int *pointers[] = {&numbers[1], numbers};
        int main(int argc, char **argv) { return *pointers[argc & 1]; }";
    let object = object("main_packed.c", source);
    for (option, tag) in [(&[][..], "(RELA)"), (&["--pack-relative-relocs"], "(RELR)")] {
        let image = temporary().join(format!("packed_{}.so", option.len()));
        let image = image.to_str().unwrap();
        let arguments = [&["link", "-o", image, &*object], option].concat();
        assert_eq!(outcome(&arguments), (Some(0), String::new(), String::new()));
        assert_eq!(outcome(&["run", image]).0, Some(4));
        let dynamic = common::tool("readelf", &["-d", image]);
        assert!(["(RELA)", "(RELR)"].into_iter().all(|of| dynamic.contains(of) == (of == tag)), "{dynamic}");
    }
}

/// XOP, which only some of AMD's CPUs have; SVE, which qemu is told to have not.
const RARE: (&str, &str) = target::by_arch(
    (".globl rare\n.type rare, @function\nrare: nop\n vphaddbw %xmm0, %xmm1\n ret\n.size rare, . - rare\n", "XOP"),
    (
        ".arch armv8-a+sve\n.globl rare\n.type rare, %function\nrare: nop\n ptrue p0.b\n ret\n.size rare, . - rare\n",
        "SVE",
    ),
);

fn check_says_what_the_cpu_must_have() {
    let (source, feature) = RARE;
    let plain = object("plain_cpu.c", "int plain(int n) { return n + 1; }");
    let rare = object("rare_cpu.s", source);
    let image = temporary().join("rare_cpu.so");
    let image = image.to_str().unwrap();
    assert_eq!(outcome(&["link", &plain, &rare, "-o", image]).0, Some(0));
    let offset = target::by_arch(1, 4);
    let (code, stdout, stderr) = outcome(&["check", "--cpu", &rare, image]);
    let missing = stdout.contains("(not in this CPU)");
    assert_eq!((code, stderr.as_str()), (Some(i32::from(missing)), ""), "{stdout}");
    for name in [&*rare, image] {
        let line = format!("{name}: rare needs {feature} at +{offset:#x}");
        assert!(stdout.lines().any(|told| told.starts_with(&line)), "{line}: {stdout}");
    }
    let every = format!("{plain}: its functions run on every CPU\n");
    assert_eq!(outcome(&["check", "--cpu", &plain]), (Some(0), every, String::new()));
    let (_, json, _) = outcome(&["check", "--cpu", "--format", "json", &rare]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let told = &json[0]["functions"][0];
    assert_eq!((&told["function"], &told["features"][0]["name"]), (&"rare".into(), &feature.into()));
    assert_eq!((&told["features"][0]["present"], &told["unknown"]), (&(!missing).into(), &false.into()));
    if !missing {
        println!("not run: this CPU has {feature}");
        return;
    }
    fails(&["run", "--entry", "rare", image], &["'rare'", feature, "this CPU has not got it", "--cpu rare="]);
    let unknown = format!("rare={feature}2000");
    fails_with(1, &["link", &rare, "--cpu", &unknown, "-o", image], &["'rare'", "2000", feature]);
    fails_with(1, &["link", &rare, "--cpu", "rear=", "-o", image], &["'rear'", "--cpu"]);
    fails_with(2, &["link", &rare, "--cpu", "rare", "-o", image], &["FUNCTION=FEATURE"]);
    let wanted = format!("plain={feature}");
    assert_eq!(outcome(&["link", &plain, &rare, "--cpu", "rare=", "--cpu", &wanted, "-o", image]).0, Some(0));
    let stdout = outcome(&["check", "--cpu", "-q", image]).1;
    assert_eq!(stdout, format!("{image}: plain needs {feature} at +0x0 (not in this CPU)\n"));
}

fn contracts_are_linked_in() {
    let scale =
        object("scale_contract.c", "void scale(const float *x, float *y, long n) { (void)x, (void)y, (void)n; }");
    let (image, contract) = (temporary().join("contract.so"), temporary().join("scale.contract"));
    std::fs::write(&contract, "# Of y, each element is written.\nscale(x: in f32[n], y: out f32[n], n: i64)\n")
        .unwrap();
    let (path, contract) = (image.to_str().unwrap(), contract.to_str().unwrap());
    assert_eq!(outcome(&["link", &scale, "--contract", contract, "-o", path]), (Some(0), String::new(), String::new()));
    let library = slabjit::JitEngine::new().unwrap().add_image_file(&image).unwrap();
    let expected = "scale(x: in f32[n], y: out f32[n], n: i64)".parse::<slabjit::KernelSignature>().unwrap();
    assert_eq!(library.signature("scale").unwrap(), expected);
    for (text, words) in [
        ("scale(x: in float[n])", &["scale.contract'", "line 1, column 13", "f32"][..]),
        ("scael(x: in f32[n])", &["scael", "--contract"]),
    ] {
        std::fs::write(contract, text).unwrap();
        fails_with(1, &["link", &scale, "--contract", contract, "-o", path], words);
    }
    fails_with(1, &["link", &scale, "--contract", "/nowhere/at-all", "-o", path], &["/nowhere/at-all"]);
}

/// Fails with this status, and says these words on standard error.
fn fails_with(status: i32, arguments: &[&str], words: &[&str]) {
    let (code, stdout, stderr) = outcome(arguments);
    assert_eq!((code, stdout.as_str()), (Some(status), ""), "{stderr}");
    words.iter().for_each(|word| assert!(stderr.contains(word), "'{word}' is not in: {stderr}"));
    assert_no_method(&stderr);
}

fn link_fails_with_1() {
    let good = good_object();
    let good = good.to_str().unwrap();
    let output = temporary().join("no_image.so");
    let path = output.to_str().unwrap();
    let foreign = common::link_shared("foreign_image.so", &[std::path::Path::new(good)], &[]);
    let fixed = compile("fixed_image.c", "extern int g; int f(void) { return g; }", &["-fno-pic", "-O1"]);
    let cases: &[(&[&str], &[&str])] = &[
        (&["/nowhere/at-all.o"], &["/nowhere/at-all.o"]),
        (&[good, good], &["is defined twice", "leave one of them out"]),
        (&[fixed.to_str().unwrap()], &["fixed_image.o", ".text", "'g'", "-fPIC"]),
        (&[foreign.to_str().unwrap()], &["shared object"]),
        (&["--library", good, good], &["no shared library"]),
    ];
    for (arguments, words) in cases {
        let (code, stdout, stderr) = outcome(&[&["link", "-o", path], *arguments].concat());
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
        words.iter().for_each(|word| assert!(stderr.contains(word), "'{word}' is not in: {stderr}"));
        assert_no_method(&stderr);
        assert!(!output.exists());
    }
    let (code, _, stderr) = outcome(&["link", good, "-o", "/nowhere/at-all.so"]);
    assert!(code == Some(1) && stderr.contains("/nowhere/at-all.so"), "{stderr}");
    assert_eq!(outcome(&["link", good]).0, Some(2));
    let image = temporary().join("alone_image.so");
    let image = image.to_str().unwrap();
    assert_eq!(outcome(&["link", good, "-o", image]).0, Some(0));
    let beside = object("beside_image.c", "int beside;");
    fails(&["run", "--entry", "add", image, &beside], &["alone_image.so", "together"]);
}

fn cache_folders_are_looked_after() {
    let folder = tempfile::tempdir_in(temporary()).unwrap();
    let path = folder.path().join("cache");
    let folder = path.to_str().unwrap();
    let missing = outcome(&["cache", "stats", folder]);
    assert!(missing.0 == Some(1) && missing.2.contains(folder) && missing.2.contains("No such file"), "{missing:?}");
    assert!(!path.exists());

    let cache = slabjit::ObjectCache::open(&path).unwrap();
    let objects = [vec![1; 1000], vec![2; 2000], vec![3; 3000]];
    let key = |object: &[u8]| slabjit::CacheKey::new([object]);
    for (object, hours) in objects.iter().zip([4, 2, 3]) {
        cache.put(&key(object), object).unwrap();
        let used = std::time::SystemTime::now() - std::time::Duration::from_secs(hours * 3600);
        let names = [format!("{}.o", blake3::hash(object)), format!("{}.key", key(object))];
        for name in names {
            std::fs::File::open(path.join(name)).unwrap().set_modified(used).unwrap();
        }
    }
    let files = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    let bytes: u64 = files.filter(std::fs::Metadata::is_file).map(|status| status.len()).sum();
    let counted = outcome(&["cache", "stats", folder]);
    assert_eq!(counted, (Some(0), format!("3 entries, {bytes} bytes\n"), String::new()));
    assert_eq!(outcome(&["cache", "verify", folder]).1, "3 entries, 6000 bytes can be used\n");
    // What was not used for the longest time comes first.
    let listed = outcome(&["cache", "ls", folder]).1;
    let keys: Vec<_> = listed.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect();
    assert_eq!(keys, [0, 2, 1].map(|i| key(&objects[i]).to_string()));
    let json: serde_json::Value = serde_json::from_str(&outcome(&["cache", "ls", "--json", folder]).1).unwrap();
    let of_first = (&json[0]["key"], &json[0]["kind"], &json[0]["bytes"], &json[0]["cpu"]);
    assert_eq!(of_first, (&keys[0].clone().into(), &"object".into(), &1000.into(), &serde_json::Value::Null));

    let left = bytes - 1000 - (bytes - 6000) / 3;
    let json = outcome(&["cache", "gc", "--max-entries", "2", "--json", folder]);
    let value: serde_json::Value = serde_json::from_str(&json.1).unwrap();
    assert_eq!((&value["entries"], &value["removed_entries"]), (&2.into(), &1.into()));
    assert_eq!((&value["bytes"], &value["removed_bytes"]), (&left.into(), &(bytes - left).into()));
    // What was used last stays.
    let of_two = outcome(&["cache", "gc", "--max-bytes", "3K", folder]);
    assert!(of_two.0 == Some(0) && of_two.1.starts_with("removed 1 entries, "), "{of_two:?}");
    assert!(cache.get(&key(&objects[1])).unwrap().is_some() && cache.get(&key(&objects[2])).unwrap().is_none());

    std::fs::write(path.join(format!("{}.o", blake3::hash(&objects[1]))), vec![9; 2000]).unwrap();
    let (code, text, _) = outcome(&["cache", "verify", folder]);
    assert!(code == Some(1) && text.starts_with("0 entries, 0 bytes can be used\n"), "{text}");
    assert!(text.contains("its bytes do not have the hash") && text.contains(".o.refused"), "{text}");
    // It was moved aside.
    assert_eq!(outcome(&["cache", "verify", folder]).0, Some(0));

    for (arguments, says) in [
        (&["cache", "gc", folder][..], "--max-entries"),
        (&["cache", "gc", "--max-bytes", "2X", folder], "such as 500M or 2G"),
        (&["cache", "gc", "--max-bytes", "99999999999G", folder], "more than any disk has"),
        (&["cache"], "stats"),
    ] {
        let (code, _, error) = outcome(arguments);
        assert!(code == Some(2) && error.contains(says), "{arguments:?}: {error}");
    }
}

fn version_names_crate_and_llvm() {
    let (code, stdout, _) = outcome(&["--version"]);
    assert_eq!(code, Some(0));
    // The LLVM that the crate was compiled for, as its own tool spells it.
    let major = slabjit::llvm_version();
    let llvm = common::tool(&format!("llvm-config-{major}"), &["--version"]);
    assert!(stdout.contains(env!("CARGO_PKG_VERSION")) && stdout.contains(llvm.trim()), "{stdout}");
}

fn version_says_what_the_machine_offers() {
    let (code, stdout, _) = outcome(&["--version"]);
    assert_eq!(code, Some(0));
    for (what, file, limit) in [
        ("perf: records own programs", "/proc/sys/kernel/perf_event_paranoid", 2),
        ("attaching: to processes of the same user", "/proc/sys/kernel/yama/ptrace_scope", 0),
    ] {
        if let Ok(value) = std::fs::read_to_string(file) {
            assert_eq!(stdout.contains(what), value.trim().parse::<i32>().unwrap() <= limit, "{value}: {stdout}");
        }
    }
    assert!(stdout.contains("debuggers: see loaded code"), "{stdout}");
    let known = slabjit::JitEngine::new().unwrap().stats().arena.known_to_loader;
    let loader = format!("dynamic loader: {}", if known { "knows" } else { "does not know" });
    assert!(stdout.contains(&loader), "{stdout}");
    let stripped = temporary().join("stripped");
    std::fs::copy(env!("CARGO_BIN_EXE_slabjit"), &stripped).unwrap();
    tool("strip", &[&stripped]);
    let output = target::run(&stripped).arg("--version").output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("debuggers: see no loaded code"), "{stdout}");
    // The short form is one line.
    assert_eq!(outcome(&["-V"]).1.lines().count(), 1);
}

/// bash itself reads it, and offers what the help lists.
fn completions_are_scripts() {
    let (status, script, errors) = outcome(&["completions", "bash"]);
    assert_eq!((status, &*errors), (Some(0), ""));
    let file = temporary().join("completions.bash");
    std::fs::write(&file, script).unwrap();
    let ask =
        "source \"$0\"; COMP_WORDS=(slabjit ''); COMP_CWORD=1; _slabjit slabjit '' slabjit; echo \"${COMPREPLY[@]}\"";
    let bash = std::process::Command::new("bash").args(["--norc", "-c", ask]).arg(&file).output().unwrap();
    let offered = String::from_utf8_lossy(&bash.stdout).into_owned();
    let offered: Vec<_> = offered.split_whitespace().collect();
    for wanted in ["run", "check", "map", "completions", "man"] {
        assert!(offered.contains(&wanted), "{offered:?} {}", String::from_utf8_lossy(&bash.stderr));
    }
    assert_eq!(outcome(&["completions", "nothing"]).0, Some(2));
}

fn manual_has_a_page_for_each_command() {
    let (status, text, errors) = outcome(&["man"]);
    assert_eq!((status, &*errors), (Some(0), ""));
    let commands = |of: &[&str]| -> Vec<String> {
        let (_, help, _) = outcome(&[of, &["--help"]].concat());
        let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names = lines.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        names.map(str::to_owned).collect()
    };
    let mut names = commands(&[]);
    assert!(names.len() >= 5, "{names:?}");
    for of in names.clone() {
        names.extend(commands(&[&of]).iter().map(|name| format!("{of}-{name}")));
    }
    assert!(names.iter().any(|name| name == "cache-gc"), "{names:?}");
    for name in &names {
        assert!(text.contains(&format!(".TH slabjit-{name} 1")), "{name}: {text}");
    }
    assert_eq!(text.matches(".TH ").count(), names.len() + 1);
    assert!(text.contains("executable\\-stack"), "{text}");
}

/// By default, signals are those of a fresh process.
fn run_reports_crashes_if_asked() {
    use std::os::unix::process::ExitStatusExt as _;
    let source = "#include <signal.h>
        #include <string.h>
        __attribute__((noinline)) static int reads(volatile int *p) { return *p; }
        __attribute__((noinline)) static int deep(int n) { volatile char a[999]; a[n % 999] = n; return deep(n + 1) + a[0]; }
        static int signals(void) {
            int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE }; int n = 0; stack_t stack;
            for (int i = 0; i < 5; i++) { struct sigaction a; sigaction(signals[i], 0, &a); n += a.sa_handler != SIG_DFL; }
            sigaltstack(0, &stack); return n + 10 * !(stack.ss_flags & SS_DISABLE);
        }
        int main(int argc, char **argv) {
            if (argc == 1) return signals();
            return (strcmp(argv[1], \"deep\") ? reads((int *)8) : deep(argc)) + 1;
        }";
    let path = object("crashes.c", source);
    assert_eq!(outcome(&["run", &path]), (Some(0), String::new(), String::new()));
    assert_eq!(outcome(&["run", "--crash-report", &path]), (Some(15), String::new(), String::new()));
    for (argument, function) in [("read", "reads"), ("deep", "deep")] {
        let silent = slabjit(&["run", &path, "--", argument]);
        // qemu-user says it, too.
        let said = String::from_utf8_lossy(&silent.stderr).lines().filter(|line| !line.starts_with("qemu: ")).count();
        assert_eq!((silent.status.signal(), said), (Some(libc::SIGSEGV), 0));
        let reported = slabjit(&["run", "--crash-report", &path, "--", argument]);
        let stderr = String::from_utf8_lossy(&reported.stderr).into_owned();
        assert_eq!(reported.status.signal(), Some(libc::SIGSEGV), "{stderr}");
        let lines: Vec<_> = stderr.lines().collect();
        assert!(lines[0].starts_with("slabjit: SIGSEGV at 0x"), "{stderr}");
        assert!(lines[1].starts_with(&format!("slabjit:   in {function}+0x")), "{stderr}");
        assert!(lines[1].contains("crashes.o' of library "), "{stderr}");
        assert_eq!(stderr.contains("the stack has probably overflowed"), argument == "deep", "{stderr}");
    }
    let (_, stdout, _) = outcome(&["run", "--help"]);
    assert!(stdout.contains("--crash-report") && stdout.contains("alternate signal stack"), "{stdout}");
}
