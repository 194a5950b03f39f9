//! Element types of buffers, and scalar types.

use std::any::TypeId;
use std::fmt;

/// The type of a buffer's elements. Sizes are those in memory, at least a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub enum ElementType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    BF16,
    F32,
    F64,
    /// Two `f32`: the real part, then the imaginary one.
    Complex64,
    /// Two `f64`.
    Complex128,
    // One byte each; the names are those of ml_dtypes and DLPack.
    F8E3M4,
    F8E4M3,
    F8E4M3B11Fnuz,
    F8E4M3Fn,
    F8E4M3Fnuz,
    F8E5M2,
    F8E5M2Fnuz,
    F8E8M0Fnu,
}

impl ElementType {
    /// Returns the bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::F8E3M4 | Self::F8E4M3 | Self::F8E4M3B11Fnuz | Self::F8E4M3Fn | Self::F8E4M3Fnuz => 1,
            Self::F8E5M2 | Self::F8E5M2Fnuz | Self::F8E8M0Fnu => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
        }
    }

    /// Returns the alignment of elements in bytes: the size; for complex numbers that of a part.
    pub const fn alignment(self) -> usize {
        match self {
            Self::Complex64 | Self::Complex128 => self.size() / 2,
            _ => self.size(),
        }
    }

    /// Returns whether a C function may take such a buffer as a pointer to `T`: to the same type, to one of the same
    /// size if Rust lacks it, to a part of a complex number, or to a type that is not a number (`c_void`, a struct).
    pub(super) fn is_pointee<T: 'static>(self) -> bool {
        let pointee = TypeId::of::<T>();
        match of_type(pointee) {
            None => true,
            Some(known) if known == self => true,
            Some(known) => match self {
                Self::Bool => known == Self::U8,
                Self::F16 | Self::BF16 => matches!(known, Self::U16 | Self::I16),
                Self::Complex64 => known == Self::F32,
                Self::Complex128 => known == Self::F64,
                _ => self.is_float8() && matches!(known, Self::U8 | Self::I8),
            },
        }
    }

    fn is_float8(self) -> bool {
        self.size() == 1 && !matches!(self, Self::Bool | Self::I8 | Self::U8)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A Rust type that is an [`ElementType`].
pub trait Element: Copy + 'static + sealed::Sealed {
    /// The element type.
    const TYPE: ElementType;
}

/// The type of a scalar argument, as C passes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub enum ScalarType {
    Bool,
    I8,
    I16,
    I32,
    /// Also `isize`, `long` and `ptrdiff_t`.
    I64,
    U8,
    U16,
    U32,
    /// Also `usize`, `size_t` and `uintptr_t`.
    U64,
    F32,
    F64,
    /// A pointer that is no buffer of the contract: a stream, a handle, a table. Its target is not checked.
    Pointer,
}

impl ScalarType {
    pub(super) fn is_integer(self) -> bool {
        !matches!(self, Self::Bool | Self::F32 | Self::F64 | Self::Pointer)
    }

    /// Returns an integer of this type as it is passed, if the type can hold it.
    pub(super) fn word_of(self, value: usize) -> Option<Word> {
        fn passed<T: Scalar + TryFrom<usize>>(value: usize) -> Option<Word> {
            T::try_from(value).ok().map(Scalar::to_word)
        }
        match self {
            Self::I8 => passed::<i8>(value),
            Self::I16 => passed::<i16>(value),
            Self::I32 => passed::<i32>(value),
            Self::I64 => passed::<i64>(value),
            Self::U8 => passed::<u8>(value),
            Self::U16 => passed::<u16>(value),
            Self::U32 => passed::<u32>(value),
            Self::U64 => passed::<u64>(value),
            Self::Bool | Self::F32 | Self::F64 | Self::Pointer => None,
        }
    }

    /// Formats a scalar as it is passed.
    pub(super) fn text_of(self, word: Word) -> String {
        match self {
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => u64::from_word(word).to_string(),
            _ => i64::from_word(word).to_string(),
        }
    }
}

impl fmt::Display for ScalarType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An argument as it is passed: a pointer, or the bits of a scalar in the lower bytes. It is a pointer type, so that
/// pointers keep their provenance.
pub(super) type Word = *mut ();

/// Makes a word from a scalar's bits.
fn word(bits: u64) -> Word {
    std::ptr::without_provenance_mut(bits as usize)
}

/// A Rust type that is a [`ScalarType`].
pub trait Scalar: Copy + 'static + sealed::Sealed {
    /// The scalar type.
    const TYPE: ScalarType;
    #[doc(hidden)]
    fn to_word(self) -> Word;
    #[doc(hidden)]
    fn from_word(word: Word) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ty: $element:ident),* $(,)?) => {
        $(impl Element for $type { const TYPE: ElementType = ElementType::$element; })*
        $(impl sealed::Sealed for $type {})*

        /// Returns the element type of a Rust type.
        fn of_type(id: TypeId) -> Option<ElementType> {
            [$((TypeId::of::<$type>(), ElementType::$element)),*].into_iter().find(|(known, _)| *known == id).map(|(_, e)| e)
        }
    };
}

elements! {
    bool: Bool, i8: I8, i16: I16, i32: I32, i64: I64, u8: U8, u16: U16, u32: U32, u64: U64,
    isize: I64, usize: U64, f32: F32, f64: F64, [f32; 2]: Complex64, [f64; 2]: Complex128,
}

macro_rules! scalars {
    ($($type:ty: $scalar:ident, $to:expr, $from:expr;)*) => { $(
        impl Scalar for $type {
            const TYPE: ScalarType = ScalarType::$scalar;
            fn to_word(self) -> Word {
                ($to)(self)
            }
            fn from_word(word: Word) -> Self {
                ($from)(word)
            }
        }
    )* };
}

scalars! {
    bool: Bool, |v| word(u64::from(v)), |w: Word| w.addr() != 0;
    i8: I8, |v| word(v as u64), |w: Word| w.addr() as i8;
    i16: I16, |v| word(v as u64), |w: Word| w.addr() as i16;
    i32: I32, |v| word(v as u64), |w: Word| w.addr() as i32;
    i64: I64, |v| word(v as u64), |w: Word| w.addr() as i64;
    isize: I64, |v| word(v as u64), |w: Word| w.addr() as isize;
    u8: U8, |v| word(u64::from(v)), |w: Word| w.addr() as u8;
    u16: U16, |v| word(u64::from(v)), |w: Word| w.addr() as u16;
    u32: U32, |v| word(u64::from(v)), |w: Word| w.addr() as u32;
    u64: U64, word, |w: Word| w.addr() as u64;
    usize: U64, |v| word(v as u64), |w: Word| w.addr();
    f32: F32, |v: f32| word(u64::from(v.to_bits())), |w: Word| f32::from_bits(w.addr() as u32);
    f64: F64, |v: f64| word(v.to_bits()), |w: Word| f64::from_bits(w.addr() as u64);
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use super::*;

    #[test]
    fn scalars_come_back_from_words() {
        fn back<T: Scalar + PartialEq + fmt::Debug>(values: &[T]) {
            for value in values {
                assert_eq!(T::from_word(value.to_word()), *value);
            }
        }
        back(&[true, false]);
        back(&[i8::MIN, -1, i8::MAX]);
        back(&[i16::MIN, -1, i16::MAX]);
        back(&[i32::MIN, -1, i32::MAX]);
        back(&[i64::MIN, -1, i64::MAX]);
        back(&[isize::MIN, isize::MAX]);
        back(&[0, u8::MAX]);
        back(&[u16::MAX]);
        back(&[u32::MAX]);
        back(&[u64::MAX]);
        back(&[usize::MAX]);
        back(&[-0.5f32, f32::MAX, f32::INFINITY]);
        back(&[-0.5f64, f64::MAX, f64::NEG_INFINITY]);
        assert!(f32::from_word(f32::NAN.to_word()).is_nan());
    }

    #[test]
    fn pointers_lead_to_what_a_buffer_holds() {
        assert!(ElementType::F32.is_pointee::<f32>());
        assert!(ElementType::F32.is_pointee::<c_void>());
        assert!(ElementType::F32.is_pointee::<()>());
        assert!(!ElementType::F32.is_pointee::<u32>());
        assert!(!ElementType::F32.is_pointee::<f64>());
        assert!(ElementType::BF16.is_pointee::<u16>());
        assert!(!ElementType::I16.is_pointee::<u16>());
        assert!(ElementType::F8E4M3Fn.is_pointee::<u8>());
        assert!(!ElementType::I8.is_pointee::<u8>());
        assert!(ElementType::Complex64.is_pointee::<f32>());
        assert!(ElementType::Complex64.is_pointee::<[f32; 2]>());
        assert!(!ElementType::Complex128.is_pointee::<[f32; 2]>());
    }
}
