//! What GDB sees of loaded code, beside what it sees of the same object as a program or a shared library. Each test
//! starts GDB on a process of its own, or lets it attach to one.

use std::io::{BufRead as _, BufReader, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use slabjit::{DebugInfo, ImageBuilder, JitEngine, Library, SlabLayout};

use crate::common::{self, call, child_command, freed, temporary, tests, thread_time, tool};
use crate::target::{self, not_under_qemu, under_qemu, under_valgrind};

tests![
    a_program_that_gdb_starts_has_names,
    a_program_that_gdb_starts_has_lines_as_natively,
    gdb_attaches_and_reads_a_core_file,
    gdb_sees_what_is_loaded_and_removed_while_it_is_attached,
    gdb_attaches_to_ten_thousand_objects,
    lldb_sees_names_and_lines,
    a_program_under_qemu_has_names_and_lines,
    perf_has_names_of_what_ran_when;
    parts: waits_with_engines, loads_and_removes, waits_with_ten_thousand, spins
];

const PROGRAM: &str = "
#include <stdio.h>
struct pair { int first, second; };
__attribute__((noinline)) int the_leaf(struct pair *pair) {
    volatile int local = pair->first * 3;
    return local + pair->second;
}
static inline __attribute__((always_inline)) int inlined(struct pair *pair) {
    return the_leaf(pair) + 1;
}
__attribute__((noinline)) int the_outer(int x) {
    struct pair pair = { x, x + 1 };
    int result = inlined(&pair);
    pair.first = 0;
    return result + pair.first;
}
int main(void) {
    printf(\"%d\\n\", the_outer(14));
    return 0;
}
";

/// Says and returns true if GDB cannot be run here.
fn no_gdb() -> bool {
    if not_under_qemu("GDB sees qemu, not the program") {
        return true;
    }
    let there =
        Command::new("gdb").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if !there {
        println!("not run: there is no gdb");
    } else if under_valgrind() {
        println!("not run under valgrind");
    }
    !there || under_valgrind()
}

/// A tool that is ended if it hangs.
fn limited(tool: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--foreground", "-k", "1", "200", tool]);
    command
}

/// What GDB prints, run with commands.
fn gdb(arguments: &[&str], commands: &[&str]) -> String {
    let mut gdb = limited("gdb");
    gdb.args(["-batch", "-nx", "-iex", "set debuginfod enabled off", "-iex", "set breakpoint pending on"]);
    gdb.args(["-iex", "set print thread-events off", "-iex", "set width 0"]);
    // Addresses of loaded code and of a program's are not the same.
    gdb.args(["-iex", "set print address off", "-iex", "set print frame-arguments all"]);
    commands.iter().for_each(|command| {
        gdb.args(["-ex", command]);
    });
    // Messages and errors in their order.
    let mut file = tempfile::tempfile_in(temporary()).unwrap();
    gdb.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
    gdb.stdout(file.try_clone().unwrap()).stderr(file.try_clone().unwrap()).status().unwrap();
    file.rewind().unwrap();
    std::io::read_to_string(file).unwrap()
}

fn program() -> (PathBuf, PathBuf) {
    let object = common::compile("debuggers.c", PROGRAM, &["-g", "-O1", "-fno-omit-frame-pointer"]);
    let native = object.with_extension("native");
    tool("gcc", &[object.as_os_str(), "-o".as_ref(), native.as_os_str()]);
    (object, native)
}

/// The functions of a backtrace, innermost first, up to `main`.
fn functions(backtrace: &str) -> Vec<String> {
    let frames = backtrace.lines().filter(|line| line.starts_with('#'));
    let name = |line: &str| line.split_once(" (")?.0.split_whitespace().last().map(str::to_owned);
    let mut names: Vec<String> = frames.filter_map(name).collect();
    names.truncate(names.iter().position(|name| name == "main").map_or(names.len(), |main| main + 1));
    names
}

const LAYOUTS: [&str; 2] = ["--layout=per-object", "--layout=packed"];

fn a_program_that_gdb_starts_has_names() {
    if no_gdb() {
        return;
    }
    let (object, _) = program();
    let stripped = object.with_extension("nodebug.o");
    tool("objcopy", &["--strip-debug".as_ref(), object.as_os_str(), stripped.as_os_str()]);
    let plain = object.with_extension("nodebug");
    tool("gcc", &[stripped.as_os_str(), "-o".as_ref(), plain.as_os_str()]);
    let commands = ["break the_leaf", "run", "bt", "finish", "info symbol $pc", "continue"];
    let expected = gdb(&["--args", plain.to_str().unwrap()], &commands);
    assert_eq!(functions(&expected), ["the_leaf", "the_outer", "main"], "{expected}");
    let offset = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("the_outer + "))?;
        line.split_whitespace().nth(2).map(str::to_owned)
    };
    assert!(offset(&expected).is_some(), "{expected}");
    for layout in LAYOUTS {
        let arguments = ["--args", env!("CARGO_BIN_EXE_slabjit"), "run", layout, stripped.to_str().unwrap()];
        let seen = gdb(&arguments, &commands);
        assert_eq!(functions(&seen), functions(&expected), "{layout}: {seen}");
        assert_eq!(offset(&seen), offset(&expected), "{layout}: {seen}");
        assert!(seen.contains("\n58\n") && seen.contains("exited normally"), "{layout}: {seen}");
    }
}

fn a_program_that_gdb_starts_has_lines_as_natively() {
    if no_gdb() {
        return;
    }
    let (object, native) = program();
    let commands = [
        "break the_leaf",
        "run",
        "bt -frame-arguments all",
        "next",
        "next",
        "info locals",
        "info line the_outer",
        "ptype struct pair",
        "up",
        "info locals",
        "finish",
        "info frame",
    ];
    // What is said of places in memory, and of what called `main`.
    let told = |text: &str| -> Vec<String> {
        let of_loader = |line: &&str| {
            !["Breakpoint 1 at", "thread", "Thread", "slabjit_outermost"].iter().any(|word| line.contains(word))
        };
        let lines = text.lines().filter(of_loader).skip_while(|line| !line.starts_with("Breakpoint 1, "));
        let lines = lines.take_while(|line| !line.starts_with("Stack level"));
        lines.map(|line| line.split(" at address").next().unwrap().to_owned()).collect()
    };
    let native = told(&gdb(&["--args", native.to_str().unwrap()], &commands));
    assert!(native.iter().any(|line| line.contains("local = 42")), "{native:#?}");
    for layout in LAYOUTS {
        let object = object.to_str().unwrap();
        let arguments = ["--args", env!("CARGO_BIN_EXE_slabjit"), "run", "--debug-info=full", layout, object];
        let seen = gdb(&arguments, &commands);
        assert_eq!(told(&seen), native, "{layout}: {seen}");
    }
}

// ---- processes that GDB attaches to ----

/// A part that has said that it is ready, and waits for a line. GDB leaves it.
struct Waiting(Child);

impl Waiting {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }

    fn gdb(&self, commands: &[&str]) -> String {
        gdb(&["-p", &self.0.id().to_string()], commands)
    }

    /// Whether GDB may attach; else says why not.
    fn may_be_attached(&self) -> bool {
        let seen = self.gdb(&["info inferiors"]);
        let refused = seen.contains("Operation not permitted") || seen.contains("ptrace:");
        if refused {
            println!("not run: the system lets nobody attach: {}", seen.trim());
        }
        !refused
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.stdin.take();
        let _ = self.0.wait();
    }
}

fn say_ready_and_wait() {
    println!("ready");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn engine(layout: SlabLayout, debug: DebugInfo) -> JitEngine {
    // A core file by GDB has all reserved addresses.
    JitEngine::builder().slab_layout(layout).debug_info(debug).arena_size(32 << 20).build().unwrap()
}

fn loaded(engine: &JitEngine, name: &str) -> Library {
    let source = format!("int {name}(void) {{ return 42; }}\n");
    let library = engine.add_object(common::compile_bytes(&format!("{name}.c"), &source, &["-g"])).unwrap();
    assert_eq!(call(&library, name), 42);
    library
}

/// An image of four functions. Debuggers read its names in its own bytes, as its code fills more than 64 pages of 16 KiB:
/// where a file has them and nobody else may write it, in the file.
fn large_image(engine: &JitEngine, name: &str, folder: Option<&Path>) -> Library {
    let symbols = |name: &str| format!(".globl {name}\n.type {name},%function\n{name}:\n");
    let function = |i| {
        let name = format!("{name}_{i}");
        format!("{}.rept 200000\n.long 0\n.endr\n.size {name}, .-{name}\n", symbols(&name))
    };
    let source = [".text\n".to_owned()].into_iter().chain((0..4).map(function)).collect::<String>();
    let object = common::compile_bytes(&format!("{name}.s"), &source, &[]);
    let bytes = ImageBuilder::new().object(name, object).link().unwrap();
    let Some(folder) = folder else { return engine.add_image(bytes).unwrap() };
    let file = folder.join(format!("{name}.so"));
    std::fs::write(&file, bytes).unwrap();
    let image = engine.add_image_file(&file).unwrap();
    // SAFETY: nothing runs.
    unsafe { image.initialize().unwrap() };
    // The folder is this user's: the names and the code are the file's pages.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.lines().filter(|line| line.ends_with(file.to_str().unwrap())).count() >= 3, "{maps}");
    image
}

fn waits_with_engines() {
    // Longer than what has one file of names.
    let source = ".text\n.globl long_one\n.type long_one,%function\nlong_one: .rept 300000\nnop\n.endr\nret\n.size long_one, .-long_one\n";
    let long = engine(SlabLayout::PerObject, DebugInfo::Names);
    let long_one = long.add_object(common::compile_bytes("long.s", source, &[])).unwrap();
    let packed = engine(SlabLayout::Packed, DebugInfo::Names);
    let folder = PathBuf::from(std::env::var_os("SLABJIT_TEST_FOLDER").unwrap());
    let mut images = Vec::new();
    for (folder, kind) in [(None, "image"), (Some(&*folder), "file")] {
        for (engine, name) in [(&long, ""), (&long, "removed_"), (&packed, "packed_")] {
            images.push(large_image(engine, &format!("{name}{kind}"), folder));
        }
    }
    // SAFETY: nothing runs.
    images.iter().chain([&long_one]).for_each(|library| unsafe { library.initialize().unwrap() });
    freed(&images[1]);
    freed(&images[4]);
    let engines = [
        (SlabLayout::PerObject, DebugInfo::Names, "of_pages"),
        (SlabLayout::Packed, DebugInfo::Names, "of_packed"),
        (SlabLayout::PerObject, DebugInfo::Full, "with_lines"),
    ]
    .map(|(layout, debug, name)| {
        let engine = engine(layout, debug);
        let removed = loaded(&engine, &format!("removed_{name}"));
        let library = loaded(&engine, name);
        // Names of packed objects that are only removed may wait for others'.
        removed.remove_and_wait(Duration::ZERO).unwrap();
        (engine, library)
    });
    say_ready_and_wait();
    drop((engines, long_one, images));
}

fn gdb_attaches_and_reads_a_core_file() {
    if no_gdb() {
        return;
    }
    let folder = temporary();
    let process = Waiting::start(child_command("waits_with_engines").env("SLABJIT_TEST_FOLDER", &folder));
    if !process.may_be_attached() {
        return;
    }
    let core = folder.join("core");
    let commands = [
        "info symbol of_pages",
        "info symbol of_packed",
        "info symbol with_lines",
        "info line with_lines",
        "info symbol (long)&long_one + 299996",
        "info symbol (long)&image_0 + 799999",
        "info symbol (long)&packed_image_3 + 799999",
        "info symbol (long)&file_0 + 799999",
        "info symbol (long)&packed_file_3 + 799999",
        "x/i of_pages",
    ];
    let removed = ["removed_of_pages", "removed_of_packed", "removed_with_lines", "removed_image_1", "removed_file_1"]
        .map(|name| format!("info address {name}"));
    let dump = format!("gcore {}", core.display());
    let removed: Vec<&str> = removed.iter().map(String::as_str).collect();
    let all = [&commands[..], &removed[..], &[&dump]].concat();
    let executable = std::env::current_exe().unwrap();
    let files = [executable.to_str().unwrap(), core.to_str().unwrap()];
    for (how, seen) in [("attached", process.gdb(&all)), ("core", gdb(&files, &all[..all.len() - 1]))] {
        for name in ["of_pages", "of_packed", "with_lines"] {
            assert!(seen.contains(&format!("{name} in section .text")), "{how}: {seen}");
            assert!(seen.contains(&format!("No symbol \"removed_{name}\" in current context.")), "{how}: {seen}");
        }
        assert!(seen.contains("Line 1 of \"") && seen.contains("with_lines.c"), "{how}: {seen}");
        assert!(seen.contains("<of_pages>"), "{how}: {seen}");
        for (name, offset) in [
            ("long_one", 299_996),
            ("image_0", 799_999),
            ("packed_image_3", 799_999),
            ("file_0", 799_999),
            ("packed_file_3", 799_999),
        ] {
            let place = format!("{name} + {offset}");
            assert!(seen.contains(&format!("\n{place} in section .text")), "{how}: {place}: {seen}");
        }
        for name in ["removed_image_1", "removed_file_1"] {
            assert!(seen.contains(&format!("No symbol \"{name}\" in current context.")), "{how}: {seen}");
        }
    }
}

/// Loads what GDB has breakpoints in, and lets it look after removals.
fn loads_and_removes() {
    for layout in [SlabLayout::PerObject, SlabLayout::Packed] {
        let engine = engine(layout, DebugInfo::Names);
        let first = loaded(&engine, "first_one");
        let second = loaded(&engine, "second_one");
        let image = large_image(&engine, "image", None);
        // SAFETY: nothing runs.
        unsafe { image.initialize().unwrap() };
        freed(&first);
        slabjit_test_mark();
        freed(&second);
        freed(&image);
        let third = loaded(&engine, "third_one");
        slabjit_test_mark();
        freed(&third);
    }
    println!("done");
}

/// A place for a breakpoint.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn slabjit_test_mark() {
    std::hint::black_box(());
}

fn gdb_sees_what_is_loaded_and_removed_while_it_is_attached() {
    if no_gdb() {
        return;
    }
    let command = child_command("loads_and_removes");
    let environment: Vec<String> = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("set environment {} {}", name.to_str()?, value?.to_str()?)))
        .collect();
    let looks = ["first_one", "second_one", "third_one", "image_0"].map(|name| format!("info address {name}"));
    let mut commands: Vec<&str> = environment.iter().map(String::as_str).collect();
    commands.extend(["break slabjit_test_mark", "break second_one", "run"]);
    for _ in 0..2 {
        // In the second function, at the mark behind it, at the next mark.
        commands.extend(["bt 1", "continue"]);
        commands.extend(looks.iter().map(String::as_str));
        commands.push("continue");
        commands.extend(looks.iter().map(String::as_str));
        commands.push("continue");
    }
    let seen = gdb(&["--args", command.get_program().to_str().unwrap()], &commands);
    let missing = |name: &str| format!("No symbol \"{name}\" in current context.\n");
    let there = |name: &str| format!("Symbol \"{name}\" is at ");
    let lines: Vec<&str> = seen.lines().filter(|line| line.contains("ymbol \"")).collect();
    let expected = [
        missing("first_one"),
        there("second_one"),
        missing("third_one"),
        there("image_0"),
        missing("first_one"),
        missing("second_one"),
        there("third_one"),
        missing("image_0"),
    ];
    assert_eq!(lines.len(), 2 * expected.len(), "{seen}");
    for (line, expected) in lines.iter().zip(expected.iter().cycle()) {
        assert!(line.starts_with(expected.trim_end()), "{line}, not {expected}: {seen}");
    }
    assert_eq!(seen.matches("#0  second_one ()").count(), 2, "{seen}");
    assert!(seen.contains("exited normally"), "{seen}");
}

const MANY: usize = 10_000;

fn waits_with_ten_thousand() {
    let layout = std::env::var("SLABJIT_TEST_MANY").unwrap();
    let layout = if layout == "packed" { SlabLayout::Packed } else { SlabLayout::PerObject };
    let engine = JitEngine::builder().slab_layout(layout).debug_info(DebugInfo::Names).build().unwrap();
    let object = common::compile_bytes("many.c", "int many_00000(void) { return 42; }", &[]);
    let at = object.windows(10).position(|w| w == b"many_00000").unwrap();
    let libraries: Vec<Library> = (0..MANY)
        .map(|i| {
            let mut bytes = object.clone();
            bytes[at + 5..at + 10].copy_from_slice(format!("{i:05}").as_bytes());
            let library = engine.add_object(&bytes).unwrap();
            // SAFETY: nothing is called.
            unsafe { library.initialize().unwrap() };
            library
        })
        .collect();
    say_ready_and_wait();
    drop(libraries);
}

fn gdb_attaches_to_ten_thousand_objects() {
    if no_gdb() {
        return;
    }
    for layout in ["packed", "per-object"] {
        let process = Waiting::start(child_command("waits_with_ten_thousand").env("SLABJIT_TEST_MANY", layout));
        if !process.may_be_attached() {
            return;
        }
        let start = Instant::now();
        let seen = process.gdb(&["info symbol many_00000", "info symbol many_09999"]);
        let took = start.elapsed();
        println!("{layout}: {took:?}");
        assert!(seen.contains("many_00000 in section .text") && seen.contains("many_09999 in section"), "{seen}");
        // The goal is 2 s on a quiet machine.
        assert!(took < Duration::from_secs(60), "{layout}: {took:?}");
    }
}

fn lldb_sees_names_and_lines() {
    let lldb = ["lldb", "lldb-19"].into_iter().find(|lldb| {
        Command::new(lldb).arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    });
    if not_under_qemu("LLDB sees qemu, not the program") || under_valgrind() {
        return;
    }
    let Some(lldb) = lldb else { return println!("not run: there is no lldb") };
    let (object, native) = program();
    let commands = ["breakpoint set -n the_leaf", "run", "bt", "finish", "continue"];
    let run = |arguments: &[&str]| {
        let mut lldb = limited(lldb);
        lldb.args(["-b", "-x"]).stdin(Stdio::null());
        commands.iter().for_each(|command| {
            lldb.args(["-o", command]);
        });
        let output = lldb.arg("--").args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    // Of a backtrace up to `main`: functions with arguments and lines.
    let frames = |text: &str| -> Vec<String> {
        let backtrace = text.lines().skip_while(|line| !line.contains("(lldb) bt"));
        let frames = backtrace.filter_map(|line| line.split_once("frame #")?.1.split_once('`'));
        let mut frames: Vec<String> = frames.map(|(_, what)| what.to_owned()).collect();
        frames.truncate(frames.iter().position(|frame| frame.starts_with("main at")).unwrap() + 1);
        frames
    };
    let native = run(&[native.to_str().unwrap()]);
    if !native.contains("stop reason = breakpoint") {
        return println!("not run: lldb cannot run a program: {native}");
    }
    // Pointers are not the same.
    let comparable = |text: &str| -> Vec<String> {
        let without =
            |frame: &String| frame.split("pair=0x").next().unwrap().to_owned() + frame.rsplit(')').next().unwrap();
        frames(text).iter().map(without).collect()
    };
    assert_eq!(comparable(&native).len(), 4, "{native}");
    // An image of the program that is large: its file has the names that LLDB reads.
    let filler = common::compile_bytes("filler.s", ".text\n.skip 4000000\n", &[]);
    let image = ImageBuilder::new().object_file(&object).unwrap().object("filler", filler).link().unwrap();
    let image_file = temporary().join("lldb.so");
    std::fs::write(&image_file, image).unwrap();
    for layout in LAYOUTS {
        let (object, image) = (object.to_str().unwrap(), image_file.to_str().unwrap());
        let seen = run(&[env!("CARGO_BIN_EXE_slabjit"), "run", "--debug-info=full", layout, object]);
        assert_eq!(comparable(&seen), comparable(&native), "{layout}: {seen}");
        assert!(seen.contains("Return value: (int) $0 = 57"), "{layout}: {seen}");
        for input in [object, image] {
            let seen = run(&[env!("CARGO_BIN_EXE_slabjit"), "run", layout, input]);
            let expected = ["the_leaf", "the_outer", "main"];
            let at =
                |name: &&str| seen.find(&format!("`{name}")).unwrap_or_else(|| panic!("{layout}: no {name}: {seen}"));
            assert!(expected.iter().map(at).is_sorted(), "{layout}, {input}: {seen}");
        }
    }
}

fn a_program_under_qemu_has_names_and_lines() {
    if !under_qemu() {
        return println!("not run: this is for qemu-user");
    }
    let there = Command::new("gdb-multiarch").arg("--version").stdout(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        return println!("not run: there is no gdb-multiarch");
    }
    let (object, _) = program();
    let socket = temporary().join("gdb");
    for (number, options) in ["--debug-info=full", "--debug-info=names"].into_iter().enumerate() {
        let socket = socket.with_extension(number.to_string());
        let mut qemu = target::run("-g");
        qemu.arg(&socket).args([env!("CARGO_BIN_EXE_slabjit"), "run", options]).arg(&object);
        let mut qemu = qemu.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while !socket.exists() && start.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let remote = format!("target remote {}", socket.display());
        let mut gdb = limited("gdb-multiarch");
        gdb.args(["-batch", "-nx", "-iex", "set debuginfod enabled off", "-iex", "set breakpoint pending on"]);
        for command in
            ["set width 0", &remote, "break the_leaf", "continue", "bt", "next", "next", "info locals", "kill"]
        {
            gdb.args(["-ex", command]);
        }
        let output = gdb.arg(env!("CARGO_BIN_EXE_slabjit")).env("LC_ALL", "C").stdin(Stdio::null()).output().unwrap();
        let seen = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let _ = qemu.kill();
        qemu.wait().unwrap();
        let mut expected = vec!["the_leaf", "the_outer", "main"];
        if number == 0 {
            expected.insert(1, "inlined");
            assert!(seen.contains("debuggers.c:4") && seen.contains("local = 42"), "{seen}");
        }
        assert_eq!(functions(&seen), expected, "{options}: {seen}");
    }
}

/// Functions that spin for 0.2 s, each at the address of the one before it: the first again after others were loaded.
fn spins() {
    slabjit::write_jitdump(".").unwrap();
    let object = common::compile_bytes(
        "spin.c",
        "unsigned spin_0000(unsigned n) { unsigned s = n; while (n--) s = s * 1664525u + 1013904223u; return s; }",
        &["-O1"],
    );
    let at = object.windows(9).position(|w| w == b"spin_0000").unwrap();
    for layout in [SlabLayout::PerObject, SlabLayout::Packed] {
        let engine = JitEngine::builder().slab_layout(layout).quarantine(0).build().unwrap();
        let mut addresses = Vec::new();
        let load = |name: String| {
            let mut bytes = object.clone();
            bytes[at..at + 9].copy_from_slice(name.as_bytes());
            let library = engine.add_object(&bytes).unwrap();
            // SAFETY: the type of the function that was compiled.
            let function = unsafe { library.get::<unsafe extern "C" fn(u32) -> u32>(&name).unwrap() };
            (library, function)
        };
        let spin = |function: &slabjit::Symbol<unsafe extern "C" fn(u32) -> u32>| {
            let start = thread_time();
            while thread_time() - start < Duration::from_millis(200) {
                // SAFETY: it takes any number.
                std::hint::black_box(unsafe { function(100_000) });
            }
        };
        for i in 0..3 {
            let (library, function) = load(format!("spin_100{i}"));
            addresses.push(function.address().addr());
            spin(&function);
            drop(function);
            freed(&library);
        }
        assert!(addresses.iter().all(|address| *address == addresses[0]), "{addresses:?}");
        let (_first, first) = load("spin_2000".to_owned());
        let _others: Vec<_> = (0..100).map(|i| load(format!("spin_3{i:03}"))).collect();
        spin(&first);
    }
}

fn perf_has_names_of_what_ran_when() {
    if not_under_qemu("perf sees qemu, not the program") || under_valgrind() {
        return;
    }
    let folder = temporary().join("perf");
    std::fs::create_dir(&folder).unwrap();
    let command = child_command("spins");
    let mut perf = limited("perf");
    perf.args(["record", "-q", "-e", "cpu-clock:u", "-k", "CLOCK_MONOTONIC", "-o", "perf.data"])
        .arg(command.get_program());
    perf.current_dir(&folder).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    match perf.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        other => return println!("not run: perf cannot record: {other:?}"),
    }
    let run = |arguments: &[&str]| {
        let output = Command::new("perf").args(arguments).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["inject", "--jit", "-i", "perf.data", "-o", "perf.jit.data"]);
    let samples = run(&["script", "-i", "perf.jit.data", "-F", "ip,sym"]);
    let of = |name: &str| samples.lines().filter(|line| line.split_whitespace().nth(1) == Some(name)).count();
    // 0.2 s at 4000 Hz are 800, twice.
    for name in ["spin_1000", "spin_1001", "spin_1002", "spin_2000"] {
        assert!(of(name) > 400, "{name}: {} of {}", of(name), samples.lines().count());
    }
    let unknown = samples.lines().filter(|line| line.contains("[unknown]")).count();
    assert!(unknown * 50 < samples.lines().count(), "{unknown} unknown of {}", samples.lines().count());
}
