//! What became of a member on one side.

use slabjit::{Error, ImageError, LibraryError, LinkError, MemoryError, ObjectError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Linked,
    /// With a cause that says what about the object is at fault.
    Refused(String),
    /// LLVM's words, a panic, a signal, the time limit: no cause that a user could act on.
    Failed(String),
    /// It has no symbol that could be asked for.
    NeverAsked,
}

impl Outcome {
    /// Thread-local storage and indirect functions, which stock links wrongly or not at all and we link.
    pub fn is_ours_to_link(&self) -> bool {
        let ours = ["ThreadLocal", "StaticThreadLocal", "IndirectFunction"];
        matches!(self, Self::Refused(cause) if ours.iter().any(|variant| cause.starts_with(variant)))
    }

    /// For ours: a text that is the same for the same cause.
    pub fn of_error(error: &Error) -> Self {
        match error {
            Error::Link(LinkError::ThreadLocal { what, .. }) => {
                Self::Refused(format!("ThreadLocal: {}", general(what)))
            }
            Error::Link(LinkError::StaticThreadLocal { bytes, alignment, .. }) => {
                Self::Refused(format!("StaticThreadLocal: no room for {bytes} bytes (aligned to {alignment})"))
            }
            Error::Object(ObjectError::UnsupportedRelocation { relocation, reason, .. }) => {
                Self::Refused(format!("UnsupportedRelocation {relocation}: {}", general(reason)))
            }
            Error::Link(LinkError::ReferencesOutOfRange { references, .. }) => {
                let first = references.first().map_or("", |r| r.relocation.as_str());
                Self::Refused(format!("ReferencesOutOfRange {first}"))
            }
            Error::Object(ObjectError::Malformed { problem, .. }) => {
                Self::Refused(format!("Malformed: {}", general(problem)))
            }
            Error::Image(ImageError::NotPositionIndependent { relocation, .. }) => {
                Self::Refused(format!("NotPositionIndependent {relocation}"))
            }
            // All names are given, and nothing is named that is not there.
            Error::Link(LinkError::Failed { .. })
            | Error::Link(LinkError::UndefinedSymbols { .. })
            | Error::Library(LibraryError::SymbolNotFound { .. })
            | Error::Memory(MemoryError::System { .. }) => Self::Failed(error.to_string()),
            Error::Object(ObjectError::Truncated { what, .. }) => {
                Self::Refused(format!("Truncated: {}", general(what)))
            }
            Error::Object(ObjectError::NotAnObject { .. }) => Self::Refused("NotAnObject".to_owned()),
            Error::Object(ObjectError::IndirectFunction { .. }) => Self::Refused("IndirectFunction".to_owned()),
            _ => Self::Refused(general(&error.to_string())),
        }
    }
}

/// A text without what differs from object to object: quoted names and numbers.
pub fn general(text: &str) -> String {
    let mut result = String::new();
    let mut quoted = false;
    let mut word = String::new();
    for c in text.chars().chain([' ']) {
        if quoted {
            quoted = c != '\'';
        } else if c == '\'' && !word.ends_with(char::is_alphanumeric) {
            quoted = true;
            word.push('…');
        } else if c.is_alphanumeric() || c == '_' || c == '…' {
            word.push(c);
        } else {
            let is_number = word.starts_with(|c: char| c.is_ascii_digit());
            result.push_str(if is_number { "N" } else { &word });
            result.push(c);
            word.clear();
        }
    }
    result.trim_end().chars().take(200).collect()
}

impl Outcome {
    /// One line.
    pub fn encode(&self) -> String {
        let line = |text: &str| text.replace('\n', " | ");
        match self {
            Self::Linked => "linked".into(),
            Self::NeverAsked => "never asked".into(),
            Self::Refused(cause) => format!("refused: {}", line(cause)),
            Self::Failed(words) => format!("failed: {}", line(words)),
        }
    }

    /// What [`encode`](Self::encode) wrote.
    pub fn decode(line: &str) -> Option<Self> {
        match line.split_once(": ") {
            None if line == "linked" => Some(Self::Linked),
            None if line == "never asked" => Some(Self::NeverAsked),
            Some(("refused", cause)) => Some(Self::Refused(cause.into())),
            Some(("failed", words)) => Some(Self::Failed(words.into())),
            _ => None,
        }
    }
}
