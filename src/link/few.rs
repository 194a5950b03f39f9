//! A vector whose only element needs no allocation.

use std::ops::{Deref, DerefMut};
use std::{mem, slice};

/// Most libraries have one object, and there may be many libraries.
#[derive(Debug, Default)]
pub(super) enum Few<T> {
    #[default]
    None,
    One(T),
    Many(Vec<T>),
}

impl<T> Few<T> {
    pub(super) fn append(&mut self, more: Vec<T>) {
        if self.is_empty() {
            *self = more.into();
            return;
        }
        let mut all = mem::take(self).into_vec();
        all.reserve_exact(more.len());
        all.extend(more);
        *self = Self::Many(all);
    }

    /// The last element.
    pub(super) fn pop(&mut self) -> Option<T> {
        match self {
            Self::Many(all) => all.pop(),
            _ => match mem::take(self) {
                Self::One(only) => Some(only),
                _ => None,
            },
        }
    }

    /// Takes the elements out of which this is true, in order.
    pub(super) fn extract(&mut self, is: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let mut all = mem::take(self).into_vec();
        let extracted = all.extract_if(.., is).collect();
        *self = all.into();
        extracted
    }

    fn into_vec(self) -> Vec<T> {
        match self {
            Self::None => Vec::new(),
            Self::One(only) => vec![only],
            Self::Many(all) => all,
        }
    }
}

impl<T> From<Vec<T>> for Few<T> {
    fn from(mut all: Vec<T>) -> Self {
        match all.len() {
            1 => all.pop().map_or(Self::None, Self::One),
            _ => Self::Many(all),
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(only) => slice::from_ref(only),
            Self::Many(all) => all,
        }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::None => &mut [],
            Self::One(only) => slice::from_mut(only),
            Self::Many(all) => all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Vec` is the oracle.
    #[test]
    fn it_is_a_vector() {
        for first in 0..4_u32 {
            for second in 0..4 {
                for remainder in 0..3 {
                    let (mut few, mut vector) = (Few::default(), Vec::new());
                    for range in [0..first, first..first + second] {
                        few.append(range.clone().collect());
                        vector.extend(range);
                        assert_eq!(*few, *vector);
                    }
                    few.iter_mut().chain(&mut vector).for_each(|n| *n += 1);
                    let extracted: Vec<u32> = vector.extract_if(.., |n| *n % 3 == remainder).collect();
                    assert_eq!(few.extract(|n| *n % 3 == remainder), extracted);
                    assert_eq!(*few, *vector);
                    while let Some(last) = vector.pop() {
                        assert_eq!(few.pop(), Some(last));
                        assert_eq!(*few, *vector);
                    }
                    assert_eq!(few.pop(), None);
                }
            }
        }
    }
}
