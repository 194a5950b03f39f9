//! Many processes: two machines (folders, and users where this one may change its user), ranks of an MPI program,
//! processes and servers that are killed.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use slabjit::store::{self, SecretKey};
use slabjit::{CacheKey, ImageBuilder, JitEngine, ObjectCache, ObjectCacheBuilder};

use super::servers::Server;

/// A folder on which no other file system lies, and which may be mapped from.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// What a process of a test does.
#[derive(Clone)]
struct Worker {
    /// `kernels` or `bytes`.
    work: &'static str,
    folder: PathBuf,
    url: String,
    /// The file of the secret key, or what is no file.
    secret: PathBuf,
    public: String,
    count: usize,
}

impl Worker {
    fn text(&self) -> String {
        let Self { work, folder, url, secret, public, count } = self;
        format!("{work}\t{}\t{url}\t{}\t{public}\t{count}", folder.display(), secret.display())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("SLABJIT_FLEET_WORKER", self.text()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, user: Option<u32>) -> Output {
        let mut command = self.command();
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command.output().unwrap()
    }
}

/// Is a process of a test.
pub fn work(text: &str) -> ExitCode {
    let fields: Vec<_> = text.split('\t').collect();
    let [work, folder, url, secret, public, count] = fields[..] else { panic!("{text}") };
    let mut builder = ObjectCache::builder(folder).trusted_keys([public.parse().unwrap()]);
    if !url.is_empty() {
        builder = builder.store(store::open(url).unwrap());
    }
    if Path::new(secret).exists() {
        builder = builder.sign_with(SecretKey::from_file(secret).unwrap());
    }
    match work {
        "kernels" => kernels(builder, count.parse().unwrap()),
        "bytes" => bytes(builder, count.parse().unwrap()),
        other => panic!("{other}"),
    }
}

/// Compiles what is not there, has it linked into images, and calls some of them.
fn kernels(builder: ObjectCacheBuilder, count: usize) -> ExitCode {
    let cache = builder.open().unwrap();
    let engine = JitEngine::new().unwrap();
    let mut compiled = 0;
    for i in 0..count {
        let source = format!("kernel {i}");
        let key = CacheKey::builder().part("compiler", "as").part("source", &source).build();
        let image = cache
            .get_or_link(&key, || {
                compiled += 1;
                Ok::<_, std::io::Error>(ImageBuilder::new().object("kernel.o", assemble(i)?))
            })
            .unwrap();
        assert!(image.problems.is_empty(), "{:?}", image.problems);
        if i % 50 == 0 {
            let library = engine.add_linked(&image.linked).unwrap();
            // SAFETY: the kernel takes nothing and returns a number.
            let kernel = unsafe { library.get::<extern "C" fn() -> i32>("kernel").unwrap() };
            assert_eq!(kernel() as usize, i);
        }
    }
    assert!(cache.flush(Duration::from_secs(120)));
    let counters = cache.counters();
    println!("compiled {compiled} store_hits {} not_sent {}", counters.store_hits, counters.not_sent);
    ExitCode::SUCCESS
}

/// Makes an object with a function that returns a number.
fn assemble(number: usize) -> std::io::Result<Vec<u8>> {
    let body =
        if cfg!(target_arch = "aarch64") { format!("mov w0, #{number}") } else { format!("mov ${number}, %eax") };
    let text = format!(".globl kernel\n.type kernel, %function\nkernel: {body}\n ret\n.size kernel, . - kernel\n");
    let object = std::env::temp_dir().join(format!("slabjit-fleet-{}.o", std::process::id()));
    let mut child = Command::new("as").arg("-o").arg(&object).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().unwrap().write_all(text.as_bytes())?;
    assert!(child.wait()?.success());
    let bytes = fs::read(&object)?;
    fs::remove_file(object)?;
    Ok(bytes)
}

/// What a key of [`bytes`] leads to.
fn value(number: usize) -> Vec<u8> {
    (0..number % 5000 + 1).map(|i| (i ^ number) as u8).collect()
}

fn number_key(number: usize) -> CacheKey {
    CacheKey::new([number.to_string()])
}

/// Stores and finds bytes under many keys, each process in another order.
fn bytes(builder: ObjectCacheBuilder, count: usize) -> ExitCode {
    let cache = builder.wait_for_others(Duration::from_secs(1)).open().unwrap();
    let start = std::process::id() as usize * 7919;
    for i in 0..count {
        let number = (start + i * 7) % count;
        let made = cache.get_or_compile(&number_key(number), || Ok::<_, ()>(value(number))).unwrap();
        assert_eq!(made.bytes, value(number));
        assert!(made.problems.iter().all(|problem| !problem.to_string().contains("torn")), "{:?}", made.problems);
    }
    cache.flush(Duration::from_secs(60));
    ExitCode::SUCCESS
}

/// Returns a number behind a word of the output.
#[track_caller]
fn number(output: &Output, word: &str) -> usize {
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{errors}");
    let words: Vec<_> = text.split_whitespace().collect();
    words.windows(2).filter(|pair| pair[0] == word).map(|pair| pair[1].parse::<usize>().unwrap()).sum()
}

/// 1000 kernels: the second machine compiles none.
fn two_machines(server: Option<(Server, String)>) {
    let Some((_server, url)) = server else { return };
    let folder = folder();
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("one user, as only root may have processes of others");
    }
    let machine = |name: &str, user: u32| {
        let own = folder.path().join(name);
        fs::create_dir(&own).unwrap();
        if is_root {
            chown(&own, Some(user), Some(user)).unwrap();
        }
        (own, is_root.then_some(user))
    };
    let ((first, first_user), (second, second_user)) = (machine("first", 65_533), machine("second", 65_534));
    let secret = SecretKey::generate().unwrap();
    let file = first.join("key");
    secret.write(&file).unwrap();
    if let Some(user) = first_user {
        chown(&file, Some(user), Some(user)).unwrap();
    }
    let count = 1000;
    let builder = Worker {
        work: "kernels",
        folder: first.join("cache"),
        url,
        secret: file,
        public: secret.public().to_string(),
        count,
    };
    let start = Instant::now();
    let output = builder.run(first_user);
    assert_eq!((number(&output, "compiled"), number(&output, "not_sent")), (count, 0));
    let (built, start) = (start.elapsed(), Instant::now());
    let worker = Worker { folder: second.join("cache"), secret: "none".into(), ..builder };
    let output = worker.run(second_user);
    assert_eq!((number(&output, "compiled"), number(&output, "store_hits")), (0, count));
    println!("{count} kernels: the first machine {built:?}, the second {:?}", start.elapsed());
    let output = worker.run(second_user);
    assert_eq!((number(&output, "compiled"), number(&output, "store_hits")), (0, 0));
}

pub fn two_machines_s3() {
    two_machines(Server::s3());
}

pub fn two_machines_redis() {
    two_machines(Server::redis());
}

/// Ranks of one machine start at once: each kernel is compiled once.
pub fn ranks() {
    let Some((_server, url)) = Server::redis() else { return };
    let folder = folder();
    let secret = SecretKey::generate().unwrap();
    let file = folder.path().join("key");
    secret.write(&file).unwrap();
    let cache = folder.path().join("cache");
    let worker =
        Worker { work: "kernels", folder: cache, url, secret: file, public: secret.public().to_string(), count: 100 };
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "-n", "4"]);
    command.arg(std::env::current_exe().unwrap()).env("SLABJIT_FLEET_WORKER", worker.text());
    let Ok(output) = command.output() else {
        println!("not run: mpirun is not installed; ci/fleet installs it");
        return;
    };
    assert_eq!(number(&output, "compiled"), 100);
}

/// Processes are killed while they store, find, send and fetch: nothing is torn, and nothing is wrong.
pub fn killed_processes() {
    let Some((_server, url)) = Server::redis() else { return };
    let count = if std::env::var_os("SLABJIT_FLEET_FULL").is_some() { 10_000 } else { 1_000 };
    let folder = folder();
    let secret = SecretKey::generate().unwrap();
    let file = folder.path().join("key");
    secret.write(&file).unwrap();
    let public = secret.public().to_string();
    let worker = |i: usize| Worker {
        work: "bytes",
        // Two machines.
        folder: folder.path().join(format!("cache {}", i % 2)),
        url: url.clone(),
        secret: file.clone(),
        public: public.clone(),
        count,
    };
    let mut running: Vec<Child> = (0..8).map(|i| worker(i).command().spawn().unwrap()).collect();
    for kill in 0..40usize {
        thread::sleep(Duration::from_millis(20 + kill as u64 * 13 % 60));
        let child = &mut running[kill * 5 % 8];
        child.kill().unwrap();
        child.wait().unwrap();
        *child = worker(kill * 5 % 8).command().spawn().unwrap();
    }
    for child in running {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for i in 0..2 {
        let cache = ObjectCache::open(folder.path().join(format!("cache {i}"))).unwrap();
        let verified = cache.verify().unwrap();
        assert!(verified.problems.is_empty(), "{:?}", verified.problems);
        assert_eq!(verified.entries as usize, count);
    }
    // And what is in the store is right.
    let cache = ObjectCache::builder(folder.path().join("other")).store(store::open(&url).unwrap());
    let cache = cache.trusted_keys([public.parse().unwrap()]).read_only(true).open().unwrap();
    let found =
        (0..count).filter(|&i| cache.get(&number_key(i)).unwrap().inspect(|v| assert_eq!(*v, value(i))).is_some());
    let found = found.count();
    println!("{found} of {count} are in the store");
    assert!(found * 10 > count * 9);
}

/// The server dies in the middle, and comes back on no port: nothing fails.
pub fn killed_server() {
    let Some((mut server, url)) = Server::redis() else { return };
    let folder = folder();
    let builder = ObjectCache::builder(folder.path().join("cache")).store(store::open(&url).unwrap());
    let cache = builder.sign_with(SecretKey::generate().unwrap()).open().unwrap();
    let start = Instant::now();
    for i in 0..2000 {
        if i == 1000 {
            server.kill();
        }
        let made = cache.get_or_compile(&number_key(i), || Ok::<_, ()>(value(i))).unwrap();
        assert!(!made.found && made.bytes == value(i));
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    cache.flush(Duration::from_secs(5));
    let counters = cache.counters();
    assert_eq!(counters.misses, 2000);
    assert!(counters.store_failures > 0 && counters.store_skipped > 900, "{counters:?}");
    assert_eq!(cache.verify().unwrap().entries, 2000);
}

/// A child of `fork` has none of the parent's threads and connections, and uses the store all the same.
pub fn forks() {
    let (redis, nginx) = (Server::redis(), Server::nginx());
    let urls = redis.iter().map(|(_, url)| url.clone()).chain(nginx.iter().map(|(_, host)| format!("http://{host}/f")));
    for url in urls {
        let folder = folder();
        let secret = SecretKey::generate().unwrap();
        let builder = ObjectCache::builder(folder.path().join("cache")).store(store::open(&url).unwrap());
        let cache = builder.trusted_keys([secret.public().clone()]).sign_with(secret).open().unwrap();
        for i in 0..20 {
            cache.put(&number_key(i), &value(i)).unwrap();
        }
        let children: Vec<_> = (1..5usize)
            .map(|child| {
                // SAFETY: the child calls only the cache, which allows that, and ends.
                let id = unsafe { libc::fork() };
                if id == 0 {
                    let ok = (0..20).all(|i| {
                        let number = child * 1000 + i;
                        cache.put(&number_key(number), &value(number)).is_ok()
                            && cache.get(&number_key(number)).is_ok_and(|found| found == Some(value(number)))
                            && cache.get(&number_key(number + 500)).is_ok_and(|found| found.is_none())
                    });
                    let ok = ok && cache.flush(Duration::from_secs(10)) && cache.counters().not_sent == 0;
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(i32::from(!ok)) };
                }
                id
            })
            .collect();
        for i in 20..40 {
            assert_eq!(cache.get(&number_key(i)).unwrap(), None);
            cache.put(&number_key(i), &value(i)).unwrap();
        }
        for child in children {
            let mut status = 0;
            // SAFETY: a child of this process.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0, "{url}");
        }
        assert!(cache.flush(Duration::from_secs(10)));
        let other = ObjectCache::builder(folder.path().join("other")).store(store::open(&url).unwrap());
        let other = other.require_signature(false).open().unwrap();
        for number in (0..40).chain((1..5).flat_map(|child| child * 1000..child * 1000 + 20)) {
            assert_eq!(other.get(&number_key(number)).unwrap(), Some(value(number)), "{url}");
        }
    }
}
