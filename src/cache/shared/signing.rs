//! Keys that sign records.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use rustix::fs::{CWD, FileType, Mode};
use rustix::rand::GetRandomFlags;

use crate::cache::key::CacheKey;
use crate::cache::record::Record;
use crate::{CacheError, Error, Result, file};

const PUBLIC: &str = "slabjit-public-key";
const SECRET: &str = "slabjit-secret-key";

/// Hexadecimal digits of a key's identifier.
pub(super) const ID_DIGITS: usize = 16;

/// The public half of a key (ed25519), by which others check what was signed. `Display` and [`FromStr`] have it as a
/// line of text, which [`SecretKey::public`] and `slabjit cache keygen` write.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Makes a key from its 32 bytes.
    ///
    /// # Errors
    /// [`KeyTextError`] if they are no key.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, KeyTextError> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| KeyTextError)?;
        // Signatures of a weak one fit more than one text.
        if key.is_weak() { Err(KeyTextError) } else { Ok(Self(key)) }
    }

    /// Returns the key's 32 bytes.
    pub fn to_bytes(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// Returns the identifier that records name the key by: 16 hexadecimal digits of its BLAKE3 hash.
    pub fn id(&self) -> String {
        let mut id = blake3::hash(self.0.as_bytes()).to_hex().to_string();
        id.truncate(ID_DIGITS);
        id
    }

    /// Returns whether this key has signed a record.
    pub(super) fn has_signed_record(&self, record: &Record, key: &CacheKey) -> bool {
        let (id, statement) = (self.id(), record.statement(key));
        let mut by_this = record.signatures.iter().filter(|signed| signed.by == id);
        by_this.any(|signed| self.has_signed(statement.as_bytes(), &signed.signature))
    }

    /// Returns whether this key made a signature, in hexadecimal.
    pub(super) fn has_signed(&self, text: &[u8], signature: &str) -> bool {
        let signature = from_hex::<64>(signature).map(|bytes| Signature::from_bytes(&bytes));
        signature.is_some_and(|signature| self.0.verify_strict(text, &signature).is_ok())
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC} {}", hex(self.0.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id())
    }
}

impl FromStr for PublicKey {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        let digits = text.trim().strip_prefix(PUBLIC).ok_or(KeyTextError)?;
        Self::from_bytes(&from_hex(digits.trim()).ok_or(KeyTextError)?)
    }
}

/// A text that is no public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no public key; give the line that `slabjit cache keygen` has printed: {PUBLIC} and 64 digits")]
pub struct KeyTextError;

/// What signs in place of a key that this process has.
type Sign = dyn Fn(&[u8]) -> Result<[u8; 64], Box<dyn StdError + Send + Sync>> + Send + Sync;

enum How {
    Here(Box<SigningKey>),
    Elsewhere(Box<Sign>),
}

/// The secret half of a key, or something that signs by it. Whoever has it decides what every worker that trusts the
/// public half runs.
pub struct SecretKey {
    how: How,
    public: PublicKey,
}

impl SecretKey {
    /// Makes a new key from the system's random numbers.
    ///
    /// # Errors
    /// The system's, if it has none.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; 32];
        let mut done = 0;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            done += rustix::rand::getrandom(rest, GetRandomFlags::empty())?;
        }
        Ok(Self::here(SigningKey::from_bytes(&bytes)))
    }

    /// Reads a key from a file that [`write`](Self::write) or `slabjit cache keygen` made.
    ///
    /// # Errors
    /// [`CacheError::KeyFile`](crate::CacheError::KeyFile) if it is no such file, if another user owns it, or if
    /// anybody but its owner may read or write it; [`CacheError::System`](crate::CacheError::System) if it cannot be
    /// read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed = |call| move |source| Error::Cache(CacheError::System { call, path: path.to_owned(), source });
        let refused = |problem: String, remedy: String| {
            Error::Cache(CacheError::KeyFile { path: path.to_owned(), problem, remedy })
        };
        let shown = path.display();
        // Secrets of containers are symbolic links; what counts is the file.
        let open = file::open_followed(CWD, path).map_err(failed("open"))?;
        let status = file::status(&open).map_err(failed("fstat"))?;
        let user = rustix::process::geteuid();
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(refused("it is no file".into(), "give the path of the file that has the key".into()));
        }
        if status.st_uid != user.as_raw() {
            let problem = format!("user {} owns it, and this process runs as user {user}", status.st_uid);
            return Err(refused(problem, format!("chown {user} '{shown}'")));
        }
        let mode = Mode::from_raw_mode(status.st_mode);
        if mode.intersects(Mode::RWXG | Mode::RWXO) {
            let problem = format!("others than its owner may use it (its mode is {:04o})", mode.as_raw_mode());
            return Err(refused(
                problem,
                format!("make a new key, as others may know this one, and chmod 600 '{shown}'"),
            ));
        }
        let mut bytes = [0; 256];
        let length = file::read(&open, &mut bytes).map_err(failed("read"))?;
        let text = std::str::from_utf8(bytes.get(..length).unwrap_or_default()).unwrap_or_default();
        text.parse().map_err(|error: SecretKeyTextError| {
            refused(error.to_string(), "make one with slabjit cache keygen".into())
        })
    }

    /// Signs by a function, such as one that asks a key management service; `public` is the key's public half. It is
    /// called with the bytes to sign, and returns the signature (ed25519, RFC 8032): on a thread of the cache's for
    /// what is compiled, on the caller's by [`push`](crate::ObjectCache::push), [`sign`](crate::ObjectCache::sign), and
    /// where [`check_each_load`](crate::ObjectCacheBuilder::check_each_load) is on.
    pub fn from_callback(
        public: PublicKey,
        sign: impl Fn(&[u8]) -> Result<[u8; 64], Box<dyn StdError + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        Self { how: How::Elsewhere(Box::new(sign)), public }
    }

    fn here(key: SigningKey) -> Self {
        let public = PublicKey(key.verifying_key());
        Self { how: How::Here(Box::new(key)), public }
    }

    /// Returns the public half, for those who check signatures.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Writes the key to a new file, which only this user may read.
    ///
    /// # Errors
    /// The system's, also if there is such a file; `Unsupported` for a key that [`from_callback`](Self::from_callback)
    /// made.
    pub fn write(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let How::Here(key) = &self.how else { return Err(io::ErrorKind::Unsupported.into()) };
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        io::Write::write_all(&mut file, format!("{SECRET} {}\n", hex(key.as_bytes())).as_bytes())?;
        file.sync_all()
    }

    /// Signs, and checks what another has signed. Returns the signature in hexadecimal.
    pub(super) fn sign(&self, text: &[u8]) -> Result<String, Box<dyn StdError + Send + Sync>> {
        let signature = match &self.how {
            How::Here(key) => hex(&key.sign(text).to_bytes()),
            How::Elsewhere(sign) => hex(&sign(text)?),
        };
        if self.public.has_signed(text, &signature) {
            Ok(signature)
        } else {
            Err(format!("the signature is not by the key {}", self.public.id()).into())
        }
    }
}

impl FromStr for SecretKey {
    type Err = SecretKeyTextError;

    /// Reads the line that [`write`](SecretKey::write) writes, wherever it comes from.
    fn from_str(text: &str) -> Result<Self, SecretKeyTextError> {
        let digits = text.trim().strip_prefix(SECRET).map(str::trim);
        let key = digits.and_then(from_hex).ok_or(SecretKeyTextError)?;
        Ok(Self::here(SigningKey::from_bytes(&key)))
    }
}

/// A text that is no secret key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not the word {SECRET} and 64 hexadecimal digits")]
pub struct SecretKeyTextError;

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.public.id())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}
