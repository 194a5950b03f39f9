//! candle's storages as elements in memory.

use candle_core::CpuStorage;
use half::{bf16, f16};
use slabjit::ElementType;

/// Where a storage's elements are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elements {
    pub start: *mut u8,
    pub len: usize,
    pub element: ElementType,
}

macro_rules! types {
    ($($variant:ident $type:ty),* $(,)?) => {
        /// Returns the elements to read; none for types that no contract has.
        pub(crate) fn read(storage: &CpuStorage) -> Option<Elements> {
            Some(match storage {
                $(CpuStorage::$variant(all) => of(all.as_ptr().cast_mut(), all.len(), ElementType::$variant),)*
                _ => return None,
            })
        }

        /// Returns the elements to write.
        pub(crate) fn write(storage: &mut CpuStorage) -> Option<Elements> {
            Some(match storage {
                $(CpuStorage::$variant(all) => of(all.as_mut_ptr(), all.len(), ElementType::$variant),)*
                _ => return None,
            })
        }

        /// Makes a storage of zeros; none for types that it is not made of, and where there is no memory.
        pub(crate) fn zeros(element: ElementType, len: usize) -> Option<CpuStorage> {
            Some(match element {
                $(ElementType::$variant => {
                    let mut all = Vec::new();
                    all.try_reserve_exact(len).ok()?;
                    all.resize(len, <$type>::default());
                    CpuStorage::$variant(all)
                })*
                _ => return None,
            })
        }
    };
}

types! { U8 u8, U32 u32, I16 i16, I32 i32, I64 i64, BF16 bf16, F16 f16, F32 f32, F64 f64 }

fn of<T>(start: *mut T, len: usize, element: ElementType) -> Elements {
    Elements { start: start.cast(), len, element }
}
