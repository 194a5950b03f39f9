//! Version 3 of CIEs, as `gcc -fno-dwarf2-cfi-asm` writes it.
//!
//! JITLink takes version 1 alone (`EHFrameEdgeFixer::processCIE`, LLVM 15 to 22); linkers and unwinders take both. They
//! differ in the return address's register alone, a byte in one and ULEB128 in the other (DWARF 3, 6.4.1), which is the
//! same for numbers below 128.

use super::patch::{Patch, Value};
use super::plugin::ObjectReport;
use super::records::{Record, records};
use super::report::ChangeKind;
use super::view::View;
use crate::Result;

pub(crate) const NAME: &str = "cie-versions";

pub(crate) fn prepare(view: &View<'_>, report: &mut ObjectReport) -> Result<Option<Patch>> {
    let mut patch = Patch::new(view.bytes.len());
    for table in view.unwind_tables() {
        let (index, header, contents) = table?;
        let cies = records(contents).map_while(Result::ok).filter(|record| record.id == 0);
        let mut count = 0;
        for cie in cies.filter(|cie| is_like_version_1(contents, cie)) {
            patch.write(header.offset.saturating_add(cie.body.start as u64), Value::U8(1));
            count += 1;
        }
        if count > 0 {
            report.begin(NAME);
            report.change(Some((index, ".eh_frame")), ChangeKind::CieVersions { count });
        }
    }
    Ok((!patch.is_empty()).then_some(patch))
}

/// Whether a CIE of version 3 is one of version 1 but for the number.
fn is_like_version_1(contents: &[u8], cie: &Record) -> bool {
    let register = || {
        let (version, behind) = contents.get(cie.body.clone())?.split_first()?;
        let string = behind.iter().position(|byte| *byte == 0)?;
        // The two alignment factors end in a byte without the highest bit.
        let mut factors = behind.get(string + 1..)?.iter().enumerate().filter(|(_, byte)| **byte < 0x80);
        let (second, _) = factors.nth(1)?;
        (*version == 3).then_some(*behind.get(string + 1 + second + 1)?)
    };
    register().is_some_and(|register| register < 0x80)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{X86, gcc, prepare as whole, put, section};

    const SOURCE: &str = "void g(void); int f(int x) { g(); return x; }";

    #[test]
    fn what_gcc_writes_itself_is_taken() {
        let bytes = gcc(&["-O1", "-fno-dwarf2-cfi-asm"], SOURCE);
        let (_, header) = section(&bytes, ".eh_frame", 0);
        let at = header.offset as usize;
        assert_eq!(bytes[at + 8], 3, "gcc writes another version");
        let prepared = whole(X86, &bytes).unwrap();
        let mut expected = bytes.clone();
        expected[at + 8] = 1;
        assert_eq!(*prepared.bytes, *expected);
        assert!(prepared.changes[0].to_string().contains("version 3"), "{}", prepared.changes[0]);
    }

    #[test]
    fn a_register_of_two_bytes_is_left_alone() {
        let mut bytes = gcc(&["-O1", "-fno-dwarf2-cfi-asm"], SOURCE);
        let (_, header) = section(&bytes, ".eh_frame", 0);
        let at = header.offset as usize + 9;
        let string = bytes[at..].iter().position(|byte| *byte == 0).unwrap();
        // Code and data factors have a byte each.
        put(&mut bytes, (at + string + 3) as u64, &[0x90]);
        assert!(whole(X86, &bytes).unwrap_err().to_string().contains("has the version 3"));
    }
}
