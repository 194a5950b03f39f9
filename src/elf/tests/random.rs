use std::sync::OnceLock;

use proptest::prelude::*;

use crate::elf::exercise::{POLICIES, exercise_under};
use crate::elf::testing::{X86, asm, clang, gcc};

/// Real objects of every shape.
fn corpus() -> &'static [Vec<u8>] {
    static CORPUS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    CORPUS.get_or_init(|| {
        let source = "extern int g(int); int data[9] = {1}; static __attribute__((constructor)) void init(void) { data[1] = g(2); }
            int f(int x) { return g(x) + data[x & 7]; }";
        vec![
            gcc(&["-O2", "-g"], source),
            gcc(&["-g", "-gz=zlib", "-fcommon", "-ffunction-sections"], source),
            clang(&["-O1", "-Wa,--crel,--allow-experimental-crel", "-fPIC"], source),
            clang(&["-O1", "-target", "aarch64-linux-gnu"], source),
            asm(".section .x,\"axG\",@progbits,sig,comdat\n.weak sig\nsig: ret\n.section .x,\"aw\",@progbits,unique,2\n.globl a\na = 7\n.quad a, sig"),
        ]
    })
}

fn exercise(bytes: &[u8]) -> bool {
    exercise_under(X86, &POLICIES, bytes)
}

#[test]
fn every_truncation_is_an_error_or_harmless() {
    for object in corpus() {
        for len in 0..object.len() {
            exercise(&object[..len]);
        }
        // The section table is at the end of objects by GNU and LLVM tools, so every cut hits it.
        assert!((0..object.len()).step_by(32).all(|len| !exercise(&object[..len])));
    }
}

#[test]
fn every_flipped_byte_of_the_headers_is_survived() {
    for object in corpus() {
        let table = u64::from_le_bytes(object[40..48].try_into().unwrap()) as usize;
        let mut refused = 0;
        for at in (0..64).chain(table..object.len()) {
            for (value, policy) in [0x00, 0x01, 0x80, 0xff].into_iter().zip(POLICIES.iter().cycle().skip(at % 3)) {
                let mut bytes = object.clone();
                bytes[at] = value;
                refused += usize::from(!exercise_under(X86, &[*policy], &bytes));
            }
        }
        assert!(refused > 300, "{refused}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        exercise(&bytes);
    }

    #[test]
    fn arbitrary_sections_are_survived(fields in prop::collection::vec((0..20_u32, 0..32_u64, 0..600_u64, 0..600_u64, 0..8_u32, 0..8_u32), 1..8), tail in prop::collection::vec(0..64_u8, 0..500)) {
        let mut bytes = corpus()[0][..64].to_vec();
        bytes[40..48].copy_from_slice(&64_u64.to_le_bytes());
        bytes[60..64].copy_from_slice(&[fields.len() as u8, 0, 1, 0]);
        for (kind, flags, offset, size, link, info) in &fields {
            bytes.extend_from_slice(&0_u32.to_le_bytes());
            bytes.extend_from_slice(&kind.to_le_bytes());
            for word in [*flags, 0, *offset, *size] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            bytes.extend_from_slice(&link.to_le_bytes());
            bytes.extend_from_slice(&info.to_le_bytes());
            for word in [1_u64, 24] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes.extend_from_slice(&tail);
        bytes.push(0);
        exercise(&bytes);
    }

    #[test]
    fn random_flips_are_survived(which in 0..5_usize, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut bytes = corpus()[which].clone();
        for (at, value) in &flips {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        exercise(&bytes);
    }
}
