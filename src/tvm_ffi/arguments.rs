//! Argument lists of calls.

use super::Any;

/// Arguments of a call: a tuple of up to 16 values that convert to [`Any`], or a slice of [`Any`].
pub trait Arguments<'a> {
    /// Calls the closure with them.
    fn with<R>(self, call: impl FnOnce(&[Any<'a>]) -> R) -> R;
}

impl<'a> Arguments<'a> for &[Any<'a>] {
    #[inline]
    fn with<R>(self, call: impl FnOnce(&[Any<'a>]) -> R) -> R {
        call(self)
    }
}

impl<'a, const N: usize> Arguments<'a> for &[Any<'a>; N] {
    #[inline]
    fn with<R>(self, call: impl FnOnce(&[Any<'a>]) -> R) -> R {
        call(self)
    }
}

macro_rules! tuples {
    ($first:ident $($rest:ident)*) => {
        tuples!(@ $first $($rest)*);
        tuples!($($rest)*);
    };
    () => { tuples!(@); };
    (@ $($name:ident)*) => {
        impl<'a $(, $name: Into<Any<'a>>)*> Arguments<'a> for ($($name,)*) {
            #[inline]
            #[allow(non_snake_case, reason = "each is called as its type")]
            fn with<R>(self, call: impl FnOnce(&[Any<'a>]) -> R) -> R {
                let ($($name,)*) = self;
                call(&[$($name.into()),*])
            }
        }
    };
}

tuples!(A B C D E F G H I J K L M N O P);
