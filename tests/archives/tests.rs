//! Tests of this program: that it reports right, also what crashes, hangs or would run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::elf::Object;
use crate::{contents, lljit, low, ours};

pub fn run() -> ExitCode {
    let test = |name: &str, run: fn()| {
        let body = move || -> Result<(), Failed> {
            run();
            Ok(())
        };
        Trial::test(format!("archives::{name}"), body)
    };
    let mut tests = vec![test("images_are_counted", images_are_counted)];
    if cfg!(feature = "llvm") {
        tests.push(test("each_member_is_reported", each_member_is_reported));
        tests.push(test("wrong_contents_are_found", wrong_contents_are_found));
    }
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// Code, data, a GOT entry, a branch to an import, and a section that only a field leads to.
const GOOD: &str = "
    extern int imported(int); extern int far_data; static const char *const words[] = { \"one\", \"two\" };
    const char *word(int i) { return words[i]; }
    int zero[4]; int *pointer = &zero[2];
    int good(int x) { return imported(x) + far_data + zero[x]; }";

fn compile(source: &str, flags: &[&str]) -> Vec<u8> {
    let compiler = std::env::var("SLABJIT_TEST_CROSS").map_or("gcc".into(), |cross| format!("{cross}-gcc"));
    let folder = tempfile::tempdir().unwrap();
    let (file, object) = (folder.path().join("member.c"), folder.path().join("member.o"));
    std::fs::write(&file, source).unwrap();
    let status = Command::new(compiler).args(["-O2", "-c"]).args(flags).arg(&file).arg("-o").arg(&object).status();
    assert!(status.unwrap().success(), "{source}");
    std::fs::read(object).unwrap()
}

/// `ar`, without an index (POSIX; names of at most 15 bytes).
fn archive(path: &Path, members: &[(&str, &[u8])]) {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, contents) in members {
        let header = format!("{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", format!("{name}/"), 0, 0, 0, 644, contents.len());
        bytes.extend(header.as_bytes());
        bytes.extend(*contents);
        bytes.resize(bytes.len().next_multiple_of(2), b'\n');
    }
    std::fs::write(path, bytes).unwrap();
}

fn this_program() -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = match std::env::var_os("SLABJIT_TEST_RUNNER") {
        Some(runner) => {
            let mut command = Command::new(runner);
            command.arg(&program);
            command
        }
        None => Command::new(&program),
    };
    command.arg("--archives");
    command
}

fn images_are_counted() {
    let hidden = "__attribute__((visibility(\"hidden\")))";
    let good = compile(GOOD, &["-fPIC"]);
    // The image has it of another object.
    let of_image = format!("{hidden} extern int there; int *where = &there; int get(void) {{ return there; }}");
    let of_image = compile(&of_image, &["-fPIC"]);
    let fixed = compile("extern int far; int get(void) { return far; }", &["-fno-pic", "-mcmodel=small"]);
    let in_code = "extern int far; __asm__(\".text\\n.balign 8\\n.globl word\\nword: .quad far\");";
    let in_code = compile(in_code, &["-fPIC"]);
    // A distance to another module, and one from the thread pointer, which only programs have.
    let distance = if cfg!(target_arch = "x86_64") {
        compile("extern int far; __asm__(\".data\\n.globl word\\nword: .quad far - .\");", &["-fPIC"])
    } else {
        compile("static __thread int v; int *get(void) { return &v; }", &["-fPIC", "-ftls-model=local-exec"])
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libtest.a");
    let members: &[(&str, &[u8])] = &[
        ("good.o", &good),
        ("hidden.o", &of_image),
        ("fixed.o", &fixed),
        ("code.o", &in_code),
        ("distance.o", &distance),
    ];
    archive(&path, members);
    let pinned = folder.path().join("pinned.txt");
    let run = |lines: &str, options: &[&str]| {
        std::fs::write(&pinned, lines).unwrap();
        let output = this_program().arg("--images").args(options).arg("--pinned").arg(&pinned).arg(&path).output();
        let output = output.unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    };
    let (abs, fixed) = if cfg!(target_arch = "x86_64") {
        ("R_X86_64_64", "R_X86_64_PC32")
    } else {
        ("R_AARCH64_ABS64", "R_AARCH64_ADR_PREL_PG_HI21")
    };
    let lines = [
        "# Known.",
        "libtest.a(distance.o) nobody knows it",
        "libother.a: 7 linked",
        "libtest.a: 2 linked",
        "libtest.a: 2 read back",
        &format!("libtest.a: 1 refused: NotPositionIndependent {fixed}, and by ld -shared"),
        &format!(
            "libtest.a: 1 refused: NotPositionIndependent {abs}, of which ld -shared makes code that is changed at load \
             (DT_TEXTREL)"
        ),
        "libtest.a: 1 refused: ld -shared takes it; but nobody knows it",
    ];
    let without = |left_out: usize| {
        let kept = lines.iter().enumerate().filter(|(i, _)| *i != left_out);
        kept.map(|(_, line)| format!("{line}\n")).collect::<String>()
    };
    let all = without(usize::MAX);
    let (text, code) = run(&all, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("verified in memory, here alone: 2 objects"), "{text}");
    // A part of them has no other outcomes.
    assert_eq!(run(&all, &["--sample", "2"]).1, Some(0));
    assert_eq!(run(&all, &["--only", "good"]).1, Some(0));
    // Without its reason, what GNU ld takes has failed; another outcome is one more or less than is known.
    let (text, code) = run(&without(1), &[]);
    assert!(code == Some(1) && text.contains("failed here:\n       1  ld -shared takes it: "), "{text}");
    for (left_out, line) in lines.iter().enumerate().skip(3) {
        let (text, code) = run(&without(left_out), &[]);
        let line = format!("  {line} (pinned: 0)\n");
        assert!(code == Some(1) && text.contains(&line), "{line} is not in {text}");
    }
    let (text, code) = run(&all.replace("2 linked", "3 linked"), &[]);
    assert!(code == Some(1) && text.contains("libtest.a: 2 linked (pinned: 3)"), "{text}");
    let (text, code) = run(&format!("{all}libtest.a: 4 failed: more\nlibtest.a(good.o) none\n"), &[]);
    assert!(code == Some(1) && text.contains("libtest.a: 0 failed: more (pinned: 4)"), "{text}");
    assert!(text.contains("libtest.a(good.o) needs no reason any more"), "{text}");
    // Of a part, too, none is known that is not.
    assert_eq!(run(&all.replace("2 linked", "1 linked"), &[]).1, Some(1));
    assert_eq!(run(&without(3), &["--sample", "2"]).1, Some(1));
}

fn each_member_is_reported() {
    let good = compile(GOOD, &["-fPIC"]);
    let thread_local = compile("static __thread int v = 7; int read(void) { return v++; }", &["-fPIC"]);
    let initialiser = compile("__attribute__((constructor)) void runs(void) { __builtin_trap(); }", &["-fPIC"]);
    let marked =
        |section: &str| compile(&format!("__attribute__((section(\"{section}\"))) int marked = 1;"), &["-fPIC"]);
    let (crash, hang) = (marked(".slabjit.test.crash"), marked(".slabjit.test.hang"));
    let hidden =
        compile("static int nobody(void) { return 1; } static int (*used)(void) __attribute__((used)) = nobody;", &[]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libtest.a");
    let members: &[(&str, &[u8])] = &[
        ("good.o", &good),
        ("tls.o", &thread_local),
        ("broken.o", &good[..good.len() / 2]),
        ("crash.o", &crash),
        ("hang.o", &hang),
        ("init.o", &initialiser),
        ("hidden.o", &hidden),
        ("text.txt", b"no object"),
    ];
    archive(&path, members);

    let output = this_program().args(["--jobs", "2", "--timeout", "5", "--list"]).arg(&path).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let all = text.split_once("\nall:\n").unwrap_or_else(|| panic!("{output:?}")).1;
    let line = |member: &str| {
        let start = format!("  libtest.a({member}): ");
        let found = all.lines().find_map(|l| l.strip_prefix(start.as_str()));
        found.unwrap_or_else(|| panic!("no line for {member} in {text}")).to_owned()
    };
    let assert_line = |member: &str, ours: &str, stock: &str| {
        let line = line(member);
        let (left, right) = line.split_once("; stock ").unwrap_or_else(|| panic!("{line}"));
        let stock = if lljit::is_jitlink() { stock } else { "" };
        assert!(left.starts_with(ours) && right.starts_with(stock), "{member}: {line}");
    };
    assert_line("good.o", "linked", "linked");
    assert_line("broken.o", "refused: Truncated", "failed: ");
    assert_line("crash.o", "failed: crashed with signal 6", "failed: crashed with signal 6");
    assert_line("hang.o", "failed: hung", "failed: hung");
    assert_line("init.o", "linked", "linked");
    assert_line("hidden.o", "linked", "never asked");
    assert_line("text.txt", "refused: NotAnObject", "failed: ");
    assert_line("tls.o", "linked", "");

    let verified = |side: &str| -> Vec<usize> {
        let verified = text.split_once(&format!("verified in memory, {side}: ")).unwrap_or_else(|| panic!("{text}")).1;
        verified.lines().next().unwrap().split(' ').filter_map(|word| word.parse().ok()).collect()
    };
    // Of good.o, 5 sections; of what stock does not link, tls.o's .text at least where it does not.
    let (both, alone) = (verified("on both sides"), verified("here alone"));
    if lljit::is_jitlink() {
        assert!(both[0] >= 1 && both[1] >= 5, "{text}");
        assert_eq!(alone[0], usize::from(!line("tls.o").ends_with("stock linked")), "{text}");
    } else {
        assert!(both[0] == 0 && alone[0] >= 2 && alone[1] >= 6, "{text}");
    }
    assert!(!text.contains("contents that are wrong"), "{text}");
    // Two did not end well.
    assert_eq!(output.status.code(), Some(1), "{text}");
}

fn wrong_contents_are_found() {
    let bytes = compile(GOOD, &["-fPIC"]);
    let object = Object::parse(&bytes).unwrap();
    let imports = low::traps(object.imports()).unwrap();
    let library = ours::link("good.o", &bytes, &imports, &[], false, || {}).unwrap();
    let symbols = contents::exported(&object, &library);
    let verify = |object: &Object<'_>, imports: &BTreeMap<String, usize>| contents::verify(object, imports, &symbols);

    let verified = verify(&object, &imports).unwrap();
    // .text, .data or .data.rel.local, .bss, .data.rel.ro.local, .rodata.str.
    assert!(verified.sections == 5 && verified.fields >= 6 && verified.bytes > 40, "{verified:?}");

    // A byte of each section, other than in a field of code or data that is checked as such.
    for section in [".text", ".rodata.str1.1", ".rodata.str1.8"] {
        let Some(index) = object.sections.iter().position(|s| s.name == section && s.size > 0) else { continue };
        let in_field =
            |at: &u64| object.sections[index].relocations.iter().any(|r| (r.offset..r.offset + 8).contains(at));
        let at = (0..object.sections[index].size).find(|at| !in_field(at)).unwrap();
        let mut changed = object.sections[index].bytes.to_vec();
        changed[at as usize] ^= 1;
        let mut other = Object::parse(&bytes).unwrap();
        other.sections[index].bytes = &changed;
        let error = verify(&other, &imports).unwrap_err();
        assert!(error.contains(&format!("{section}+{at:#x} is ")), "{section}: {error}");
    }
    // An import that is elsewhere, and a symbol that is elsewhere in its section.
    for name in ["imported", "far_data"] {
        let mut elsewhere = imports.clone();
        *elsewhere.get_mut(name).unwrap() += 64;
        let error = verify(&object, &elsewhere).err();
        assert!(error.as_ref().is_some_and(|e| e.contains(name)), "{name}: {error:?}");
    }
    let mut other = Object::parse(&bytes).unwrap();
    let zero = other.symbols.iter_mut().find(|s| s.name == "pointer").unwrap();
    zero.value += 8;
    assert!(verify(&other, &imports).is_err());
}
