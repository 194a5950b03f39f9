//! Clients of stores, by the scheme of a URL.

#[cfg(feature = "_object-store")]
mod cloud;
#[cfg(feature = "_http")]
mod http;
#[cfg(feature = "store-redis")]
mod redis;

use super::store::{Store, StoreError};
use crate::{CacheError, Error, Result};

/// A store that [`open`] opened.
pub struct OpenStore(Box<dyn Store>);

/// Opens a store by its URL. Nothing is connected yet.
///
/// | URL | feature | |
/// |---|---|---|
/// | `s3://BUCKET/PREFIX` | `store-s3` | settings and credentials are the usual variables (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `AWS_ENDPOINT`, …), web identity, or the instance's |
/// | `gs://BUCKET/PREFIX` | `store-gcs` | likewise (`GOOGLE_SERVICE_ACCOUNT`, …) |
/// | `az://CONTAINER/PREFIX` | `store-azure` | likewise (`AZURE_STORAGE_ACCOUNT_NAME`, …) |
/// | `dav://HOST/PATH`, `davs://…` | `store-webdav` | the folder is there, or the server makes it |
/// | `http://HOST/PATH`, `https://…` | `store-http` | GET, HEAD, PUT, DELETE; a query of the URL (`?token=…`) is sent each time, a user and password as basic authentication |
/// | `bazel+http://HOST/PATH`, `bazel+https://…` | `store-http` | names as in Bazel's remote caches, all under `/ac/`: one that validates action results must be told not to |
/// | `redis://HOST/DATABASE`, `rediss://…` | `store-redis` | `?prefix=…` before each name |
///
/// ```no_run
/// # #[cfg(feature = "store-redis")]
/// let store = slabjit::store::open("redis://cache.internal/0")?;
/// # Ok::<(), slabjit::Error>(())
/// ```
///
/// # Errors
/// [`CacheError::StoreUrl`](crate::CacheError::StoreUrl), which says what is wrong with the URL or the settings, or
/// which feature is missing.
pub fn open(url: &str) -> Result<OpenStore> {
    client(url).map_err(|source| Error::Cache(CacheError::StoreUrl { url: without_secrets(url), source }))
}

/// Returns a URL for messages.
pub(super) fn without_secrets(url: &str) -> String {
    let url = url.split('?').next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    if scheme.is_empty() { host.to_owned() } else { format!("{scheme}://{host}") }
}

fn client(url: &str) -> Result<OpenStore, StoreError> {
    let (scheme, _) = url.split_once("://").ok_or("this is no URL of a store; give one such as s3://bucket/prefix")?;
    match scheme {
        #[cfg(feature = "store-s3")]
        "s3" => Ok(OpenStore(Box::new(cloud::CloudStore::s3(url)?))),
        #[cfg(feature = "store-gcs")]
        "gs" => Ok(OpenStore(Box::new(cloud::CloudStore::gcs(url)?))),
        #[cfg(feature = "store-azure")]
        "az" => Ok(OpenStore(Box::new(cloud::CloudStore::azure(url)?))),
        #[cfg(feature = "store-webdav")]
        "dav" | "davs" => Ok(OpenStore(Box::new(cloud::CloudStore::webdav(url)?))),
        #[cfg(feature = "store-http")]
        "http" | "https" | "bazel+http" | "bazel+https" => Ok(OpenStore(Box::new(http::HttpStore::new(url)?))),
        #[cfg(feature = "store-redis")]
        "redis" | "rediss" => Ok(OpenStore(Box::new(redis::RedisStore::new(url)?))),
        _ => Err(missing(scheme).into()),
    }
}

fn missing(scheme: &str) -> String {
    let feature = match scheme {
        "s3" => "store-s3",
        "gs" => "store-gcs",
        "az" => "store-azure",
        "dav" | "davs" => "store-webdav",
        "http" | "https" | "bazel+http" | "bazel+https" => "store-http",
        "redis" | "rediss" => "store-redis",
        _ => {
            return format!(
                "no store has URLs with '{scheme}://'; there are s3, gs, az, dav, davs, http, https, bazel+http, bazel+https, redis and rediss"
            );
        }
    };
    format!("this build has no client for '{scheme}://'; build slabjit with the feature {feature}")
}

impl Store for OpenStore {
    fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.get(name, most)
    }

    fn put_if_absent(&self, name: &str, value: &[u8]) -> Result<bool, StoreError> {
        self.0.put_if_absent(name, value)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.0.delete(name)
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

impl std::fmt::Debug for OpenStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenStore({})", self.0.describe())
    }
}
