//! Bytes of an object as a caller passes them: a `Vec` that is passed by value need not be copied.

use std::borrow::Cow;

/// Bytes in a `Vec`, or of any other type.
pub(crate) struct Given<B>(Result<Vec<u8>, B>);

impl<B: AsRef<[u8]>> Given<B> {
    pub(crate) fn new(bytes: B) -> Self {
        Self(castaway::cast!(bytes, Vec<u8>))
    }

    /// Returns the bytes, once: owned, if they are a `Vec`.
    pub(crate) fn take(&mut self) -> Cow<'_, [u8]> {
        match &mut self.0 {
            Ok(bytes) => Cow::Owned(std::mem::take(bytes)),
            Err(bytes) => Cow::Borrowed((*bytes).as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_away_is_not_copied() {
        let bytes = vec![1, 2, 3];
        let at = bytes.as_ptr();
        assert!(matches!(Given::new(&bytes).take(), Cow::Borrowed(same) if same.as_ptr() == at));
        assert!(matches!(Given::new(bytes.as_slice()).take(), Cow::Borrowed(same) if same.as_ptr() == at));
        assert!(matches!(Given::new(bytes).take(), Cow::Owned(same) if same == [1, 2, 3] && same.as_ptr() == at));
        assert!(matches!(Given::new([4; 4]).take(), Cow::Borrowed([4, 4, 4, 4])));
        assert!(matches!(Given::new("text").take(), Cow::Borrowed(b"text")));
    }
}
