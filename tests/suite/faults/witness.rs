//! strace as a witness: each call that the crate announces is made, and it makes no other. And strace itself refuses
//! calls.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};

use rustix::fs::{Access, access};
use slabjit::fault::{self, Call};

use super::{errors, script, settle, usual};
use crate::common::{child_command, temporary};
use crate::state;
use crate::target::not_under_qemu;

/// Where the files of the script are.
const FILES: &str = "SLABJIT_TEST_FAULTS_FILES";
/// A path that is asked for, and is not there, so that it can be seen where a process is.
const MARK: &str = "/slabjit-mark/";

fn mark(what: &str) {
    let _ = access(format!("{MARK}{what}"), Access::EXISTS);
}

/// The script, with a mark before each call.
pub fn witnessed() {
    state::prepare();
    let files = PathBuf::from(std::env::var_os(FILES).unwrap());
    for _ in 0..2 {
        script::run(&files);
    }
    settle();
    let before = state::State::now();
    mark("begin");
    let announce = |_, call| {
        mark(&format!("{call:?}"));
        None
    };
    let (outcome, _) = fault::with_errors(announce, || script::run(&files));
    mark("end");
    // Of strace's doing.
    assert!(outcome.missing.is_empty() && outcome.errors.len() <= 1, "{outcome:?}");
    settle();
    let (_, difference) = before.difference();
    assert_eq!(difference, None);
}

/// One system call of a process.
#[derive(Debug)]
struct Line {
    name: String,
    /// As strace writes them, with what came of it.
    rest: String,
}

impl Line {
    fn read(line: &str) -> Option<Self> {
        let (name, rest) = line.split_once('(')?;
        Some(Self { name: name.to_owned(), rest: rest.to_owned() })
    }

    fn mark(&self) -> Option<&str> {
        self.rest.split_once(MARK)?.1.split('"').next()
    }

    fn argument(&self, index: usize) -> Option<usize> {
        let arguments = self.rest.split(')').next()?;
        number(arguments.split(", ").nth(index)?)
    }

    fn result(&self) -> Option<usize> {
        number(self.rest.rsplit_once(" = ")?.1)
    }

    fn has(&self, word: &str) -> bool {
        self.rest.contains(word)
    }
}

fn number(text: &str) -> Option<usize> {
    match text.trim().strip_prefix("0x") {
        Some(hex) => usize::from_str_radix(hex, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

/// Runs the script under strace: how it ended, and the calls of its first thread from the start.
fn traced(options: &[&str]) -> (Output, Vec<Line>) {
    let logs = tempfile::tempdir_in(temporary()).unwrap();
    let child = child_command("witnessed");
    let mut strace = Command::new("strace");
    strace.args(["-ff", "-qq", "-s", "4096", "-o"]).arg(logs.path().join("log")).args(options);
    strace.arg(child.get_program()).envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = strace.envs([state::ENVIRONMENT]).env(FILES, script::files()).output().unwrap();
    let texts = std::fs::read_dir(&logs).unwrap().map(|log| std::fs::read_to_string(log.unwrap().path()).unwrap());
    let main = texts.into_iter().find(|text| text.contains(MARK));
    let lines = main.as_deref().unwrap_or_default().lines().filter_map(Line::read).collect();
    (output, lines)
}

fn strace_works() -> bool {
    if not_under_qemu("strace would see qemu's calls") {
        return false;
    }
    let works = Command::new("strace").args(["-o", "/dev/null", "true"]).status().is_ok_and(|status| status.success());
    if !works {
        println!("not run: there is no strace (ci/test installs it), or it may not trace here");
    }
    works
}

/// The system calls by which a function is seen.
fn seen_as(call: Call) -> &'static [&'static str] {
    match call.function() {
        "open" | "dlopen" => &["openat", "open"],
        "pwrite" => &["pwrite64"],
        "pread" => &["pread64"],
        "fcntl" => &["fcntl"],
        "pthread_create" => &["clone3", "clone"],
        "mmap" => &["mmap"],
        "munmap" => &["munmap"],
        "mprotect" => &["mprotect"],
        "mremap" => &["mremap"],
        "madvise" => &["madvise"],
        "membarrier" => &["membarrier"],
        "read" => &["read"],
        "memfd_create" => &["memfd_create"],
        "ftruncate" => &["ftruncate"],
        function => panic!("how is {function} seen?"),
    }
}

/// Calls that the loader, the C library and the standard library make by themselves, and that cannot fail for us.
const OF_OTHERS: &[&str] = &[
    "access",
    "brk",
    "clock_gettime",
    "close",
    "exit",
    "faccessat",
    "fcntl",
    "fstat",
    "futex",
    "getcwd",
    "geteuid",
    "getpid",
    "getrandom",
    "gettid",
    "lseek",
    "mremap",
    "newfstatat",
    "pread64",
    "prlimit64",
    "readlink",
    "rseq",
    "rt_sigprocmask",
    "sched_getaffinity",
    "set_robust_list",
    "sigaltstack",
    "statx",
];

/// The crate's calls between the marks, as against those of others.
#[derive(Default)]
struct Witness {
    /// Ranges that were mapped as the crate does.
    ours: Vec<(usize, usize)>,
    /// What was announced last, and whether it has come.
    announced: Option<(Call, bool)>,
    /// A mapping that has come since has a multiple of 4 GiB in it.
    has_multiple: bool,
    counts: BTreeMap<Call, usize>,
    others: BTreeMap<String, usize>,
    problems: Vec<String>,
}

impl Witness {
    fn announce(&mut self, call: Call) {
        self.finish();
        self.announced = Some((call, false));
        self.has_multiple = false;
        *self.counts.entry(call).or_default() += 1;
    }

    /// What was announced has come.
    fn finish(&mut self) {
        if let Some((call, false)) = self.announced.take() {
            self.problems.push(format!("{call:?} was not made"));
        }
    }

    fn see(&mut self, line: &Line) {
        let by_others = match line.name.as_str() {
            // The loader's images are mapped as files, stacks of threads as stacks.
            "mmap" => !line.has("MAP_NORESERVE") && self.loader_is_at_work(),
            "munmap" | "mprotect" | "mremap" | "madvise" => {
                let start = line.argument(0).unwrap();
                !self.ours.iter().any(|(base, len)| (*base..base + len).contains(&start))
            }
            "openat" | "open" | "clone3" | "clone" => self.loader_is_at_work(),
            // The rest of a file.
            "read" => {
                matches!(self.announced, Some((call, true)) if call.function() == "read") || self.loader_is_at_work()
            }
            name => OF_OTHERS.contains(&name),
        };
        match &mut self.announced {
            // Threads and images take other calls as well.
            Some((call, made @ false)) if seen_as(*call).contains(&line.name.as_str()) => *made = true,
            // An arena has no multiple of 4 GiB: if the kernel gave one, it is asked again
            // (`Mapping::reserve_without`).
            Some((Call::Reserve, true)) if self.has_multiple && matches!(line.name.as_str(), "mmap" | "munmap") => {}
            _ if by_others => *self.others.entry(line.name.clone()).or_default() += 1,
            announced => {
                self.problems.push(format!("{}({}, after {announced:?}, was not announced", line.name, line.rest));
            }
        }
        match (line.name.as_str(), line.result()) {
            // An arena may be in the place of a module of the loader's.
            ("mmap", Some(start))
                if line.has("MAP_NORESERVE")
                    && (!line.has("MAP_FIXED,") && !line.has("MAP_FIXED|")
                        || matches!(self.announced, Some((Call::MapArena, _)))) =>
            {
                let len = line.argument(1).unwrap();
                self.has_multiple |= start.next_multiple_of(1 << 32) < start + len;
                self.ours.push((start, len));
            }
            ("munmap", Some(0)) => {
                let start = line.argument(0).unwrap();
                let unmapped = start..start + line.argument(1).unwrap();
                self.ours.retain(|(start, _)| !unmapped.contains(start));
            }
            _ => {}
        }
    }

    fn loader_is_at_work(&self) -> bool {
        self.announced.is_some_and(|(call, _)| matches!(call.function(), "dlopen" | "pthread_create"))
    }
}

fn call_named(name: &str) -> Call {
    *Call::ALL.iter().find(|call| format!("{call:?}") == name).unwrap()
}

pub fn strace_sees_no_other_call() {
    if !strace_works() {
        return;
    }
    let (output, lines) = traced(&[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut witness = Witness::default();
    let position = |mark| lines.iter().position(|line| line.mark() == Some(mark)).unwrap();
    for line in &lines[position("begin") + 1..position("end")] {
        match line.mark() {
            Some(mark) => witness.announce(call_named(mark)),
            None => witness.see(line),
        }
    }
    witness.finish();
    println!("announced and made: {:?}\nof others: {:?}", witness.counts, witness.others);
    assert!(witness.problems.is_empty(), "{}", witness.problems.join("\n"));
    assert!(witness.counts.into_keys().eq(usual()), "these are to be reached: {:?}", usual().collect::<Vec<_>>());
}

/// The first call of each place, and calls that are made inside of it, in a process that only strace makes fail.
pub fn strace_refuses_calls() {
    if !strace_works() {
        return;
    }
    let places = usual().map(|call| (call, seen_as(call), errors::of(call)[0]));
    for (call, system_calls, errno) in places.chain(inside()) {
        if call == Call::SpawnThread && glibc_leaks_stacks() {
            println!("left out: {call:?}, with which this glibc leaves a stack behind");
            continue;
        }
        // Now and then the process makes a call more or less before, and another one is refused.
        let refused = (0..30).any(|_| refused_by_strace(call, system_calls, errno));
        assert!(refused, "{call:?}, {system_calls:?} was not refused");
        println!("refused by strace: {call:?}, {}", system_calls[0]);
    }
}

/// glibc 2.43 keeps the stack of a thread that it cannot start, for good: one more with each. 2.41 did not.
fn glibc_leaks_stacks() -> bool {
    // SAFETY: it returns a string that lasts.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let minor = version.to_str().ok().and_then(|text| text.strip_prefix("2.")?.split('.').next()?.parse::<u32>().ok());
    minor.is_some_and(|minor| minor >= 42)
}

/// What the dynamic loader and the C library call for us.
fn inside() -> impl Iterator<Item = (Call, &'static [&'static str], i32)> {
    let both: [(&'static [&'static str], i32); 3] =
        [(&["read"], libc::EIO), (&["newfstatat", "fstat"], libc::EIO), (&["mmap"], libc::ENOMEM)];
    let loaded = [Call::OpenImage, Call::OpenShared].into_iter();
    let loaded = loaded.flat_map(move |call| both.map(|(names, errno)| (call, names, errno)));
    // An image has no relocations, and nothing to protect after them.
    loaded.chain([(Call::OpenShared, &["mprotect"][..], libc::ENOMEM)])
}

/// Whether strace hit the first of these system calls after a call was announced.
fn refused_by_strace(call: Call, system_calls: &[&str], errno: i32) -> bool {
    let name = format!("{call:?}");
    let is_mark = |line: &Line, mark: &str| line.mark() == Some(mark);
    let (output, lines) = traced(&[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let begin = lines.iter().position(|line| is_mark(line, "begin")).unwrap();
    let mark = begin + lines[begin..].iter().position(|line| is_mark(line, &name)).unwrap();
    let made = lines[mark..].iter().position(|line| system_calls.contains(&line.name.as_str()));
    let at = mark + made.unwrap_or_else(|| panic!("{name}: no {system_calls:?}"));
    let system_call = &lines[at].name;
    let number = lines[..=at].iter().filter(|line| line.name == *system_call).count();
    let inject = format!("--inject={system_call}:error={errno}:when={number}");
    let (output, lines) = traced(&[&format!("-etrace={system_call},access,faccessat"), &inject]);
    let injected = lines.iter().position(|line| line.has("(INJECTED)"));
    // Not a later one, which may be the dynamic loader's.
    let hit = injected.is_some_and(|at| {
        let since = lines[..at].iter().rev().take_while(|line| line.name != *system_call);
        since.into_iter().find_map(Line::mark) == Some(&name)
    });
    assert!(!hit || output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    hit
}
