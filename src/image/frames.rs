//! The unwind tables of all objects as one, without what describes discarded code, and without CIEs that are equal.

use hashbrown::HashMap;

use super::input::{Field, Input};
use super::symbols::{Symbols, Target};
use crate::elf::records;

/// A CIE or an FDE that is linked.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) object: u32,
    pub(super) section: u32,
    /// Offset in its section, and bytes.
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// Offset in the table of all.
    pub(super) offset: u64,
    pub(super) fields: Vec<Field>,
    /// Of an FDE: its CIE's position among the records, and the function's first address, if that is relocated.
    pub(super) describes: Option<(usize, Option<(Target, i64)>)>,
}

/// The table of all objects.
#[derive(Debug, Default)]
pub(super) struct Frames {
    pub(super) records: Vec<Record>,
    /// Without the end.
    pub(super) bytes: u64,
}

type CieKey<'a> = (&'a [u8], Vec<(u64, u32, Target, i64)>);

impl Frames {
    pub(super) fn collect<'a>(inputs: &'a [Input], symbols: &Symbols<'a>) -> Self {
        let mut frames = Self::default();
        let mut known = HashMap::<CieKey<'a>, usize>::new();
        for (object, input) in (0..).zip(inputs) {
            let Some(tables) = input.tables() else { continue };
            for section in (0..).zip(&input.index.sections).filter(|(i, _)| input.is_unwind_table(*i)).map(|(i, _)| i) {
                let contents = input.contents(section);
                let mut fields: Vec<Field> = input.fields(&tables, section).collect();
                fields.sort_by_key(|field| field.offset);
                let referred = |field: &Field| symbols.referred((object, input), &tables, field).target;
                // CIEs by where they start.
                let mut cies = HashMap::<u64, (Record, CieKey<'a>)>::new();
                for record in records(contents).map_while(Result::ok) {
                    let (start, end) = (record.start as u64, record.body.end as u64);
                    let first = fields.partition_point(|field| field.offset < start);
                    let behind = fields.partition_point(|field| field.offset < end);
                    let fields = fields.get(first..behind).unwrap_or_default().to_vec();
                    let mut new =
                        Record { object, section, start, bytes: end - start, offset: 0, fields, describes: None };
                    if record.id == 0 {
                        let fixed = |f: &Field| (f.offset - start, f.kind.number, referred(f), f.addend);
                        let key = (
                            contents.get(record.start..record.body.end).unwrap_or_default(),
                            new.fields.iter().map(fixed).collect(),
                        );
                        cies.insert(start, (new, key));
                        continue;
                    }
                    let begins = record.body.start as u64;
                    let function = new.fields.iter().find(|field| field.offset == begins);
                    let function = function.map(|field| (referred(field), field.addend));
                    if function.is_some_and(|(target, _)| !is_linked(inputs, target)) {
                        continue;
                    }
                    // An FDE has the distance from its CIE to this field.
                    let cie = (record.id_at() as u64).checked_sub(record.id.into());
                    let Some((cie, key)) = cie.and_then(|cie| cies.get(&cie)) else { continue };
                    let cie = *known.entry(key.clone()).or_insert_with(|| frames.push(cie.clone()));
                    new.describes = Some((cie, function));
                    frames.push(new);
                }
            }
        }
        frames
    }

    fn push(&mut self, mut record: Record) -> usize {
        record.offset = self.bytes;
        self.bytes += record.bytes;
        self.records.push(record);
        self.records.len() - 1
    }

    /// Returns the number of FDEs.
    pub(super) fn functions(&self) -> usize {
        self.records.iter().filter(|record| record.describes.is_some()).count()
    }
}

fn is_linked(inputs: &[Input], target: Target) -> bool {
    match target {
        Target::Section { object, section, .. } | Target::Indirect { object, section, .. } => {
            inputs.get(object as usize).is_some_and(|input| input.is_mapped(section))
        }
        _ => false,
    }
}
