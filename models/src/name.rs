//! Names as `src/name.rs` has them. A short one is the number in its text.

use crate::sync::Arc;

pub(crate) enum Name {
    Given(Arc<str>),
    Number(u32),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ShortName(pub(crate) u64);

impl ShortName {
    pub(crate) fn new(text: &str) -> Self {
        Self(text.parse().unwrap())
    }

    pub(crate) fn of_number(number: u32) -> Self {
        Self(number.into())
    }
}
