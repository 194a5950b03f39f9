//! Links large programs into one library: `cargo run --release -p slabjit-tools --bin large -- llvm`, or
//! `… -- whole libopenblas.a libgfortran.so.5`.
//!
//! `llvm` links what a small program of LLVM's (tools/large/llvm.cpp) needs of LLVM 22's archives, and runs it;
//! `whole ARCHIVE…` links all members of archives. Prints how long that took, how much memory the process had at most
//! and has afterwards, and the same of `ld.lld` and `ld`, which make a shared library of the same. Each runs in a
//! process of its own; with `LARGE_PACKED=1` objects are packed, with `LARGE_THREADS=2` two threads share the work.
//! `llvm` needs a C++ compiler and llvm-22-dev, or the llvm-config that `LLVM_CONFIG` names.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;
use std::{env, fs, io};

use object::read::archive::ArchiveFile;
use slabjit::{JitEngine, Library, SlabLayout, Symbol};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What the program of LLVM's needs of it.
const COMPONENTS: [&str; 4] = ["orcjit", "x86", "passes", "irreader"];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["--needed", ref inputs @ ..] => load(Wanted::Needed, inputs),
        ["--whole", ref inputs @ ..] => load(Wanted::Whole, inputs),
        ["llvm"] => llvm(),
        ["whole", ref inputs @ ..] if !inputs.is_empty() => {
            let (shared, archives): (Vec<&str>, Vec<&str>) = inputs.iter().partition(|input| is_shared(input));
            compare("--whole", Vec::new(), &archives, &shared.into_iter().map(str::to_owned).collect::<Vec<_>>())
        }
        _ => Err("say 'llvm', or 'whole' and the archives".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("large: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What of an archive is linked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Needed,
    Whole,
}

/// Links the inputs here, and says what that took.
fn load(wanted: Wanted, inputs: &[&str]) -> Outcome<()> {
    let layout = if env::var_os("LARGE_PACKED").is_some() { SlabLayout::Packed } else { SlabLayout::PerObject };
    let threads = env::var("LARGE_THREADS").map_or(Ok(1), |count| count.parse())?;
    let engine = JitEngine::builder().slab_layout(layout).threads(threads).build()?;
    let empty = Process::now();
    let start = Instant::now();
    let mut builder = engine.library("large");
    for shared in inputs.iter().filter(|input| is_shared(input)) {
        // SAFETY: libraries of the system's, which LLVM is linked with in any case.
        builder = unsafe { builder.shared_library(shared) };
    }
    let library = builder.build()?;
    for input in inputs.iter().filter(|input| !is_shared(input)) {
        match (wanted, Path::new(input).extension().is_some_and(|end| end == "a")) {
            (Wanted::Needed, true) => library.add_archive_file(input)?,
            (Wanted::Whole, true) => add_all(&library, input)?,
            (_, false) => library.add_object_file(input)?,
        }
    }
    let added = start.elapsed();
    // SAFETY: initialisers of libraries that are made to be linked into any program.
    unsafe { library.initialize()? };
    let linked = start.elapsed();
    let after = Process::now();
    if wanted == Wanted::Needed {
        // SAFETY: `int answer(int)`; it takes any number.
        let answer: Symbol<unsafe extern "C" fn(i32) -> i32> = unsafe { library.get("answer")? };
        // SAFETY: as above.
        assert_eq!(unsafe { answer(21) }, 42, "the program answers wrongly");
    }
    let stats = engine.stats();
    println!(
        "slabjit  {:.2} s ({:.2} to add)  peak {:.0} MiB  after {:.0} MiB ({:.0} of files), before {:.0}; {} objects, \
         {:.0} MiB linked",
        linked.as_secs_f64(),
        added.as_secs_f64(),
        after.peak,
        after.resident,
        after.of_files,
        empty.resident,
        stats.arena.slabs,
        stats.arena.slab_bytes as f64 / f64::from(1 << 20),
    );
    Ok(())
}

fn is_shared(input: &str) -> bool {
    input.contains(".so")
}

/// Adds every member of an archive.
fn add_all(library: &Library, archive: &str) -> Outcome<()> {
    let bytes = fs::read(archive)?;
    let members = ArchiveFile::parse(&*bytes)?.members().map(|member| member?.data(&*bytes));
    Ok(library.add_objects(members.collect::<Result<Vec<_>, _>>()?)?)
}

/// What a small program of LLVM's needs of it.
fn llvm() -> Outcome<()> {
    let config = env::var("LLVM_CONFIG").unwrap_or_else(|_| "llvm-config-22".to_owned());
    let ask = |what: &[&str]| output(Command::new(&config).args(what));
    let archives = ask(&[&["--link-static", "--libfiles"], &COMPONENTS[..]].concat())?;
    let folder = env::temp_dir().join(format!("slabjit-large-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let done = (|| {
        let (source, object) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("large/llvm.cpp"), folder.join("llvm.o"));
        let flags = ask(&["--cxxflags"])?;
        let mut compiler = Command::new("c++");
        output(
            compiler.args(flags.split_whitespace()).args(["-O2", "-fPIC", "-c"]).arg(source).arg("-o").arg(&object),
        )?;
        let archives: Vec<&str> = archives.split_whitespace().collect();
        // Their versions are those that the compiler finds.
        let shared: Vec<String> = shared_libraries(&ask(&["--link-static", "--system-libs"])?)?;
        compare("--needed", vec![object], &archives, &shared)
    })();
    fs::remove_dir_all(&folder)?;
    done
}

/// The files of shared libraries that `-lNAME` and paths mean, as programs load them.
fn shared_libraries(flags: &str) -> Outcome<Vec<String>> {
    let libc = output(Command::new("c++").arg("-print-file-name=libc.so.6"))?;
    let folder = Path::new(libc.trim()).parent().ok_or("the compiler knows no libc.so.6")?;
    let mut found = vec!["libstdc++.so.6".to_owned()];
    for flag in flags.split_whitespace() {
        let Some(name) = flag.strip_prefix("-l") else {
            found.push(flag.to_owned());
            continue;
        };
        let begins = format!("lib{name}.so.");
        let files = fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        found.extend(files.filter(|file| file.starts_with(&begins)).min());
    }
    Ok(found)
}

/// Links with this crate, with `ld.lld` and with `ld`.
fn compare(how: &str, objects: Vec<PathBuf>, archives: &[&str], shared: &[String]) -> Outcome<()> {
    let mut ours = Command::new(env::current_exe()?);
    ours.arg(how).args(&objects).args(archives).args(shared);
    measured("in all", &mut ours)?;
    // GNU ld wants the `__dso_handle` that is in the first; compilers' drivers always give both.
    let path = |name: &str| output(Command::new("c++").arg(format!("-print-file-name={name}")));
    let (first, last) = (path("crtbeginS.o")?, path("crtendS.o")?);
    let result = env::temp_dir().join(format!("slabjit-large-{}.so", std::process::id()));
    for linker in ["ld.lld-22", "ld.lld-19", "ld.lld", "ld"] {
        let mut command = Command::new(linker);
        command.args(["-shared", "-z", "muldefs", "-o"]).arg(&result).arg(first.trim()).args(&objects);
        match how {
            "--whole" => command.arg("--whole-archive").args(archives),
            _ => command.arg("--start-group").args(archives).arg("--end-group"),
        };
        command.arg("--no-whole-archive").arg(last.trim());
        match measured(linker, &mut command) {
            Err(error) if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::NotFound) => {}
            other => other?,
        }
        let _ = fs::remove_file(&result);
    }
    Ok(())
}

/// Runs a command, and says how long it took and what memory it had at most.
fn measured(name: &str, command: &mut Command) -> Outcome<()> {
    let start = Instant::now();
    let child = command.spawn()?;
    let pid = child.id() as libc::pid_t;
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: the child is ours, and nobody else waits for it; both may be written.
    let waited = unsafe { libc::wait4(pid, &mut status, 0, usage.as_mut_ptr()) };
    if waited != pid || status != 0 {
        return Err(format!("{name} failed").into());
    }
    // SAFETY: it was zeroed, and any bytes are such numbers.
    let usage = unsafe { usage.assume_init() };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    println!(
        "{name:<9} {:.2} s, {:.2} of processors  peak {:.0} MiB",
        start.elapsed().as_secs_f64(),
        seconds(usage.ru_utime) + seconds(usage.ru_stime),
        usage.ru_maxrss as f64 / 1024.0
    );
    Ok(())
}

fn output(command: &mut Command) -> Outcome<String> {
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// What memory this process has, in MiB.
struct Process {
    resident: f64,
    of_files: f64,
    peak: f64,
}

impl Process {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let of = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or_default() / 1024.0
        };
        Self { resident: of("VmRSS:"), of_files: of("RssFile:"), peak: of("VmHWM:") }
    }
}
