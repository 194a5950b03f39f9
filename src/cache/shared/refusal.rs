//! Reasons for which something of a shared store is not used.

use std::fmt;

/// Why something was refused that a shared store, or a folder whose signatures are checked, has for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// What leads to the object or image is torn, or is of another version of slabjit.
    Malformed,
    /// It is the record of another key.
    OtherKey,
    /// It is an image where an object was asked for, or the other way round.
    OtherKind,
    /// Nobody has signed it.
    Unsigned,
    /// Keys that are not trusted have signed it.
    UntrustedKey {
        /// Their identifiers.
        ids: Vec<String>,
    },
    /// A key that was revoked has signed it.
    RevokedKey {
        /// Its identifier.
        id: String,
    },
    /// A trusted key has signed something else.
    BadSignature {
        /// Its identifier.
        id: String,
    },
    /// The object or image is longer than any that is fetched.
    TooLong {
        /// Its length in bytes, as far as it is known.
        bytes: u64,
    },
    /// The bytes are not those that were signed.
    OtherContents,
    /// This CPU lacks what an object's functions need.
    Cpu {
        /// What it lacks.
        lacks: Vec<String>,
    },
}

impl Refusal {
    /// Returns the reason in a word, by which [`CacheCounters::refused`](crate::CacheCounters::refused) counts.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::OtherKey => "other-key",
            Self::OtherKind => "other-kind",
            Self::Unsigned => "unsigned",
            Self::UntrustedKey { .. } => "untrusted-key",
            Self::RevokedKey { .. } => "revoked-key",
            Self::BadSignature { .. } => "bad-signature",
            Self::TooLong { .. } => "too-long",
            Self::OtherContents => "other-contents",
            Self::Cpu { .. } => "cpu",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => write!(f, "its record is torn, or of another version of slabjit"),
            Self::OtherKey => write!(f, "its record is that of another key"),
            Self::OtherKind => write!(f, "it is not of the kind that was asked for"),
            Self::Unsigned => write!(f, "nobody has signed it"),
            Self::UntrustedKey { ids } => {
                write!(f, "it is signed by {}, which is not among trusted_keys", ids.join(", "))
            }
            Self::RevokedKey { id } => write!(f, "it is signed by {id}, which was revoked"),
            Self::BadSignature { id } => write!(f, "{id} has signed something else"),
            Self::TooLong { bytes } => write!(f, "it has {bytes} bytes or more, which is more than is fetched"),
            Self::OtherContents => write!(f, "its bytes are not those of its record"),
            Self::Cpu { lacks } => write!(f, "it needs {}, which this CPU lacks", lacks.join(", ")),
        }
    }
}
