//! Servers that are wrong, slow or hostile: what they cost is bounded.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use slabjit::store::{self, SecretKey, Store};
use slabjit::{CacheError, CacheKey, Error, ObjectCache};

use super::servers::Server;

/// Listens, and answers each connection so.
fn listen(answer: impl Fn(&mut TcpStream) + Send + Sync + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = answer.clone();
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                answer(&mut stream);
            });
        }
    });
    host
}

/// The most memory that this process had, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// 10 GB come for 10 KB: said before, said wrong, and not said.
pub fn endless_values() {
    let before = peak();
    for header in ["content-length: 10000000000", "transfer-encoding: chunked"] {
        let is_chunked = header.contains("chunked");
        for status in ["200 OK", "500 Broken"] {
            let host = listen(move |stream| {
                let head =
                    format!("HTTP/1.1 {status}\r\n{header}\r\nlast-modified: Sat, 28 Nov 2026 00:00:00 GMT\r\n\r\n");
                let mut piece = vec![b'x'; 1 << 20];
                if is_chunked {
                    piece = [b"100000\r\n", &piece[..], b"\r\n"].concat();
                }
                let mut sent = stream.write_all(head.as_bytes());
                for _ in 0..10_000 {
                    sent = sent.and_then(|()| stream.write_all(&piece));
                }
            });
            // SAFETY: as for the servers.
            unsafe { std::env::set_var("AWS_ENDPOINT", format!("http://{host}")) };
            for url in [format!("http://{host}/a"), format!("dav://{host}/a"), "s3://bucket/a".to_owned()] {
                let start = Instant::now();
                let store = store::open(&url).unwrap();
                store.get("a.key", 10_000).unwrap_err();
                assert!(start.elapsed() < Duration::from_secs(5), "{url} {header} {status}: {:?}", start.elapsed());
            }
        }
    }
    assert!(peak() - before < 32 << 10, "{} KiB", peak() - before);
    // An honest server with a value that somebody has exchanged: another process has sent it.
    if let Some((_server, url)) = Server::redis() {
        let (host, _) = url.trim_start_matches("redis://").split_once('/').unwrap();
        let (mut sender, length) = (TcpStream::connect(host).unwrap(), 300 << 20);
        let command = format!("*3\r\n$3\r\nSET\r\n$13\r\nkernels:a.key\r\n${length}\r\n");
        sender.write_all(command.as_bytes()).unwrap();
        (0..300).for_each(|_| sender.write_all(&vec![1; 1 << 20]).unwrap());
        sender.write_all(b"\r\n").unwrap();
        assert_eq!(sender.read(&mut [0; 5]).unwrap(), 5);
        let store = store::open(&url).unwrap();
        let (before, start) = (peak(), Instant::now());
        store.get("a.key", 10_000).unwrap_err();
        assert!(peak() - before < 16 << 10 && start.elapsed() < Duration::from_secs(5), "{} KiB", peak() - before);
    }
}

/// Nothing costs more than the wait, once; then compiling costs what it costs.
pub fn slow_and_broken_servers() {
    let silent = listen(|_| thread::sleep(Duration::from_secs(30)));
    let broken = listen(|stream| drop(stream.write_all(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")));
    let garbage = listen(|stream| drop(stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n")));
    let closing = listen(|_| {});
    let dripping = listen(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        while stream.write_all(b".").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    });
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let hosts = [&silent, &broken, &garbage, &closing, &dripping, &refused, "no-such-host.invalid"];
    for host in hosts {
        for scheme in ["http", "dav", "redis"] {
            let folder = tempfile::tempdir().unwrap();
            let wait = Duration::from_millis(300);
            let builder = ObjectCache::builder(folder.path().join("cache"));
            let store = store::open(&format!("{scheme}://{host}/0")).unwrap();
            let signer = SecretKey::generate().unwrap();
            let cache = builder.store(store).sign_with(signer).store_wait(wait).open().unwrap();
            let start = Instant::now();
            let mut problems = Vec::new();
            for i in 0..50 {
                let key = CacheKey::new([format!("{i}")]);
                let made = cache.get_or_compile(&key, || Ok::<_, ()>(b"object".to_vec())).unwrap();
                assert!(!made.found && made.bytes == b"object");
                problems.extend(made.problems);
            }
            let took = start.elapsed();
            assert!(took < 6 * wait, "{scheme} {host}: {took:?}");
            assert!((1..=5).contains(&problems.len()), "{scheme} {host}: {problems:?}");
            let message = problems[0].to_string();
            assert!(message.contains("what is missing is compiled here"), "{message}");
            let start = Instant::now();
            drop(cache);
            assert!(start.elapsed() < wait * 2);
        }
    }
}

/// A login page in the place of the store, and a folder that is missing: nothing was sent.
pub fn refusals_are_not_taken_for_success() {
    let login = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlogin";
    for (status, header) in [(302, "location: /login"), (301, "location: /login"), (409, "x: y"), (403, "x: y")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut request) = (stream.unwrap(), [0; 4096]);
                let length = stream.read(&mut request).unwrap_or(0);
                let is_page = request[..length].windows(6).any(|text| text == b"/login");
                let other =
                    format!("HTTP/1.1 {status} No\r\n{header}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = stream.write_all(if is_page { login.as_bytes() } else { other.as_bytes() });
            }
        });
        let store = store::open(&format!("http://{host}/a")).unwrap();
        assert!(store.put_if_absent("a.key", b"a").is_err(), "{status}");
        assert!(store.delete("a.key").is_err(), "{status}");
    }
}

/// Somebody else writes to the bucket: each change is refused for its own reason.
pub fn poisoned_bucket() {
    for server in [Server::s3(), Server::redis()] {
        let Some((_server, url)) = server else { continue };
        let folder = tempfile::tempdir().unwrap();
        let secret = SecretKey::generate().unwrap();
        let public = secret.public().clone();
        let open = |name: &str| {
            let store = store::open(&url).unwrap();
            ObjectCache::builder(folder.path().join(name)).store(store).trusted_keys([public.clone()])
        };
        let key = |name: &str| CacheKey::new([name]);
        let builder = open("builder").sign_with(secret).open().unwrap();
        let objects = [("a", vec![1; 10_000]), ("b", vec![2; 10_000])];
        for (name, object) in &objects {
            builder.put(&key(name), object).unwrap();
        }
        assert!(builder.flush(Duration::from_secs(30)));

        let bucket = store::open(&url).unwrap();
        let name = |of: &str| format!("{}.key", key(of));
        let contents = format!("{}.o", blake3::hash(&objects[0].1));
        let set = |name: &str, value: &[u8]| {
            bucket.delete(name).unwrap();
            assert!(bucket.put_if_absent(name, value).unwrap());
        };
        let worker = open("worker").read_only(true).open().unwrap();
        let reason = || match worker.get(&key("a")) {
            Err(Error::Cache(CacheError::Refused { refusal, .. })) => refusal.reason(),
            Err(Error::Cache(CacheError::Store { .. })) => "store",
            other => panic!("{other:?}"),
        };
        set(&contents, &objects[1].1);
        assert_eq!(reason(), "other-contents");
        set(&contents, &objects[0].1[..5000]);
        assert_eq!(reason(), "other-contents");
        set(&contents, &vec![1; 20_000_000]);
        assert_eq!(reason(), "store");
        set(&contents, &objects[0].1);
        let good = bucket.get(&name("a"), 1 << 20).unwrap().unwrap();
        let other = bucket.get(&name("b"), 1 << 20).unwrap().unwrap();
        set(&name("a"), &other);
        assert_eq!(reason(), "other-key");
        set(&name("a"), &good[..good.len() / 2]);
        assert_eq!(reason(), "malformed");
        set(&name("a"), &good);
        let revoking = open("revoking").revoked_keys([public.id()]).open().unwrap();
        let error = revoking.get(&key("a")).unwrap_err();
        assert!(error.to_string().contains("which was revoked"), "{error}");
        assert_eq!(worker.get(&key("a")).unwrap(), Some(objects[0].1.clone()));
        println!("{}: {:?}", bucket.describe(), worker.counters().refused);
    }
}
