//! S3, Google Cloud Storage, Azure Blob Storage and WebDAV, by `object_store`.
//!
//! Its requests go through the client of `http`, which blocks: so its futures are ready when they are polled, and it
//! needs no runtime.

use std::io::Read as _;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body, Frame};
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, RetryConfig};
use ureq::BodyReader;

use super::http::Client;
use super::without_secrets;
use crate::cache::shared::store::{Store, StoreError, TooLong};

/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;

/// The most of an answer that is no object: an error's text, a token.
const LARGEST_TEXT: u64 = 1 << 20;

pub(super) struct CloudStore {
    store: Box<dyn ObjectStore>,
    prefix: Path,
    shown: String,
    /// Whether the service decides about a PUT's condition.
    is_conditional: bool,
}

/// Calls are not repeated: the cache has compiled by then.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

impl CloudStore {
    #[cfg(feature = "store-s3")]
    pub(super) fn s3(url: &str) -> Result<Self, StoreError> {
        // What the endpoint variable says is meant so, also without TLS.
        let is_plain = ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"]
            .iter()
            .any(|name| std::env::var(name).is_ok_and(|endpoint| endpoint.starts_with("http://")));
        let store = object_store::aws::AmazonS3Builder::from_env()
            .with_url(url)
            .with_allow_http(is_plain)
            .with_retry(no_retries())
            .with_http_connector(Connector)
            .build()?;
        Self::new(url, Box::new(store), true)
    }

    #[cfg(feature = "store-gcs")]
    pub(super) fn gcs(url: &str) -> Result<Self, StoreError> {
        let store = object_store::gcp::GoogleCloudStorageBuilder::from_env()
            .with_url(url)
            .with_retry(no_retries())
            .with_http_connector(Connector)
            .build()?;
        Self::new(url, Box::new(store), true)
    }

    #[cfg(feature = "store-azure")]
    pub(super) fn azure(url: &str) -> Result<Self, StoreError> {
        let store = object_store::azure::MicrosoftAzureBuilder::from_env()
            .with_url(url)
            .with_retry(no_retries())
            .with_http_connector(Connector)
            .build()?;
        Self::new(url, Box::new(store), true)
    }

    #[cfg(feature = "store-webdav")]
    pub(super) fn webdav(url: &str) -> Result<Self, StoreError> {
        let options = ClientOptions::new().with_allow_http(true);
        let store = object_store::http::HttpBuilder::new()
            .with_url(url.replacen("dav", "http", 1))
            .with_client_options(options)
            .with_retry(no_retries())
            .with_http_connector(Connector)
            .build()?;
        Ok(Self { store: Box::new(store), prefix: Path::default(), shown: without_secrets(url), is_conditional: false })
    }

    /// `url`: a bucket, and what comes before names.
    #[cfg(any(feature = "store-s3", feature = "store-gcs", feature = "store-azure"))]
    fn new(url: &str, store: Box<dyn ObjectStore>, is_conditional: bool) -> Result<Self, StoreError> {
        let (_, rest) = url.split_once("://").unwrap_or_default();
        let prefix = rest.split_once('/').map_or("", |(_, prefix)| prefix);
        Ok(Self {
            store,
            prefix: Path::parse(prefix.trim_end_matches('/'))?,
            shown: without_secrets(url),
            is_conditional,
        })
    }

    fn path(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }
}

impl Store for CloudStore {
    fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, StoreError> {
        pollster::block_on(async {
            let result = match self.store.get_opts(&self.path(name), GetOptions::default()).await {
                Ok(result) => result,
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            if result.meta.size > most {
                return Err(TooLong { most }.into());
            }
            let mut value = Vec::new();
            let mut pieces = result.into_stream();
            while let Some(piece) = next(&mut pieces).await {
                value.extend_from_slice(&piece?);
                // It may send more than it said.
                if value.len() as u64 > most {
                    return Err(TooLong { most }.into());
                }
            }
            Ok(Some(value))
        })
    }

    fn put_if_absent(&self, name: &str, value: &[u8]) -> Result<bool, StoreError> {
        let path = self.path(name);
        pollster::block_on(async {
            // What is there need not be sent.
            match self.store.head(&path).await {
                Ok(_) => return Ok(false),
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            let mode = if self.is_conditional { PutMode::Create } else { PutMode::Overwrite };
            let options = PutOptions { mode, ..PutOptions::default() };
            match self.store.put_opts(&path, PutPayload::from(value.to_vec()), options).await {
                Ok(_) => Ok(true),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) if self.is_conditional => Ok(false),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        match pollster::block_on(self.store.delete(&self.path(name))) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn describe(&self) -> String {
        self.shown.clone()
    }
}

/// Returns what a stream has next.
async fn next<S: futures_core::Stream + Unpin + ?Sized>(stream: &mut S) -> Option<S::Item> {
    std::future::poll_fn(|context| Pin::new(&mut *stream).poll_next(context)).await
}

/// Gives `object_store` our client.
#[derive(Debug)]
struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service(Client::new())))
    }
}

struct Service(Client);

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Service")
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = whole(body).await?;
        let request = ureq::http::Request::from_parts(parts, body.as_slice());
        let response = self.0.get().run(request).map_err(|error| HttpError::new(kind(&error), error))?;
        let (parts, body) = response.into_parts();
        let body = if parts.status.is_success() {
            HttpResponseBody::new(Pieces(Mutex::new(body.into_reader())))
        } else {
            let mut text = Vec::new();
            let read = body.into_reader().take(LARGEST_TEXT).read_to_end(&mut text);
            read.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error))?;
            text.into()
        };
        Ok(HttpResponse::from_parts(parts, body))
    }
}

fn kind(error: &ureq::Error) -> HttpErrorKind {
    match error {
        ureq::Error::Timeout(_) => HttpErrorKind::Timeout,
        ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => HttpErrorKind::Connect,
        ureq::Error::Io(_) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    }
}

/// Collects a request's body, which is in memory.
async fn whole(body: HttpRequestBody) -> Result<Vec<u8>, HttpError> {
    let mut body = std::pin::pin!(body);
    let mut whole = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await {
        if let Ok(piece) = frame?.into_data() {
            whole.extend_from_slice(&piece);
        }
    }
    Ok(whole)
}

/// A response's body, read when it is asked for.
struct Pieces(Mutex<BodyReader<'static>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut piece = vec![0; PIECE];
        let read = self.0.lock().unwrap_or_else(PoisonError::into_inner).read(&mut piece);
        Poll::Ready(match read {
            Ok(0) => None,
            Ok(length) => {
                piece.truncate(length);
                Some(Ok(Frame::data(piece.into())))
            }
            Err(error) => Some(Err(HttpError::new(HttpErrorKind::Interrupted, error))),
        })
    }
}
