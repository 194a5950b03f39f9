//! Names of libraries and objects.

use std::fmt;
use std::sync::Arc;

/// A name that was given, or the number of an object that was given none. Most kernels have none, and there may be many:
/// their text is made where somebody reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    Given(Arc<str>),
    Number(u32),
}

impl Name {
    pub(crate) fn text(&self) -> Arc<str> {
        match self {
            Self::Given(text) => Arc::clone(text),
            Self::Number(_) => self.to_string().into(),
        }
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self::Given(text.into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(text) => f.write_str(text),
            Self::Number(number) => write!(f, "object {number}"),
        }
    }
}
