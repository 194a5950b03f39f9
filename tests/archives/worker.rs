//! A process for each member: one that crashes or hangs is an outcome, and each finds LLVM as it was loaded.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

use slabjit::Error;

use crate::companion;
use crate::contents::{self, Verified};
use crate::elf::{self, Object};
use crate::low;
use crate::members::{Archive, Member};
use crate::outcome::Outcome;
use crate::pinned::TAKEN_BY_LD;
use crate::{lljit, ours, stock};

pub struct Options {
    pub jobs: usize,
    pub sample: usize,
    pub contents: usize,
    pub timeout: u32,
    pub only: String,
    pub stock: bool,
    /// Each member is linked into an image, which is loaded.
    pub images: bool,
}

impl Default for Options {
    fn default() -> Self {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        Self { jobs, sample: 1, contents: 1, timeout: 60, only: String::new(), stock: true, images: false }
    }
}

/// What became of one member.
pub struct Findings {
    pub archive: usize,
    pub member: usize,
    pub ours: Outcome,
    pub stock: Option<Outcome>,
    /// What was verified in memory, or what is wrong there; none where it was not looked at.
    pub contents: Option<Result<Verified, String>>,
}

/// Begins the lines with which a child reports; anything else that it writes is kept as its last words.
const MARK: &str = "\u{1}";
const FIELD: char = '\u{2}';

/// Takes all chosen members through both sides, some at a time. No thread may have been started: children are forks.
pub fn run(archives: &[Archive], options: &Options) -> Result<Vec<Findings>, String> {
    let members = archives.iter().enumerate().flat_map(|(a, archive)| (0..archive.members.len()).map(move |m| (a, m)));
    let chosen =
        |(a, m): &(usize, usize)| m % options.sample == 0 && archives[*a].members[*m].name.contains(&options.only);
    let tasks: Vec<_> = members.filter(chosen).collect();
    warm_up()?;
    let mut shards = Vec::new();
    for shard in 0..options.jobs {
        let results = tempfile::tempfile().map_err(|e| e.to_string())?;
        let mut file = results.try_clone().map_err(|e| e.to_string())?;
        let body = || {
            for (i, (a, m)) in tasks.iter().enumerate().skip(shard).step_by(options.jobs) {
                let with_contents = options.contents != 0 && i % options.contents == 0;
                let findings = findings(&archives[*a], (*a, *m), options, with_contents);
                file.write_all(encode(&findings).as_bytes()).unwrap();
            }
        };
        shards.push((fork(body)?, results));
    }
    let mut all = Vec::new();
    for (child, mut results) in shards {
        if let Some(how) = wait(child) {
            return Err(format!("a worker {how}"));
        }
        let mut text = String::new();
        // The offset is shared with the child, which left it at the end.
        std::io::Seek::rewind(&mut results)
            .and_then(|()| results.read_to_string(&mut text))
            .map_err(|e| e.to_string())?;
        for line in text.lines() {
            all.push(decode(line).ok_or_else(|| format!("a worker wrote {line:?}"))?);
        }
    }
    all.sort_by_key(|f| (f.archive, f.member));
    if all.len() != tasks.len() {
        return Err(format!("{} of {} members were reported", all.len(), tasks.len()));
    }
    Ok(all)
}

/// Under qemu-user, translating libLLVM's code takes most of the time: what this process has run, its children find
/// translated. Elsewhere they find LLVM as it was loaded.
fn warm_up() -> Result<(), String> {
    if std::env::var_os("SLABJIT_TEST_RUNNER").is_none() || cfg!(not(feature = "llvm")) {
        return Ok(());
    }
    let bytes = companion::small()?;
    let none = BTreeMap::new();
    ours::link("warm-up", &bytes, &none, &[], false, || {}).map_err(|e| e.to_string())?;
    if lljit::is_jitlink() {
        stock::link(&bytes, &none, &["small"])?;
        low::map_anywhere();
    }
    Ok(())
}

fn findings(of: &Archive, (archive, member): (usize, usize), options: &Options, with_contents: bool) -> Findings {
    let object = &of.members[member];
    let mut report = in_child(options.timeout, || both(of, object, options, with_contents));
    let ours = report.ours.take().unwrap_or_else(|| report.end());
    let stock = match report.stock.take() {
        _ if !options.stock => None,
        Some(Outcome::Linked) => Some(Outcome::Linked),
        // In a process where nothing has happened before, so that nothing else can be the reason.
        _ => {
            let mut report = in_child(options.timeout, || stock_alone(object));
            Some(report.stock.take().unwrap_or_else(|| report.end()))
        }
    };
    let contents = match report.contents {
        Some(contents) => Some(contents),
        None if report.comparing => Some(Err(format!("the comparison {}", report.end().encode()))),
        None => None,
    };
    Findings { archive, member, ours, stock, contents }
}

// ---- in the child ----

fn say(what: &str, text: &str) {
    let _ = std::io::stderr().write_all(format!("\n{MARK}{what}{FIELD}{text}\n").as_bytes());
}

/// Objects that are meant to misbehave, for the tests of this program: nothing that is linked only can.
fn misbehave(object: &Object<'_>) {
    let has = |name: &str| object.sections.iter().any(|s| s.name == name);
    if has(".slabjit.test.crash") {
        std::process::abort();
    }
    while has(".slabjit.test.hang") {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn both(of: &Archive, member: &Member, options: &Options, with_contents: bool) {
    let object = Object::parse(&member.bytes);
    object.as_ref().inspect(|object| misbehave(object));
    let mut imports = match low::traps(object.iter().flat_map(Object::imports)) {
        Ok(imports) => imports,
        Err(message) => return say("ours", &Outcome::Failed(message).encode()),
    };
    for name in object.iter().flat_map(Object::nowhere).filter(|_| options.images) {
        imports.insert(name.to_owned(), 0);
    }
    if options.images {
        // An image has these of its own.
        let is_own = |name: &str| matches!(name, "atexit" | "at_quick_exit" | "pthread_atfork" | "__dso_handle");
        imports.retain(|name, _| !is_own(name) && !elf::is_bound(name));
    }
    let wants_variables = object.as_ref().is_some_and(|o| o.thread_local_imports().next().is_some());
    let wants_hidden = options.images && object.as_ref().is_some_and(|o| o.hidden_imports().next().is_some());
    let thread_locals = of.thread_locals.as_deref().filter(|_| wants_variables);
    let companions: Vec<&[u8]> =
        thread_locals.into_iter().chain(of.hidden.as_deref().filter(|_| wants_hidden)).collect();
    let mut given = imports.clone();
    given.retain(|_, address| *address != 0);
    for name in object.iter().flat_map(Object::thread_local_imports) {
        given.remove(name);
    }
    let runs_something = object.as_ref().is_none_or(Object::runs_something);
    let linked = move || {
        say("ours", &Outcome::Linked.encode());
        if runs_something {
            end();
        }
    };
    let library = match ours::link(&member.name, &member.bytes, &given, &companions, options.images, linked) {
        Ok(library) => library,
        Err(error) if options.images => return say("ours", &no_image(&member.bytes, &companions, &error).encode()),
        Err(error) => return say("ours", &Outcome::of_error(&error).encode()),
    };
    if wants_hidden {
        for (name, address) in &mut imports {
            // SAFETY: only its address is wanted; there are no initialisers.
            if let Ok(found) = unsafe { library.get::<*const u8>(&format!("{}{name}", companion::SEEN)) } {
                *address = found.address().addr();
            }
        }
    }
    // There was nothing to map, and so no event.
    say("ours", &Outcome::Linked.encode());
    let Some(object) = object else { return };
    let ours = contents::exported(&object, &library);
    let names: Vec<&str> = ours.keys().map(String::as_str).collect();
    let stock = if options.stock { say_stock(member, &object, &imports, &names) } else { None };
    if with_contents && !names.is_empty() {
        say("comparing", "");
        let result = match stock {
            Some(stock) => contents::compare(&object, &imports, &ours, &stock),
            None => contents::verify(&object, &imports, &ours),
        };
        say("contents", &contents::encode(&result));
    }
}

/// Of what is no image, what GNU ld says: a member that it makes a shared object of is to be an image, unless its code
/// would be changed at load.
fn no_image(bytes: &[u8], companions: &[&[u8]], error: &Error) -> Outcome {
    let takes = |arguments: &[&str]| ld(&[&[bytes], companions].concat(), arguments).map_err(|e| e.to_string());
    match (takes(&["-shared"]), Outcome::of_error(error)) {
        (Ok(false), Outcome::Refused(cause)) => Outcome::Refused(format!("{cause}, and by ld -shared")),
        (Ok(true), Outcome::Refused(cause)) if takes(&["-shared", "-z", "text"]) == Ok(false) => {
            Outcome::Refused(format!("{cause}, of which ld -shared makes code that is changed at load (DT_TEXTREL)"))
        }
        (Ok(true), _) => Outcome::Failed(format!("{TAKEN_BY_LD}: {error}")),
        (Ok(false), other) => other,
        (Err(message), _) => Outcome::Failed(format!("cannot ask ld: {message}")),
    }
}

/// Returns whether GNU ld links objects.
fn ld(objects: &[&[u8]], arguments: &[&str]) -> std::io::Result<bool> {
    let folder = tempfile::tempdir()?;
    let ld = if cfg!(target_arch = "x86_64") { "ld" } else { "aarch64-linux-gnu-ld" };
    let mut command = Command::new(ld);
    command.args(arguments).arg("-o").arg(folder.path().join("member.so"));
    for (number, bytes) in objects.iter().enumerate() {
        let path = folder.path().join(format!("{number}.o"));
        std::fs::write(&path, bytes)?;
        command.arg(path);
    }
    Ok(command.output()?.status.success())
}

fn stock_alone(member: &Member) {
    let Some(object) = Object::parse(&member.bytes) else {
        // Whatever is asked for, what is no object is refused when it is added.
        let outcome = stock::link(&member.bytes, &BTreeMap::new(), &["anything"]).map(|_| Outcome::Linked);
        return say("stock", &outcome.unwrap_or_else(Outcome::Failed).encode());
    };
    misbehave(&object);
    match low::traps(object.imports()) {
        Ok(imports) => drop(say_stock(member, &object, &imports, &[])),
        Err(message) => say("stock", &Outcome::Failed(message).encode()),
    }
}

/// Links it with stock, by asking for these names, or for one if there are none. Returns their addresses.
fn say_stock(
    member: &Member,
    object: &Object<'_>,
    imports: &BTreeMap<String, usize>,
    names: &[&str],
) -> Option<BTreeMap<String, u64>> {
    let Some(export) = object.export() else {
        say("stock", &Outcome::NeverAsked.encode());
        return None;
    };
    let one = [export.name.as_str()];
    let wanted = if names.is_empty() { &one } else { names };
    let linked = stock::link(&member.bytes, imports, wanted);
    let addresses = linked.inspect_err(|message| say("stock", &Outcome::Failed(message.clone()).encode())).ok()?;
    let misplaced = addresses.iter().find(|(_, address)| !export.is_absolute() && !low::is_low(**address));
    let outcome = match misplaced {
        Some((name, address)) => Outcome::Failed(format!("{name} is not where it was to be, but at {address:#x}")),
        None => Outcome::Linked,
    };
    say("stock", &outcome.encode());
    Some(addresses)
}

/// Ends the process at once.
fn end() -> ! {
    // SAFETY: nothing of this process is needed any more.
    unsafe { libc::_exit(0) }
}

// ---- in the parent ----

/// What a child said, and how it ended.
#[derive(Default)]
struct Report {
    ours: Option<Outcome>,
    stock: Option<Outcome>,
    comparing: bool,
    contents: Option<Result<Verified, String>>,
    how: Option<String>,
    last_words: String,
}

impl Report {
    /// For a child that did not say what became of the member.
    fn end(&self) -> Outcome {
        let how = self.how.as_deref().unwrap_or("ended without a word");
        let words: Vec<_> = self.last_words.split_whitespace().collect();
        Outcome::Failed(format!("{how} {}", words.join(" ")).trim_end().to_owned())
    }
}

fn in_child<R>(timeout: u32, body: impl FnOnce() -> R) -> Report {
    let mut report = Report::default();
    let (mut reader, writer) = match std::io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return Report { how: Some(error.to_string()), ..report },
    };
    let child = fork(|| {
        // SAFETY: plain system calls on descriptors and limits of this new process.
        unsafe {
            libc::dup2(writer.as_raw_fd(), 2);
            libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
            // Its signal ends the process.
            libc::alarm(timeout);
        }
        body();
    });
    drop(writer);
    let child = match child {
        Ok(child) => child,
        Err(error) => return Report { how: Some(error), ..report },
    };
    let mut text = Vec::new();
    let _ = reader.read_to_end(&mut text);
    report.how = wait(child);
    for line in String::from_utf8_lossy(&text).lines() {
        match line.strip_prefix(MARK).and_then(|line| line.split_once(FIELD)) {
            // What is said first counts: initialising what is empty comes after it was linked.
            Some(("ours", outcome)) if report.ours.is_none() => report.ours = Outcome::decode(outcome),
            Some(("stock", outcome)) => report.stock = Outcome::decode(outcome),
            Some(("comparing", _)) => report.comparing = true,
            Some(("contents", text)) => report.contents = contents::decode(text),
            Some(_) => {}
            None => report.last_words = format!("{} {line}", report.last_words).trim().chars().take(500).collect(),
        }
    }
    report
}

/// Runs `body` in a copy of this process.
fn fork(body: impl FnOnce()) -> Result<libc::pid_t, String> {
    // SAFETY: this process has one thread, so the copy is whole; the child never returns from here.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().to_string()),
        0 => {
            // A panic must not go on into the parent's work.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            // SAFETY: nothing of this process is needed any more.
            unsafe { libc::_exit(if result.is_ok() { 0 } else { 101 }) }
        }
        child => Ok(child),
    }
}

/// Waits for a child. None if it ended well, else how it ended.
fn wait(child: libc::pid_t) -> Option<String> {
    let mut status = 0;
    // SAFETY: a child of ours that was not waited for yet.
    while unsafe { libc::waitpid(child, &mut status, 0) } == -1 {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Some(error.to_string());
        }
    }
    if libc::WIFSIGNALED(status) {
        return Some(match libc::WTERMSIG(status) {
            libc::SIGALRM => "hung".into(),
            signal => format!("crashed with signal {signal}"),
        });
    }
    (libc::WEXITSTATUS(status) != 0).then(|| format!("ended with {}", libc::WEXITSTATUS(status)))
}

fn encode(f: &Findings) -> String {
    let stock = f.stock.as_ref().map(Outcome::encode).unwrap_or_default();
    let contents = f.contents.as_ref().map(contents::encode).unwrap_or_default();
    let fields = [f.archive.to_string(), f.member.to_string(), f.ours.encode(), stock, contents];
    fields.join(&FIELD.to_string()) + "\n"
}

fn decode(line: &str) -> Option<Findings> {
    let fields: Vec<&str> = line.split(FIELD).collect();
    let [archive, member, ours, stock, contents] = fields.try_into().ok()?;
    Some(Findings {
        archive: archive.parse().ok()?,
        member: member.parse().ok()?,
        ours: Outcome::decode(ours)?,
        stock: Outcome::decode(stock),
        contents: contents::decode(contents),
    })
}
