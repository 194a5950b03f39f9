//! Each client, on a server of its kind.

use slabjit::store::{self, Store};

use super::servers::Server;

/// What a store has to do.
fn check(url: &str) {
    let store = store::open(url).unwrap();
    let large: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let key = format!("{:064x}.key", 1);
    let object = format!("{:064x}.o", 2);
    assert_eq!(store.get(&key, 100).unwrap(), None);
    assert!(store.put_if_absent(&key, b"first").unwrap());
    assert!(!store.put_if_absent(&key, b"second").unwrap());
    assert_eq!(store.get(&key, 5).unwrap().as_deref(), Some(&b"first"[..]));
    assert!(store.get(&key, 4).is_err(), "longer than was asked for");
    assert!(store.put_if_absent(&object, &large).unwrap());
    assert_eq!(store.get(&object, 3_000_000).unwrap().as_deref(), Some(&large[..]));
    assert!(store.get(&object, 2_999_999).is_err());
    store.delete(&key).unwrap();
    store.delete(&key).unwrap();
    assert_eq!(store.get(&key, 100).unwrap(), None);
    assert!(store.put_if_absent(&key, b"third").unwrap());
    // Two handles are two machines.
    assert_eq!(store::open(url).unwrap().get(&key, 100).unwrap().as_deref(), Some(&b"third"[..]));
    // Bytes of any value, and several threads at once.
    let values: Vec<Vec<u8>> = (0..16).map(|i| vec![i as u8 ^ 0xff; 1000 * i + 1]).collect();
    std::thread::scope(|scope| {
        for (i, value) in values.iter().enumerate() {
            let store = &store;
            scope.spawn(move || {
                let name = format!("{:064x}.so", i + 16);
                assert!(store.put_if_absent(&name, value).unwrap());
                assert_eq!(store.get(&name, 1 << 20).unwrap().as_ref(), Some(value));
            });
        }
    });
    println!("{}", store.describe());
}

pub fn s3() {
    if let Some((_server, url)) = Server::s3() {
        check(&url);
        let missing = store::open("s3://nowhere/kernels").unwrap();
        assert!(missing.put_if_absent("a.key", b"a").is_err(), "no such bucket");
    }
}

pub fn redis() {
    if let Some((_server, url)) = Server::redis() {
        check(&url);
        let other = store::open(&url.replace("kernels:", "others:")).unwrap();
        assert_eq!(other.get(&format!("{:064x}.key", 1), 100).unwrap(), None);
    }
}

pub fn http() {
    if let Some((server, host)) = Server::nginx() {
        check(&format!("http://{host}/plain/v1?token=1"));
        assert!(server.folder.path().join(format!("files/plain/v1/{:064x}.o", 2)).is_file());
        let shown = store::open(&format!("http://user:secret@{host}/plain")).unwrap().describe();
        assert_eq!(shown, format!("http://{host}/plain"));
    }
}

pub fn bazel() {
    if let Some((server, host)) = Server::nginx() {
        check(&format!("bazel+http://{host}/cache"));
        assert!(server.folder.path().join(format!("files/cache/ac/{:064x}", 2)).is_file());
        // Other names are refused there.
        assert!(store::open(&format!("http://{host}/cache")).unwrap().put_if_absent("a.key", b"a").is_err());
    }
}

pub fn webdav() {
    if let Some((_server, host)) = Server::nginx() {
        check(&format!("dav://{host}/webdav"));
    }
}

pub fn urls() {
    let why = |url: &str| store::open(url).unwrap_err().to_string();
    assert!(why("kernels").contains("s3://bucket/prefix"));
    assert!(why("ftp://host/kernels").contains("no store has URLs with 'ftp://'"));
    assert!(why("http:///kernels").contains("names no host") || why("http:///kernels").contains("is no URL"));
    assert!(
        why("redis://user:secret@host:port/0?prefix=a").starts_with("the store 'redis://host:port/0' cannot be opened")
    );
    assert!(why("s3://").contains("s3://"));
}
