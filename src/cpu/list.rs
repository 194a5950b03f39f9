//! The list that an image has of what its functions need of the CPU.
//!
//! It has the names of the features, so that versions of this crate need not agree on numbers: their count, then the
//! length and the bytes of each. Records follow by ascending address, all numbers as ULEB128: the distance from the
//! last address; twice the number of features, plus one where something could not be decoded; for each feature its
//! place among the names, and the offset of the first instruction that needs it.

use smallvec::SmallVec;

use super::needs::Needs;
use super::{has, name};
use crate::elf::image_note::{number, push_number};

/// The most features, and the longest name, that an image can have.
const MOST_NAMES: usize = u8::MAX as usize;
const LONGEST_NAME: usize = 64;

/// Writes the needs of functions with these addresses.
pub(crate) fn write(machine: u16, mut records: Vec<(u64, Needs)>) -> Vec<u8> {
    records.retain(|(_, needs)| !needs.is_empty());
    records.sort_by_key(|(address, _)| *address);
    // One function with two names, perhaps of two sizes.
    records.dedup_by(|(address, needs), (kept_address, kept)| {
        let is_same = address == kept_address;
        if is_same {
            kept.append(needs, 0);
        }
        is_same
    });
    if records.is_empty() {
        return Vec::new();
    }
    let mut used: Vec<u8> = records.iter().flat_map(|(_, needs)| needs.features.iter().map(|(at, _)| *at)).collect();
    used.sort_unstable();
    used.dedup();
    let mut out = Vec::new();
    push_number(&mut out, used.len() as u64);
    for feature in &used {
        let name = name(machine, *feature);
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
    }
    let mut last = 0;
    for (address, needs) in records {
        push_number(&mut out, address - last);
        last = address;
        push_number(&mut out, 2 * needs.features.len() as u64 + u64::from(needs.undecoded));
        for (feature, offset) in &needs.features {
            push_number(&mut out, used.binary_search(feature).unwrap_or(0) as u64);
            push_number(&mut out, *offset);
        }
    }
    out
}

/// What a function needs, by an image's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) address: u64,
    pub(crate) features: SmallVec<[(&'a str, u64); 4]>,
    pub(crate) undecoded: bool,
}

/// A function of an image that this CPU does not run: its address in the file, and the first feature that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) address: u64,
    pub(crate) feature: Box<str>,
    pub(crate) offset: u64,
}

/// The functions of an image that this CPU does not run, by address.
#[derive(Debug, Default)]
pub(crate) struct Lacks(Box<[Lack]>);

impl Lacks {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn at(&self, address: u64) -> Option<&Lack> {
        self.0.binary_search_by_key(&address, |lack| lack.address).ok().and_then(|at| self.0.get(at))
    }
}

/// An image's list.
pub(crate) struct List<'a> {
    names: Vec<&'a str>,
    records: &'a [u8],
}

impl<'a> List<'a> {
    /// Reads the names.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut records = bytes;
        let count = if bytes.is_empty() { 0 } else { usize::try_from(number(&mut records)?).ok()? };
        if count > MOST_NAMES {
            return None;
        }
        let mut names = Vec::with_capacity(count);
        for _ in 0..count {
            let (length, rest) = records.split_first()?;
            let (name, rest) = rest.split_at_checked(usize::from(*length))?;
            let is_name = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
            if name.is_empty() || name.len() > LONGEST_NAME || !name.iter().all(is_name) {
                return None;
            }
            names.push(std::str::from_utf8(name).ok()?);
            records = rest;
        }
        Some(Self { names, records })
    }

    /// Returns the functions that this CPU does not run.
    pub(crate) fn lacks(&self) -> Result<Lacks, ()> {
        let missing: Vec<bool> = self.names.iter().map(|name| !has(name)).collect();
        let mut lacks = Vec::new();
        let (mut bytes, mut address) = (self.records, 0);
        // Most lists are met by the names alone.
        while missing.contains(&true) && !bytes.is_empty() {
            let mut lacking: Option<(usize, u64)> = None;
            let is_read = self.read(&mut bytes, &mut address, |feature, offset| {
                if missing[feature] && lacking.is_none_or(|(_, first)| offset < first) {
                    lacking = Some((feature, offset));
                }
            });
            is_read.ok_or(())?;
            lacks.extend(lacking.map(|(feature, offset)| Lack {
                address,
                feature: self.names[feature].into(),
                offset,
            }));
        }
        Ok(Lacks(lacks.into()))
    }

    /// Returns the records. One that cannot be read ends them, with an error.
    pub(crate) fn records(&self) -> impl Iterator<Item = Result<Record<'a>, ()>> {
        let (mut bytes, mut address) = (self.records, 0_u64);
        std::iter::from_fn(move || {
            if bytes.is_empty() {
                return None;
            }
            let read = self.record(&mut bytes, &mut address);
            if read.is_none() {
                bytes = &[];
            }
            Some(read.ok_or(()))
        })
    }

    fn record(&self, bytes: &mut &[u8], address: &mut u64) -> Option<Record<'a>> {
        let mut features = SmallVec::new();
        let undecoded = self.read(bytes, address, |feature, offset| features.push((self.names[feature], offset)))?;
        Some(Record { address: *address, features, undecoded })
    }

    /// Reads a record: its address, each feature's place among the names with its offset, and whether something could
    /// not be decoded, which it returns.
    fn read(&self, bytes: &mut &[u8], address: &mut u64, mut feature: impl FnMut(usize, u64)) -> Option<bool> {
        *address = address.checked_add(number(bytes)?)?;
        let count = number(bytes)?;
        let (count, undecoded) = (count / 2, count % 2 == 1);
        if count > self.names.len() as u64 {
            return None;
        }
        for _ in 0..count {
            let at = usize::try_from(number(bytes)?).ok().filter(|at| *at < self.names.len())?;
            feature(at, number(bytes)?);
        }
        Some(undecoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu;
    use crate::elf::EM_X86_64;

    fn needs(names: &[(&str, u64)], undecoded: bool) -> Needs {
        let features = names.iter().map(|(name, at)| (cpu::number(EM_X86_64, name).unwrap(), *at)).collect();
        Needs { features, undecoded }
    }

    #[test]
    fn lists_are_read_as_they_were_written() {
        let first = needs(&[("AVX512F", 300), ("SSE3", 0)], false);
        let records = vec![
            (0x9000, needs(&[], true)),
            (0x1000, first),
            (0x1000, needs(&[("AVX2", 2)], true)),
            (5, needs(&[], false)),
        ];
        let bytes = write(EM_X86_64, records);
        let list = List::new(&bytes).unwrap();
        let read: Vec<_> = list.records().collect::<Result<_, _>>().unwrap();
        let merged = vec![("AVX512F", 300), ("SSE3", 0), ("AVX2", 2)];
        assert_eq!(
            read,
            [
                Record { address: 0x1000, features: merged.into(), undecoded: true },
                Record { address: 0x9000, features: SmallVec::new(), undecoded: true },
            ]
        );
        assert!(write(EM_X86_64, vec![(1, Needs::default())]).is_empty());
        assert!(List::new(&[]).unwrap().records().next().is_none());
        // Each end but the whole, a record's end, and the names' end is an error.
        let whole = (0..=bytes.len())
            .filter(|end| List::new(&bytes[..*end]).is_some_and(|list| list.records().all(|record| record.is_ok())));
        assert_eq!(whole.count(), 4);
    }

    // This machine's CPU is asked.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_first_feature_that_is_missing_is_told() {
        // Two names are overwritten with names that no CPU has.
        let records = vec![
            (0x100, needs(&[("AVX2", 9), ("AVX512F", 4), ("SSE3", 0)], false)),
            (0x200, needs(&[("SSE3", 1)], true)),
            (0x300, needs(&[("AVX512F", 7), ("AVX2", 3)], true)),
        ];
        let mut bytes = write(EM_X86_64, records);
        for name in [&b"AVX2"[..], b"AVX512F"] {
            let at = bytes.windows(name.len()).position(|bytes| bytes == name).unwrap();
            bytes[at..at + name.len()].fill(b'Z');
        }
        let lacks = List::new(&bytes).unwrap().lacks().unwrap();
        let told = |at| lacks.at(at).map(|lack| (&*lack.feature, lack.offset));
        assert_eq!([0x100, 0x200, 0x300].map(told), [Some(("ZZZZZZZ", 4)), None, Some(("ZZZZ", 3))]);
        let truncated = &bytes[..bytes.len() - 1];
        assert!(List::new(truncated).unwrap().lacks().is_err());
    }

    #[test]
    fn hostile_lists_are_refused() {
        for names in [&b"\x01\x00"[..], b"\x01\x01a", b"\x01\x05AVX", b"\xff\x01", b"\x01\x02A\n"] {
            assert!(List::new(names).is_none(), "{names:?}");
        }
        for records in
            [&b"\x00\x01\x02\x00\x00"[..], b"\x01\x01A\x00\x02\x01\x00", b"\x01\x01A\x00\x04\x00\x00\x00\x00"]
        {
            let list = List::new(records).unwrap();
            assert!(list.records().last().unwrap().is_err(), "{records:?}");
        }
    }
}
