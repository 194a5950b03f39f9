//! Servers, started for a test and killed behind it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A server of this machine.
pub struct Server {
    child: Child,
    port: u16,
    pub folder: tempfile::TempDir,
}

impl Server {
    /// Starts a program, which gets a port and a folder; `None`, with the reason, where it is not installed.
    fn start(program: &str, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let named = std::env::var(format!("SLABJIT_{}", program.split('-').next().unwrap().to_uppercase()));
        let mut command = Command::new(named.as_deref().unwrap_or(program));
        command.args(arguments(port, folder.path())).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            println!("not run: {program} is not installed; use ci/fleet, which gets it");
            return None;
        };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "{program} does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Some(Self { child, port, folder })
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Redis, which keeps nothing on the disk.
    pub fn redis() -> Option<(Self, String)> {
        let server = Self::start("redis-server", |port, folder| {
            let port = port.to_string();
            ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir", &folder.display().to_string()]
                .map(str::to_owned)
                .to_vec()
        })?;
        let url = format!("redis://127.0.0.1:{}/0?prefix=kernels:", server.port);
        Some((server, url))
    }

    /// moto's S3, with a bucket; sets the variables that lead to it.
    pub fn s3() -> Option<(Self, String)> {
        let server = Self::start("moto-server", |port, _| {
            ["-H", "127.0.0.1", "-p", &port.to_string()].map(str::to_owned).to_vec()
        })?;
        let variables = [
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", server.port)),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ];
        for (name, value) in variables {
            // SAFETY: this program's tests run one by one, on one thread beside a main thread that waits.
            unsafe { std::env::set_var(name, value) };
        }
        assert!(
            answer(
                server.port,
                "PUT /fleet HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
            .contains("200")
        );
        Some((server, "s3://fleet/kernels/v1".to_owned()))
    }

    /// nginx with its module for WebDAV, as a plain server at `/plain`, and at `/cache` only for Bazel's names.
    pub fn nginx() -> Option<(Self, String)> {
        Some(Self::start("nginx", |port, folder| {
            let shown = folder.display();
            // Its workers are another user's.
            let files = folder.join("files");
            fs::create_dir(&files).unwrap();
            use std::os::unix::fs::PermissionsExt as _;
            for path in [folder, &files] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
            }
            let configuration = format!(
                "pid {shown}/pid; error_log {shown}/errors; daemon off; worker_processes 2;
                 events {{}}
                 http {{
                   access_log off; client_max_body_size 1g; client_body_temp_path {shown}/bodies;
                   proxy_temp_path {shown}/p; fastcgi_temp_path {shown}/f; uwsgi_temp_path {shown}/u; scgi_temp_path {shown}/s;
                   server {{
                     listen 127.0.0.1:{port}; root {shown}/files;
                     location ~ ^/cache/(ac|cas)/[0-9a-f]+$ {{ dav_methods PUT DELETE MKCOL; create_full_put_path on; }}
                     location /cache {{ return 403; }}
                     location / {{ dav_methods PUT DELETE MKCOL; create_full_put_path on; }}
                   }}
                 }}"
            );
            fs::write(folder.join("configuration"), configuration).unwrap();
            ["-c", &folder.join("configuration").display().to_string(), "-e", &format!("{shown}/errors")]
                .map(str::to_owned)
                .to_vec()
        })?)
        .map(|server| {
            let host = format!("127.0.0.1:{}", server.port);
            (server, host)
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a request and returns the whole answer.
fn answer(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
