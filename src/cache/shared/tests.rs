//! The tier of a shared store, by stores of our own: good ones, dead ones, lying ones.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::refusal::Refusal;
use super::signing::{PublicKey, SecretKey};
use super::store::{Store, StoreError};
use crate::cache::record::{Kind, Record};
use crate::{CacheError, CacheKey, Error, ObjectCache, ObjectCacheBuilder};

const OBJECT: &[u8] = b"\x7fELF and what else an object has";

type Hook = Arc<dyn Fn(&str, &str) -> Result<(), StoreError> + Send + Sync>;

/// A store in memory, which can be told to misbehave.
#[derive(Clone, Default)]
struct Memory {
    values: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    calls: Arc<Mutex<Vec<String>>>,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl Memory {
    fn called(&self, call: &str, name: &str) -> Result<(), StoreError> {
        self.calls.lock().unwrap().push(format!("{call} {name}"));
        let hook = self.hook.lock().unwrap().clone();
        hook.map_or(Ok(()), |hook| hook(call, name))
    }

    fn on(&self, hook: impl Fn(&str, &str) -> Result<(), StoreError> + Send + Sync + 'static) {
        *self.hook.lock().unwrap() = Some(Arc::new(hook));
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    fn value(&self, name: &str) -> Option<Vec<u8>> {
        self.values.lock().unwrap().get(name).cloned()
    }

    fn set(&self, name: &str, value: &[u8]) {
        self.values.lock().unwrap().insert(name.to_owned(), value.to_vec());
    }
}

impl Store for Memory {
    fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
        self.called("get", name)?;
        let value = self.value(name);
        if value.as_ref().is_some_and(|value| value.len() as u64 > most) {
            return Err("too long".into());
        }
        Ok(value)
    }

    fn put_if_absent(&self, name: &str, value: &[u8]) -> Result<bool, StoreError> {
        self.called("put", name)?;
        let mut values = self.values.lock().unwrap();
        let is_absent = !values.contains_key(name);
        if is_absent {
            values.insert(name.to_owned(), value.to_vec());
        }
        Ok(is_absent)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.called("delete", name)?;
        self.values.lock().unwrap().remove(name);
        Ok(())
    }
}

struct Fleet {
    folder: tempfile::TempDir,
    store: Memory,
    public: PublicKey,
}

impl Fleet {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = SecretKey::generate().unwrap();
        secret.write(folder.path().join("key")).unwrap();
        Self { folder, store: Memory::default(), public: secret.public().clone() }
    }

    fn secret(&self) -> SecretKey {
        SecretKey::from_file(self.folder.path().join("key")).unwrap()
    }

    /// A machine that only reads and trusts the key.
    fn machine(&self, name: &str) -> ObjectCacheBuilder {
        ObjectCache::builder(self.folder.path().join(name))
            .store(self.store.clone())
            .trusted_keys([self.public.clone()])
    }

    /// Has a builder compile an object.
    fn build(&self, key: &CacheKey, object: &[u8]) {
        let cache = self.machine("builder").sign_with(self.secret()).open().unwrap();
        cache.put(key, object).unwrap();
        assert!(cache.flush(Duration::from_secs(10)));
        assert_eq!(cache.counters().not_sent, 0);
    }
}

fn key(name: &str) -> CacheKey {
    CacheKey::new([name])
}

fn name_of(object: &[u8]) -> String {
    Record::of(&key("any"), Kind::Object, object).contents_name()
}

fn never() -> Result<Vec<u8>, StoreError> {
    panic!("compiled")
}

#[track_caller]
fn refusal(error: &Error) -> &Refusal {
    match error {
        Error::Cache(CacheError::Refused { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_one_machine_compiles_another_finds() {
    let fleet = Fleet::new();
    fleet.build(&key("a"), OBJECT);
    let worker = fleet.machine("worker").read_only(true).open().unwrap();
    let found = worker.get_or_compile(&key("a"), never).unwrap();
    assert!(found.found && found.problems.is_empty() && found.bytes == OBJECT);
    let counters = worker.counters();
    assert_eq!((counters.store_hits, counters.hits, counters.misses), (1, 0, 0));
    // The second time, it is here.
    fleet.store.calls();
    assert!(worker.get_or_compile(&key("a"), never).unwrap().found);
    assert_eq!((fleet.store.calls(), worker.counters().hits), (vec![], 1));
    // What is nowhere takes one question.
    let made = worker.get_or_compile(&key("b"), || Ok::<_, ()>(b"b".to_vec())).unwrap();
    assert!(!made.found && made.problems.is_empty());
    assert_eq!(fleet.store.calls(), [format!("get {}", Record::file_name(&key("b")))]);
    // It only reads.
    drop(worker);
    assert_eq!(fleet.store.calls(), Vec::<String>::new());
}

/// The contents are sent before what leads to them, and the record says who has signed it.
#[test]
fn an_entry_is_sent_whole() {
    let fleet = Fleet::new();
    fleet.build(&key("a"), OBJECT);
    let record_name = Record::file_name(&key("a"));
    assert_eq!(fleet.store.calls(), [format!("put {}", name_of(OBJECT)), format!("put {record_name}")]);
    let record = Record::read(&fleet.store.value(&record_name).unwrap(), &key("a")).unwrap();
    assert_eq!(record.signatures[0].by, fleet.public.id());
    let cache = fleet.machine("builder").open().unwrap();
    assert_eq!(cache.entries().unwrap()[0].signed_by, [fleet.public.id()]);
}

/// Each change of what the store has is refused for its own reason, kept aside, and compiled here.
#[test]
fn what_strangers_put_into_the_store_is_refused() {
    let fleet = Fleet::new();
    fleet.build(&key("a"), OBJECT);
    fleet.build(&key("other"), b"another object");
    let record_name = Record::file_name(&key("a"));
    let good = String::from_utf8(fleet.store.value(&record_name).unwrap()).unwrap();
    let other = fleet.store.value(&Record::file_name(&key("other"))).unwrap();
    let parsed = Record::read(good.as_bytes(), &key("a")).unwrap();
    let changed = |change: &dyn Fn(&mut Record)| {
        let mut record = parsed.clone();
        change(&mut record);
        record.text(&key("a")).into_bytes()
    };
    let stranger = SecretKey::generate().unwrap();
    let by_stranger = changed(&|record| {
        record.signatures[0].by = stranger.public().id();
        record.signatures[0].signature = stranger.sign(record.statement(&key("a")).as_bytes()).unwrap();
    });
    let under_our_name = changed(&|record| {
        record.signatures[0].signature = stranger.sign(record.statement(&key("a")).as_bytes()).unwrap();
    });
    let records: [(&str, Vec<u8>); 8] = [
        ("malformed", good.as_bytes()[..good.len() / 2].to_vec()),
        ("malformed", good.replace("record 1", "record 2").into_bytes()),
        ("malformed", b"\x00\xff".to_vec()),
        ("other-key", other),
        ("unsigned", changed(&|record| record.signatures.clear())),
        ("bad-signature", changed(&|record| record.time += 1)),
        ("untrusted-key", by_stranger),
        ("bad-signature", under_our_name),
    ];
    let worker = fleet.machine("worker").open().unwrap();
    let mut count = 0;
    for (reason, record) in records {
        fleet.store.set(&record_name, &record);
        let made = worker.get_or_compile(&key("a"), || Ok::<_, ()>(b"made here".to_vec())).unwrap();
        assert!(!made.found && made.bytes == b"made here", "{reason}");
        assert_eq!(refusal(&made.problems[0]).reason(), reason);
        let aside = worker.path().join(format!("{record_name}.refused"));
        assert_eq!(fs::read(&aside).unwrap(), record, "{reason}");
        fs::remove_file(aside).unwrap();
        fs::remove_file(worker.path().join(&record_name)).unwrap();
        count += 1;
        assert_eq!(worker.counters().refused.values().sum::<u64>(), count);
    }
    fleet.store.set(&record_name, good.as_bytes());
    for (problem, contents) in
        [("other-contents", b"\x7fELF and what ELSE an object has".to_vec()), ("other-contents", vec![])]
    {
        fleet.store.set(&name_of(OBJECT), &contents);
        let error = worker.get(&key("a")).unwrap_err();
        assert_eq!(refusal(&error).reason(), problem);
    }
    // A builder that compiles it anew repairs the store.
    let builder = fleet.machine("another builder").sign_with(fleet.secret()).open().unwrap();
    assert!(!builder.get_or_compile(&key("a"), || Ok::<_, ()>(OBJECT.to_vec())).unwrap().found);
    assert!(builder.flush(Duration::from_secs(10)));
    assert_eq!(fleet.store.value(&name_of(OBJECT)).as_deref(), Some(OBJECT));
    // Longer than what was signed: the store is told to send no more.
    fleet.store.set(&name_of(OBJECT), &[7; 1000]);
    assert!(matches!(worker.get(&key("a")), Err(Error::Cache(CacheError::Store { .. }))));
    fleet.store.set(&name_of(OBJECT), OBJECT);
    assert_eq!(worker.get(&key("a")).unwrap().as_deref(), Some(OBJECT));
}

/// Neither a builder's nor a worker's clock decides about an entry: what is signed is taken, and lookups and collections
/// go on with files of any time.
#[test]
fn clocks_that_are_wrong() {
    let fleet = Fleet::new();
    fleet.build(&key("a"), OBJECT);
    let record_name = Record::file_name(&key("a"));
    let parsed = Record::read(&fleet.store.value(&record_name).unwrap(), &key("a")).unwrap();
    let (secret, year) = (fleet.secret(), 365 * 24 * 60 * 60);
    let now = parsed.time;
    for (machine, time) in [0, now - year, now + year, u64::MAX].into_iter().enumerate() {
        let mut record = parsed.clone();
        record.time = time;
        record.signatures[0].signature = secret.sign(record.statement(&key("a")).as_bytes()).unwrap();
        fleet.store.set(&record_name, record.text(&key("a")).as_bytes());
        let worker = fleet.machine(&format!("worker {machine}")).check_each_load(true).max_entries(1);
        let worker = worker.open().unwrap();
        assert!(worker.get_or_compile(&key("a"), never).unwrap().found, "{time}");
        // The worker's clock is set back or forward: its own files are of the future, or old.
        for name in [record_name.clone(), name_of(OBJECT)] {
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(time.min(now + year));
            fs::File::open(worker.path().join(name)).unwrap().set_modified(modified).unwrap();
        }
        assert!(worker.get_or_compile(&key("a"), never).unwrap().found, "{time}");
        assert_eq!(worker.entries().unwrap().len(), 1);
        worker.put(&key("b"), b"another").unwrap();
        assert_eq!(worker.gc().unwrap().entries, 1, "{time}");
        assert_eq!(worker.counters().refused.values().sum::<u64>(), 0, "{time}");
    }
}

#[test]
fn keys_are_changed_and_revoked() {
    let fleet = Fleet::new();
    fleet.build(&key("a"), OBJECT);
    let id = fleet.public.id();
    // Also where it was before.
    let before = fleet.machine("before").open().unwrap();
    assert_eq!(before.get(&key("a")).unwrap().as_deref(), Some(OBJECT));
    for revoked in [id.clone(), id.to_uppercase(), fleet.public.to_string()] {
        let after = fleet.machine("before").revoked_keys([revoked]).open().unwrap();
        assert_eq!(refusal(&after.get(&key("a")).unwrap_err()), &Refusal::RevokedKey { id: id.clone() });
        // Nobody vouches for it.
        let next = SecretKey::generate().unwrap();
        let signs = fleet.machine("before").revoked_keys([&id]).sign_with(next).open().unwrap();
        assert_eq!(refusal(&signs.sign(&key("a")).unwrap_err()).reason(), "revoked-key");
        assert_eq!(refusal(&signs.push(&key("a")).unwrap_err()).reason(), "revoked-key");
    }
    let mistake = fleet.machine("before").revoked_keys(["the old one"]).open().unwrap_err();
    assert!(matches!(mistake, Error::Cache(CacheError::KeyId { .. })), "{mistake}");
    let worker = fleet.machine("revoked").revoked_keys([id.clone()]).open().unwrap();
    assert_eq!(refusal(&worker.get(&key("a")).unwrap_err()), &Refusal::RevokedKey { id });
    // A builder with the next key finds what cannot be used, and replaces it.
    let next = SecretKey::generate().unwrap();
    let public = next.public().clone();
    let builder = ObjectCache::builder(fleet.folder.path().join("next"))
        .store(fleet.store.clone())
        .trusted_keys([public.clone()])
        .sign_with(next)
        .open()
        .unwrap();
    assert!(!builder.get_or_compile(&key("a"), || Ok::<_, ()>(OBJECT.to_vec())).unwrap().found);
    assert!(builder.flush(Duration::from_secs(10)));
    let worker = fleet.machine("both").trusted_keys([public]).open().unwrap();
    assert_eq!(worker.get(&key("a")).unwrap().as_deref(), Some(OBJECT));
    let worker = fleet.machine("old").open().unwrap();
    assert_eq!(refusal(&worker.get(&key("a")).unwrap_err()).reason(), "untrusted-key");
}

/// Without a signature nothing is used or sent, unless that was asked for.
#[test]
fn signatures_are_required_by_default() {
    let fleet = Fleet::new();
    let open = fleet.machine("open").require_signature(false).open().unwrap();
    open.put(&key("a"), OBJECT).unwrap();
    assert!(open.flush(Duration::from_secs(10)));
    assert_eq!(refusal(&fleet.machine("strict").open().unwrap().get(&key("a")).unwrap_err()), &Refusal::Unsigned);
    let other = fleet.machine("other").require_signature(false).open().unwrap();
    assert_eq!(other.get(&key("a")).unwrap().as_deref(), Some(OBJECT));
    let cannot_sign = fleet.machine("cannot").open().unwrap();
    fleet.store.calls();
    cannot_sign.put(&key("b"), OBJECT).unwrap();
    assert!(cannot_sign.flush(Duration::from_secs(10)));
    assert_eq!(fleet.store.calls(), Vec::<String>::new());
}

/// By policy, the folder is not trusted, either.
#[test]
fn signatures_are_checked_at_each_load() {
    let fleet = Fleet::new();
    fleet.build(&key("a"), OBJECT);
    let worker = fleet.machine("worker").check_each_load(true).open().unwrap();
    assert_eq!(worker.get(&key("a")).unwrap().as_deref(), Some(OBJECT));
    assert_eq!(worker.get(&key("a")).unwrap().as_deref(), Some(OBJECT));
    assert_eq!(worker.counters().hits, 1);
    // Another process of this user puts something into the folder.
    ObjectCache::open(worker.path()).unwrap().put(&key("a"), b"bad").unwrap();
    let made = worker.get_or_compile(&key("a"), never).unwrap();
    assert!(made.found && made.bytes == OBJECT, "the store has it");
    assert_eq!(refusal(&made.problems[0]), &Refusal::Unsigned);
    // Whoever can sign finds again what it has compiled.
    let builder = fleet.machine("builder").sign_with(fleet.secret()).check_each_load(true).open().unwrap();
    builder.put(&key("b"), b"b").unwrap();
    assert_eq!(builder.get(&key("b")).unwrap().as_deref(), Some(&b"b"[..]));
}

/// A store that hangs costs the wait once, and then nothing.
#[test]
fn a_store_that_hangs_is_left_alone() {
    let fleet = Fleet::new();
    fleet.build(&key("a"), OBJECT);
    fleet.store.on(|_, _| {
        thread::sleep(Duration::from_millis(1500));
        Ok(())
    });
    let wait = Duration::from_millis(100);
    let worker = fleet.machine("worker").store_wait(wait).open().unwrap();
    let start = Instant::now();
    let made = worker.get_or_compile(&key("a"), || Ok::<_, ()>(OBJECT.to_vec())).unwrap();
    assert!(!made.found && start.elapsed() >= wait && start.elapsed() < Duration::from_millis(1000));
    let message = made.problems[0].to_string();
    assert!(message.contains("it did not answer within 100ms") && message.contains("the shared store"), "{message}");
    let start = Instant::now();
    for i in 0..200 {
        let made = worker.get_or_compile(&key(&i.to_string()), || Ok::<_, ()>(OBJECT.to_vec())).unwrap();
        assert!(made.problems.is_empty());
    }
    assert!(start.elapsed() < Duration::from_millis(1400), "{:?}", start.elapsed());
    assert_eq!(worker.counters().store_skipped, 200);
    // What came late is here nevertheless.
    fs::remove_file(worker.path().join(Record::file_name(&key("a")))).unwrap();
    thread::sleep(Duration::from_millis(3500));
    assert_eq!(worker.get(&key("a")).unwrap().as_deref(), Some(OBJECT));
}

#[test]
fn a_store_that_fails_or_panics_is_no_failure() {
    let fleet = Fleet::new();
    let worker = fleet.machine("worker").sign_with(fleet.secret()).open().unwrap();
    fleet.store.on(|call, _| if call == "put" { Err("507 full".into()) } else { Ok(()) });
    for i in 0..20 {
        let made = worker.get_or_compile(&key(&i.to_string()), || Ok::<_, ()>(OBJECT.to_vec())).unwrap();
        assert!(made.problems.is_empty());
    }
    assert!(!worker.flush(Duration::from_secs(10)), "nothing was sent");
    assert!(worker.flush(Duration::MAX), "and nothing is to be sent since");
    assert_eq!((worker.counters().sent, worker.counters().not_sent), (0, 20));
    let hooks: [Hook; 2] = [Arc::new(|_, _| Err("500".into())), Arc::new(|_, _| panic!("a client's"))];
    for (i, hook) in hooks.into_iter().enumerate() {
        fleet.store.on(move |call, name| hook(call, name));
        let worker = fleet.machine(&format!("worker {i}")).open().unwrap();
        let problems: Vec<_> = (0..20)
            .map(|i| worker.get_or_compile(&key(&i.to_string()), || Ok::<_, ()>(OBJECT.to_vec())).unwrap())
            .flat_map(|made| made.problems)
            .collect();
        // Five, and then it is left alone.
        assert_eq!(problems.len(), 5);
        let message = problems[0].to_string();
        assert!(message.contains(if i == 0 { "500" } else { "panicked" }), "{message}");
    }
}

/// Of many threads and caches of a machine, one compiles; another goes on when that one fails.
#[test]
fn one_compiles_and_the_others_wait() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let compiled = Mutex::new(0);
    let compile = |caller: usize| {
        let cache = ObjectCache::open(&path).unwrap();
        cache.get_or_compile(&key("a"), || {
            thread::sleep(Duration::from_millis(50));
            let mut compiled = compiled.lock().unwrap();
            *compiled += 1;
            if *compiled == 1 { Err(caller) } else { Ok(OBJECT.to_vec()) }
        })
    };
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|i| scope.spawn(move || compile(i))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    assert_eq!(results.iter().flatten().filter(|made| !made.found).count(), 1);
    assert_eq!(*compiled.lock().unwrap(), 2);
    assert_eq!(fs::read_dir(path.join("temporary")).unwrap().count(), 0);
    // Whoever does not want to wait does not.
    let cache = ObjectCache::builder(&path).wait_for_others(Duration::ZERO).open().unwrap();
    let inner =
        cache.get_or_compile(&key("b"), || cache.get_or_compile(&key("b"), || Ok::<_, ()>(vec![1])).map(|b| b.bytes));
    assert_eq!(inner.unwrap().bytes, [1]);
}

#[test]
fn secret_keys_are_files_of_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let key = SecretKey::generate().unwrap();
    key.write(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(SecretKey::from_file(&path).unwrap().public(), key.public());
    assert!(key.write(&path).is_err(), "there is one");
    let why = |path: &Path| SecretKey::from_file(path).unwrap_err().to_string();
    for mode in [0o640, 0o604, 0o620, 0o610] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert!(why(&path).contains(&format!("0{mode:o}")), "{}", why(&path));
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, "slabjit-secret-key 12").unwrap();
    assert!(why(&path).contains("64 hexadecimal digits"), "{}", why(&path));
    assert!(why(folder.path()).contains("it is no file"), "{}", why(folder.path()));
    assert!(why(&folder.path().join("none")).contains("No such file"));
    // Texts of public keys.
    let text = key.public().to_string();
    assert_eq!(&text.parse::<PublicKey>().unwrap(), key.public());
    for bad in ["", "slabjit-public-key", "slabjit-public-key 00", &text[1..], &text.replace("public", "secret")] {
        assert!(bad.parse::<PublicKey>().is_err(), "{bad}");
    }
    // The neutral element, of which anybody has signatures.
    let mut weak = [0; 32];
    weak[0] = 1;
    assert!(PublicKey::from_bytes(&weak).is_err());
    assert!(!format!("{key:?}").contains(&fs::read_to_string(&path).unwrap()[18..]));
}

/// A vector of RFC 8032 (7.1, TEST 3).
#[test]
fn signatures_are_those_of_the_standard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let text = "slabjit-secret-key c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7";
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let key = SecretKey::from_file(&path).unwrap();
    let public = "slabjit-public-key fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025";
    assert_eq!(key.public().to_string(), public);
    let signature = "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac\
                     18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a";
    assert_eq!(key.sign(&[0xaf, 0x82]).unwrap(), signature);
    assert!(key.public().has_signed(&[0xaf, 0x82], signature));
    assert!(!key.public().has_signed(&[0xaf, 0x83], signature));
}

/// Something else signs; what it does wrong is not sent.
#[test]
fn a_callback_signs() {
    let fleet = Fleet::new();
    let secret = fleet.secret();
    let good = SecretKey::from_callback(fleet.public.clone(), move |text| {
        let mut bytes = [0; 64];
        let signature = secret.sign(text)?;
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&signature[at..at + 2], 16)?;
        }
        Ok(bytes)
    });
    let cache = fleet.machine("good").sign_with(good).open().unwrap();
    cache.put(&key("a"), OBJECT).unwrap();
    assert!(cache.flush(Duration::from_secs(10)));
    assert_eq!(fleet.machine("worker").open().unwrap().get(&key("a")).unwrap().as_deref(), Some(OBJECT));
    for bad in [
        SecretKey::from_callback(fleet.public.clone(), |_| Ok([1; 64])),
        SecretKey::from_callback(fleet.public.clone(), |_| Err("the service is away".into())),
    ] {
        let cache = fleet.machine("bad").sign_with(bad).open().unwrap();
        cache.put(&key("b"), OBJECT).unwrap();
        assert!(!cache.flush(Duration::from_secs(10)));
        assert_eq!((cache.counters().sent, cache.counters().not_sent), (0, 1));
        // The store has not failed.
        assert_eq!(cache.counters().store_failures, 0);
    }
}

/// Threads that send may panic; the next entries are sent all the same.
#[test]
fn a_client_that_panics_while_it_sends() {
    let fleet = Fleet::new();
    let cache = fleet.machine("builder").sign_with(fleet.secret()).open().unwrap();
    fleet.store.on(|call, name| if call == "put" && name.ends_with(".o") { panic!("a client's") } else { Ok(()) });
    for i in 0..3 {
        cache.put(&key(&i.to_string()), OBJECT).unwrap();
        assert!(!cache.flush(Duration::from_secs(10)));
    }
    assert_eq!(cache.counters().not_sent, 3);
    fleet.store.on(|_, _| Ok(()));
    cache.put(&key("good"), b"good").unwrap();
    assert!(cache.flush(Duration::from_secs(10)));
    assert_eq!(fleet.machine("worker").open().unwrap().get(&key("good")).unwrap().as_deref(), Some(&b"good"[..]));
}

/// What cannot be kept was not brought.
#[test]
fn pulling_fails_where_nothing_can_be_kept() {
    let fleet = Fleet::new();
    fleet.build(&key("a"), OBJECT);
    let worker = fleet.machine("worker").open().unwrap();
    assert!(!worker.pull(&key("none")).unwrap());
    let (result, _) = crate::fault::with_errors(
        |_, call| (call == crate::fault::Call::WriteCached).then_some(libc::ENOSPC),
        || worker.pull(&key("a")),
    );
    assert!(matches!(result, Err(Error::Cache(CacheError::Full { .. }))), "{result:?}");
    assert!(worker.pull(&key("a")).unwrap());
    assert!(matches!(worker.push(&key("none")), Err(Error::Cache(CacheError::Missing { .. }))));
}

/// Parts have their whole names in the key, and a record has room for them.
#[test]
fn parts_of_keys() {
    let of = |name: &str| CacheKey::builder().part(name, "1").build();
    assert_ne!(of("a/b.h"), of("a_b.h"));
    assert_ne!(of(&format!("{}1", "x".repeat(100))), of(&format!("{}2", "x".repeat(100))));
    let folder = tempfile::tempdir().unwrap();
    let cache = ObjectCache::open(folder.path().join("cache")).unwrap();
    let many = (0..500).fold(CacheKey::builder(), |key, i| key.part(&format!("header {i}\n"), [0xff; 200]));
    for key in [many.clone().build(), many.part("one", "more").build()] {
        cache.put(&key, OBJECT).unwrap();
        assert_eq!(cache.get(&key).unwrap().as_deref(), Some(OBJECT));
        assert!(cache.explain_miss(&key).unwrap().is_none());
    }
    let few = (0..20).fold(CacheKey::builder(), |key, i| key.part(&format!("header {i}\n"), [0xff; 200])).build();
    cache.put(&few, OBJECT).unwrap();
    assert_eq!(cache.get(&few).unwrap().as_deref(), Some(OBJECT));
    assert_eq!(cache.entries().unwrap().iter().map(|entry| entry.parts.len()).max(), Some(24));
}
