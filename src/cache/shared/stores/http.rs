//! Plain GET, PUT and DELETE, and the HTTP client of all stores that speak it.

use std::time::Duration;

use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use crate::fork_guard::{self, Mutex};

/// For how long a server may do nothing. The cache's callers do not wait so long; a thread does.
const SILENCE: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(10);

/// Makes a client. Statuses are no errors of its.
pub(super) fn agent() -> Agent {
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .timeout_resolve(Some(CONNECT))
        .timeout_connect(Some(CONNECT))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        .timeout_per_write(Some(SILENCE))
        .user_agent(concat!("slabjit/", env!("CARGO_PKG_VERSION")));
    config.build().new_agent()
}

/// A client whose connections no child of `fork` shares.
pub(super) struct Client(Mutex<(u32, Agent)>);

impl Client {
    pub(super) fn new() -> Self {
        Self(Mutex::new((fork_guard::generation(), agent())))
    }

    pub(super) fn get(&self) -> Agent {
        let mut current = self.0.lock();
        if current.0 != fork_guard::generation() {
            let parents = std::mem::replace(&mut *current, (fork_guard::generation(), agent()));
            // To close it could say goodbye on connections that the parent uses.
            std::mem::forget(parents);
        }
        current.1.clone()
    }
}

#[cfg(feature = "store-http")]
pub(super) use plain::HttpStore;

#[cfg(feature = "store-http")]
mod plain {
    use ureq::http::{Request, Response, StatusCode};

    use super::Client;
    use crate::cache::shared::store::{Store, StoreError, TooLong};
    use crate::cache::shared::stores::without_secrets;

    /// Redirects that a GET follows.
    const REDIRECTS: u32 = 5;

    /// A server that answers GET, and PUT where it is written to.
    pub(in super::super) struct HttpStore {
        client: Client,
        /// Before a name. The client makes a header of a user and password in it.
        base: String,
        /// The same without these.
        shown: String,
        /// Behind a name: `?` and a query, or nothing.
        query: String,
        /// Names are as in Bazel's protocol.
        is_bazels: bool,
    }

    impl HttpStore {
        pub(in super::super) fn new(url: &str) -> Result<Self, StoreError> {
            let (url, is_bazels) = url.strip_prefix("bazel+").map_or((url, false), |url| (url, true));
            let (path, query) =
                url.split_once('?').map_or((url, String::new()), |(path, query)| (path, format!("?{query}")));
            let base = path.trim_end_matches('/').to_owned();
            let uri: ureq::http::Uri =
                base.parse().map_err(|error| format!("'{}' is no URL: {error}", without_secrets(path)))?;
            let host = uri.authority().map(|of| of.as_str().rsplit('@').next().unwrap_or_default());
            let Some(host) = host.filter(|host| !host.is_empty()) else {
                return Err("the URL names no host; give one such as https://cache.example/kernels".into());
            };
            let shown = format!("{}://{host}{}", uri.scheme_str().unwrap_or("http"), uri.path().trim_end_matches('/'));
            Ok(Self { client: Client::new(), base, shown, query, is_bazels })
        }

        /// Bazel's protocol has 64 hexadecimal digits. Its `cas` checks SHA-256, so all is in `ac`.
        fn url(&self, name: &str) -> String {
            let Self { base, query, is_bazels, .. } = self;
            match name.split_once('.').filter(|_| *is_bazels) {
                Some((hash, _)) => format!("{base}/ac/{hash}{query}"),
                None => format!("{base}/{name}{query}"),
            }
        }

        fn ask(&self, method: &str, name: &str) -> Result<Response<ureq::Body>, StoreError> {
            let redirects = if method == "GET" { REDIRECTS } else { 0 };
            let (agent, request) = (self.client.get(), Request::builder().method(method).uri(self.url(name)).body(())?);
            Ok(agent.run(agent.configure_request(request).max_redirects(redirects).build())?)
        }

        /// Servers that know the condition decide by themselves.
        fn put(&self, name: &str, value: &[u8]) -> Result<Response<ureq::Body>, StoreError> {
            let request = Request::put(self.url(name)).header("if-none-match", "*").body(value)?;
            let agent = self.client.get();
            // Redirected, it would become a GET, and succeed.
            Ok(agent.run(agent.configure_request(request).max_redirects(0).build())?)
        }
    }

    impl Store for HttpStore {
        fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
            let mut response = self.ask("GET", name)?;
            match response.status() {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(None),
                status => return Err(unexpected("GET", status)),
            }
            if response.body().content_length().is_some_and(|length| length > most) {
                return Err(TooLong { most }.into());
            }
            // The limit is for the first byte that is too many.
            let limit = most.saturating_add(1);
            match response.body_mut().with_config().limit(limit).read_to_vec() {
                Ok(value) if value.len() as u64 <= most => Ok(Some(value)),
                Ok(_) | Err(ureq::Error::BodyExceedsLimit(_)) => Err(TooLong { most }.into()),
                Err(error) => Err(error.into()),
            }
        }

        fn put_if_absent(&self, name: &str, value: &[u8]) -> Result<bool, StoreError> {
            // Not all servers know the condition of a PUT, and what is there need not be sent.
            if self.ask("HEAD", name)?.status() == StatusCode::OK {
                return Ok(false);
            }
            match self.put(name, value)?.status() {
                StatusCode::OK | StatusCode::CREATED | StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(true),
                StatusCode::PRECONDITION_FAILED | StatusCode::NOT_MODIFIED => Ok(false),
                status => Err(unexpected("PUT", status)),
            }
        }

        fn delete(&self, name: &str) -> Result<(), StoreError> {
            match self.ask("DELETE", name)?.status() {
                status if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
                status => Err(unexpected("DELETE", status)),
            }
        }

        fn describe(&self) -> String {
            self.shown.clone()
        }
    }

    fn unexpected(method: &str, status: StatusCode) -> StoreError {
        format!("the server answers {method} with status {status}").into()
    }
}
