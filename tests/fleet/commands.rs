//! `slabjit cache keygen|sign|push|pull|ls`, as somebody would type them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use slabjit::{CacheKey, ObjectCache};

use super::servers::Server;

/// Runs it; returns its status, output and errors.
fn slabjit(arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slabjit"));
    command.arg("cache").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

pub fn a_builder_and_a_worker() {
    let Some((_server, host)) = Server::nginx() else { return };
    let url = format!("http://{host}/kernels");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (key, builder, worker) = (path("key"), path("builder"), path("worker"));

    let (status, public, _) = slabjit(&["keygen", &key], "");
    assert!(status == 0 && public.starts_with("slabjit-public-key ") && public.lines().count() == 1, "{public}");
    let (status, _, errors) = slabjit(&["keygen", &key], "");
    assert!(status == 1 && errors.contains("File exists"), "{errors}");

    let cache = ObjectCache::open(&builder).unwrap();
    let keys: Vec<_> = (0..20).map(|i| CacheKey::builder().part("source", format!("kernel {i}")).build()).collect();
    for (i, key) in keys.iter().enumerate() {
        cache.put(key, &vec![i as u8; 1000 + i]).unwrap();
    }
    assert_eq!(slabjit(&["push", "--key", &key, &builder, &url], "").1, "20 sent, 0 already there\n");
    assert_eq!(slabjit(&["push", "--key", &key, &builder, &url], "").1, "0 sent, 20 already there\n");

    // What ls prints is what pull reads; and JSON says more.
    let (_, list, _) = slabjit(&["ls", &builder], "");
    assert_eq!(list.lines().count(), 20);
    let (_, json, _) = slabjit(&["ls", "--json", &builder], "");
    let entries: Value = serde_json::from_str(&json).unwrap();
    let id = &entries[0]["signed_by"][0];
    assert!(list.lines().all(|line| line.ends_with(id.as_str().unwrap()) && line.contains(" object ")), "{list}");
    assert!(entries[0]["parts"]["source"].as_str().unwrap().starts_with("kernel "), "{json}");

    let trusted = path("public");
    std::fs::write(&trusted, &public).unwrap();
    assert_eq!(
        slabjit(&["pull", "--trust", &trusted, &worker, &url], &list),
        (0, "20 brought, 0 not in the store\n".into(), String::new())
    );
    let brought = ObjectCache::open(&worker).unwrap();
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(brought.get(key).unwrap(), Some(vec![i as u8; 1000 + i]));
    }
    let missing = CacheKey::new(["missing"]).to_string();
    let (status, json, _) = slabjit(&["pull", "--json", "--trust", public.trim(), &worker, &url, &missing], "");
    let counts: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((status, &counts["brought"], &counts["not in the store"]), (0, &0.into(), &1.into()));

    // Another key is not trusted, until it has signed.
    let (_, other, _) = slabjit(&["keygen", &path("other")], "");
    let (status, text, _) = slabjit(&["pull", "--trust", other.trim(), &path("third"), &url, &keys[0].to_string()], "");
    assert!(status == 1 && text.contains("is not among trusted_keys"), "{text}");
    // And it signs only what was made by somebody who is trusted.
    let (status, text, _) = slabjit(&["sign", "--key", &path("other"), &builder], "");
    assert!(status == 1 && text.starts_with("0 signed, 0 signed before\n") && text.contains("not among"), "{text}");
    let sign = ["sign", "--key", &path("other"), "--trust", &trusted];
    let (status, text, _) = slabjit(&[&sign[..], &["--revoke", id.as_str().unwrap(), &builder]].concat(), "");
    assert!(status == 1 && text.contains("which was revoked"), "{text}");
    assert_eq!(slabjit(&[&sign[..], &[&builder]].concat(), "").1, "20 signed, 0 signed before\n");
    assert_eq!(slabjit(&[&sign[..], &[&builder]].concat(), "").1, "0 signed, 20 signed before\n");
    let (_, list, _) = slabjit(&["ls", &builder], "");
    assert!(list.lines().all(|line| line.split_whitespace().last().unwrap().split(',').count() == 2), "{list}");
    // A key that is not there is a mistake.
    let (status, text, _) = slabjit(&["push", "--key", &key, &builder, &url, &missing], "");
    assert!(status == 1 && text.contains("has no entry"), "{text}");
    // Without any, on request.
    let (status, text, _) = slabjit(&["pull", "--unsigned", &path("fourth"), &url, &keys[0].to_string()], "");
    assert_eq!((status, text.as_str()), (0, "1 brought, 0 not in the store\n"));
}

pub fn mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    ObjectCache::open(&cache).unwrap();
    let cache = cache.to_str().unwrap();
    for (arguments, status, says) in [
        (&["push", cache, "http://localhost/a"][..], 2, "--key"),
        (&["pull", cache, "http://localhost/a"], 2, "--unsigned"),
        (&["pull", "--unsigned", "--revoke", "12", cache, "http://localhost/a"], 1, "no identifier of a key"),
        (&["pull", "--trust", "nonsense", cache, "http://localhost/a"], 2, "slabjit cache keygen"),
        (&["pull", "--unsigned", cache, "ftp://localhost/a"], 1, "no store has URLs with 'ftp://'"),
        (&["pull", "--unsigned", cache, "http://127.0.0.1:1/a", "xyz"], 2, "64 hexadecimal digits"),
        (&["sign", "--key", "/nowhere/key", cache], 1, "No such file"),
        (&["sign", "--key", "/etc/passwd", cache], 1, "/etc/passwd"),
        (&["push", "--unsigned", "/nowhere/cache", "http://localhost/a"], 1, "No such file"),
    ] {
        let (code, text, errors) = slabjit(arguments, "");
        assert!(code == status && errors.contains(says), "{arguments:?} {code}: {text}{errors}");
    }
    let key = CacheKey::new(["a"]).to_string();
    let (code, text, _) = slabjit(&["pull", "--unsigned", cache, "http://127.0.0.1:1/a", &key], "");
    assert!(code == 1 && text.contains("could not read http://127.0.0.1:1/a"), "{text}");
    let (code, _, errors) = slabjit(&["pull", "--unsigned", cache, "http://127.0.0.1:1/a"], "nonsense line\n");
    assert!(code == 1 && errors.contains("'nonsense'"), "{errors}");
}
