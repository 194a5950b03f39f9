//! Names of libraries and objects.

use std::fmt;
use std::ops::Deref;

use crate::sync::Arc;

/// A name that was given, or the number of an object that was given none. Most kernels have none, and there may be
/// many: their text is made where somebody reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    Given(Arc<str>),
    Number(u32),
}

impl Name {
    pub(crate) fn text(&self) -> Text<'_> {
        match self {
            Self::Given(text) => Text::Given(text),
            Self::Number(number) => Text::Number(ShortName::of_number(*number)),
        }
    }
}

/// A name's text, which needs no memory.
#[derive(Debug)]
pub(crate) enum Text<'a> {
    Given(&'a str),
    Number(ShortName),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Given(text) => text,
            Self::Number(text) => text,
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

/// A name without memory of its own, as signal handlers need it: up to 94 bytes of text. Of a longer name, the last
/// ones, which tell paths apart, behind an ellipsis.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShortName {
    len: u8,
    bytes: [u8; Self::CAPACITY],
}

impl ShortName {
    const CAPACITY: usize = 94;
    const ELLIPSIS: &str = "…";

    pub(crate) fn new(text: &str) -> Self {
        let mut short = Self { len: 0, bytes: [0; Self::CAPACITY] };
        if text.len() <= Self::CAPACITY {
            short.push(text);
            return short;
        }
        short.push(Self::ELLIPSIS);
        let from = text.len() - (Self::CAPACITY - Self::ELLIPSIS.len());
        short.push((from..).find_map(|from| text.get(from..)).unwrap_or_default());
        short
    }

    /// Returns the name of an object or library without one.
    pub(crate) fn of_number(number: u32) -> Self {
        let mut digits = [0; 10];
        let (mut start, mut rest) = (digits.len(), number);
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            (start, rest) = (start - 1, rest / 10);
            if rest == 0 {
                break;
            }
        }
        // Every object without a name has its text made: `write!` takes 190 of 49 000 instructions more.
        let mut short = Self { len: 0, bytes: [0; Self::CAPACITY] };
        short.push("object ");
        short.push(digits.get(start..).and_then(|digits| str::from_utf8(digits).ok()).unwrap_or_default());
        short
    }

    fn push(&mut self, text: &str) {
        let start = usize::from(self.len);
        if let Some(room) = self.bytes.get_mut(start..start + text.len()) {
            room.copy_from_slice(text.as_bytes());
            self.len += text.len() as u8;
        }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.len.into()).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

impl Deref for ShortName {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for ShortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for ShortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq<str> for ShortName {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for ShortName {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<ShortName> for &str {
    fn eq(&self, other: &ShortName) -> bool {
        *self == other.as_str()
    }
}

/// A name that something defines for others, as a linker has to know it.
#[cfg_attr(not(feature = "inkwell"), allow(dead_code, reason = "only modules say what they will define"))]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DefinedName {
    pub(crate) name: String,
    pub(crate) is_function: bool,
    /// Another definition may count.
    pub(crate) is_weak: bool,
    /// Seen outside of its dylib.
    pub(crate) is_exported: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_whole_or_say_that_they_are_not() {
        for text in ["", "a", &"b".repeat(94)] {
            assert_eq!(ShortName::new(text), *text);
        }
        let long = format!("/somewhere/{}/kernel.o", "x".repeat(94));
        let short = ShortName::new(&long);
        assert!(short.starts_with('…') && long.ends_with(short.trim_start_matches('…')), "{short}");
        assert_eq!(short.len(), 94);
        // The cut is not in the middle of a character.
        let short = ShortName::new(&"é".repeat(100));
        assert_eq!(short, *format!("…{}", "é".repeat(45)));
        for number in [0, 7, 10, 99, 100, 123_456, 1_000_000_000, u32::MAX] {
            assert_eq!(ShortName::of_number(number), *format!("object {number}"));
            assert_eq!(Name::Number(number).to_string(), *format!("object {number}"));
        }
    }
}
