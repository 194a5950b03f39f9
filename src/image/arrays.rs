//! Initialisers and finalisers of an image, in the order of `ld`.

use super::input::{Field, Input};
use super::symbols::Target;
use crate::elf::{Array, ArrayKind, Rank};

/// A function that the dynamic loader calls.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    /// The one that a pointer of a section refers to.
    Pointer { object: u32, section: u32, field: Field },
    /// A function of the image.
    Function(Target),
}

/// The lists of an image.
#[derive(Debug, Default)]
pub(super) struct Arrays {
    pub(super) initialisers: Vec<Call>,
    /// They are called from the last to the first.
    pub(super) finalisers: Vec<Call>,
}

impl Arrays {
    /// Collects the lists. `last` is called behind all finalisers but those with a number, as crtbeginS.o's is.
    pub(super) fn collect(inputs: &[Input], last: Option<Target>) -> Self {
        let (mut initialisers, mut finalisers) = (Vec::new(), Vec::new());
        finalisers.extend(last.map(|last| (Rank::PLAIN, Call::Function(last))));
        for (object, input) in (0..).zip(inputs) {
            for array in input.index.arrays.iter().filter(|array| input.is_mapped(array.section)) {
                let rank = array.rank(&input.index);
                let list = match array.kind {
                    ArrayKind::Fini | ArrayKind::FiniCode | ArrayKind::Dtors => &mut finalisers,
                    _ => &mut initialisers,
                };
                list.extend(calls(object, input, array).into_iter().map(|call| (rank, call)));
            }
        }
        let sorted = |mut list: Vec<(Rank, Call)>| {
            list.sort_by_key(|(rank, _)| *rank);
            list.into_iter().map(|(_, call)| call).collect()
        };
        Self { initialisers: sorted(initialisers), finalisers: sorted(finalisers) }
    }
}

fn calls(object: u32, input: &Input, array: &Array) -> Vec<Call> {
    let section = array.section;
    if !array.kind.is_list() {
        return vec![Call::Function(Target::Section { object, section, value: 0 })];
    }
    // Words without relocations delimit old lists of constructors.
    let Some(tables) = input.tables() else { return Vec::new() };
    let mut fields: Vec<Field> = input.fields(&tables, section).filter(|field| field.kind.width == 8).collect();
    fields.sort_by_key(|field| field.offset);
    if matches!(array.kind, ArrayKind::Ctors | ArrayKind::Dtors) {
        fields.reverse();
    }
    fields.into_iter().map(|field| Call::Pointer { object, section, field }).collect()
}
