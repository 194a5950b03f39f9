//! What became of a member on one side.

use slabjit::Error;

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

    /// For ours: which it is, and a text that is the same for the same cause.
    pub fn of_error(error: &Error) -> Self {
        let debug = format!("{error:?}");
        let variant: String = debug.chars().take_while(char::is_ascii_alphanumeric).collect();
        match error {
            Error::ThreadLocal { what, .. } => Self::Refused(format!("{variant}: {}", general(what))),
            Error::StaticThreadLocal { bytes, alignment, .. } => {
                Self::Refused(format!("{variant}: no room for {bytes} bytes (aligned to {alignment})"))
            }
            Error::UnsupportedRelocation { relocation, reason, .. } => {
                Self::Refused(format!("{variant} {relocation}: {}", general(reason)))
            }
            Error::ReferencesOutOfRange { references, .. } => {
                let first = references.first().map_or("", |r| r.relocation.as_str());
                Self::Refused(format!("{variant} {first}"))
            }
            Error::Malformed { problem, .. } => Self::Refused(format!("{variant}: {}", general(problem))),
            // All names are given, and nothing is named that is not there.
            Error::Link { .. }
            | Error::UndefinedSymbols { .. }
            | Error::SymbolNotFound { .. }
            | Error::System { .. } => Self::Failed(error.to_string()),
            _ => Self::Refused(variant),
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
