//! The tables compared with the `object` crate's constants and with LLVM.

mod assembler;
mod field;
mod linkers;
mod wild;

use object::elf;

use super::*;
use crate::elf::elf_abi::{LE, SHT_RELA};
use crate::elf::testing::{asm, asm_arm, view};

/// Compares names and numbers with the `object` crate's constants.
macro_rules! same {
    ($machine:expr, $($name:ident)*) => {{
        let table = Table::of($machine);
        $(
            let kind = table.get(elf::$name.0).unwrap_or_else(|| panic!(concat!(stringify!($name), " is missing"))).1;
            // LLVM's names of the 64-bit dynamic thread-local relocations of AArch64 contain the size.
            assert_eq!(kind.name.trim_end_matches("64"), stringify!($name).trim_end_matches("64"));
            if !stringify!($name).contains("AARCH64_TLS_") {
                assert_eq!(kind.name, stringify!($name));
            }
        )*
        [$(elf::$name.0),*].len()
    }};
}

#[test]
fn names_and_numbers_are_those_of_the_abi() {
    let count = same!(EM_X86_64,
        R_X86_64_NONE R_X86_64_64 R_X86_64_PC32 R_X86_64_GOT32 R_X86_64_PLT32 R_X86_64_COPY R_X86_64_GLOB_DAT
        R_X86_64_JUMP_SLOT R_X86_64_RELATIVE R_X86_64_GOTPCREL R_X86_64_32 R_X86_64_32S R_X86_64_16 R_X86_64_PC16
        R_X86_64_8 R_X86_64_PC8 R_X86_64_DTPMOD64 R_X86_64_DTPOFF64 R_X86_64_TPOFF64 R_X86_64_TLSGD R_X86_64_TLSLD
        R_X86_64_DTPOFF32 R_X86_64_GOTTPOFF R_X86_64_TPOFF32 R_X86_64_PC64 R_X86_64_GOTOFF64 R_X86_64_GOTPC32
        R_X86_64_GOT64 R_X86_64_GOTPCREL64 R_X86_64_GOTPC64 R_X86_64_GOTPLT64 R_X86_64_PLTOFF64 R_X86_64_SIZE32
        R_X86_64_SIZE64 R_X86_64_GOTPC32_TLSDESC R_X86_64_TLSDESC_CALL R_X86_64_TLSDESC R_X86_64_IRELATIVE
        R_X86_64_RELATIVE64 R_X86_64_GOTPCRELX R_X86_64_REX_GOTPCRELX R_X86_64_CODE_4_GOTPCRELX
        R_X86_64_CODE_4_GOTTPOFF R_X86_64_CODE_4_GOTPC32_TLSDESC R_X86_64_CODE_5_GOTPCRELX R_X86_64_CODE_5_GOTTPOFF
        R_X86_64_CODE_5_GOTPC32_TLSDESC R_X86_64_CODE_6_GOTPCRELX R_X86_64_CODE_6_GOTTPOFF
        R_X86_64_CODE_6_GOTPC32_TLSDESC
    );
    // The two kinds withdrawn with MPX are in the ABI's list but not among the constants.
    assert_eq!(count, x86_64::KINDS.len() - [39, 40].len());
    let count = same!(EM_AARCH64,
        R_AARCH64_NONE R_AARCH64_ABS64 R_AARCH64_ABS32 R_AARCH64_ABS16 R_AARCH64_PREL64 R_AARCH64_PREL32
        R_AARCH64_PREL16 R_AARCH64_MOVW_UABS_G0 R_AARCH64_MOVW_UABS_G0_NC R_AARCH64_MOVW_UABS_G1
        R_AARCH64_MOVW_UABS_G1_NC R_AARCH64_MOVW_UABS_G2 R_AARCH64_MOVW_UABS_G2_NC R_AARCH64_MOVW_UABS_G3
        R_AARCH64_MOVW_SABS_G0 R_AARCH64_MOVW_SABS_G1 R_AARCH64_MOVW_SABS_G2 R_AARCH64_LD_PREL_LO19
        R_AARCH64_ADR_PREL_LO21 R_AARCH64_ADR_PREL_PG_HI21 R_AARCH64_ADR_PREL_PG_HI21_NC R_AARCH64_ADD_ABS_LO12_NC
        R_AARCH64_LDST8_ABS_LO12_NC R_AARCH64_TSTBR14 R_AARCH64_CONDBR19 R_AARCH64_JUMP26 R_AARCH64_CALL26
        R_AARCH64_LDST16_ABS_LO12_NC R_AARCH64_LDST32_ABS_LO12_NC R_AARCH64_LDST64_ABS_LO12_NC
        R_AARCH64_MOVW_PREL_G0 R_AARCH64_MOVW_PREL_G0_NC R_AARCH64_MOVW_PREL_G1 R_AARCH64_MOVW_PREL_G1_NC
        R_AARCH64_MOVW_PREL_G2 R_AARCH64_MOVW_PREL_G2_NC R_AARCH64_MOVW_PREL_G3 R_AARCH64_LDST128_ABS_LO12_NC
        R_AARCH64_MOVW_GOTOFF_G0 R_AARCH64_MOVW_GOTOFF_G0_NC R_AARCH64_MOVW_GOTOFF_G1 R_AARCH64_MOVW_GOTOFF_G1_NC
        R_AARCH64_MOVW_GOTOFF_G2 R_AARCH64_MOVW_GOTOFF_G2_NC R_AARCH64_MOVW_GOTOFF_G3 R_AARCH64_GOTREL64
        R_AARCH64_GOTREL32 R_AARCH64_GOT_LD_PREL19 R_AARCH64_LD64_GOTOFF_LO15 R_AARCH64_ADR_GOT_PAGE
        R_AARCH64_LD64_GOT_LO12_NC R_AARCH64_LD64_GOTPAGE_LO15 R_AARCH64_PLT32 R_AARCH64_GOTPCREL32
        R_AARCH64_TLSGD_ADR_PREL21 R_AARCH64_TLSGD_ADR_PAGE21 R_AARCH64_TLSGD_ADD_LO12_NC R_AARCH64_TLSGD_MOVW_G1
        R_AARCH64_TLSGD_MOVW_G0_NC R_AARCH64_TLSLD_ADR_PREL21 R_AARCH64_TLSLD_ADR_PAGE21 R_AARCH64_TLSLD_ADD_LO12_NC
        R_AARCH64_TLSLD_MOVW_G1 R_AARCH64_TLSLD_MOVW_G0_NC R_AARCH64_TLSLD_LD_PREL19 R_AARCH64_TLSLD_MOVW_DTPREL_G2
        R_AARCH64_TLSLD_MOVW_DTPREL_G1 R_AARCH64_TLSLD_MOVW_DTPREL_G1_NC R_AARCH64_TLSLD_MOVW_DTPREL_G0
        R_AARCH64_TLSLD_MOVW_DTPREL_G0_NC R_AARCH64_TLSLD_ADD_DTPREL_HI12 R_AARCH64_TLSLD_ADD_DTPREL_LO12
        R_AARCH64_TLSLD_ADD_DTPREL_LO12_NC R_AARCH64_TLSLD_LDST8_DTPREL_LO12 R_AARCH64_TLSLD_LDST8_DTPREL_LO12_NC
        R_AARCH64_TLSLD_LDST16_DTPREL_LO12 R_AARCH64_TLSLD_LDST16_DTPREL_LO12_NC R_AARCH64_TLSLD_LDST32_DTPREL_LO12
        R_AARCH64_TLSLD_LDST32_DTPREL_LO12_NC R_AARCH64_TLSLD_LDST64_DTPREL_LO12
        R_AARCH64_TLSLD_LDST64_DTPREL_LO12_NC R_AARCH64_TLSIE_MOVW_GOTTPREL_G1 R_AARCH64_TLSIE_MOVW_GOTTPREL_G0_NC
        R_AARCH64_TLSIE_ADR_GOTTPREL_PAGE21 R_AARCH64_TLSIE_LD64_GOTTPREL_LO12_NC R_AARCH64_TLSIE_LD_GOTTPREL_PREL19
        R_AARCH64_TLSLE_MOVW_TPREL_G2 R_AARCH64_TLSLE_MOVW_TPREL_G1 R_AARCH64_TLSLE_MOVW_TPREL_G1_NC
        R_AARCH64_TLSLE_MOVW_TPREL_G0 R_AARCH64_TLSLE_MOVW_TPREL_G0_NC R_AARCH64_TLSLE_ADD_TPREL_HI12
        R_AARCH64_TLSLE_ADD_TPREL_LO12 R_AARCH64_TLSLE_ADD_TPREL_LO12_NC R_AARCH64_TLSLE_LDST8_TPREL_LO12
        R_AARCH64_TLSLE_LDST8_TPREL_LO12_NC R_AARCH64_TLSLE_LDST16_TPREL_LO12 R_AARCH64_TLSLE_LDST16_TPREL_LO12_NC
        R_AARCH64_TLSLE_LDST32_TPREL_LO12 R_AARCH64_TLSLE_LDST32_TPREL_LO12_NC R_AARCH64_TLSLE_LDST64_TPREL_LO12
        R_AARCH64_TLSLE_LDST64_TPREL_LO12_NC R_AARCH64_TLSDESC_LD_PREL19 R_AARCH64_TLSDESC_ADR_PREL21
        R_AARCH64_TLSDESC_ADR_PAGE21 R_AARCH64_TLSDESC_LD64_LO12 R_AARCH64_TLSDESC_ADD_LO12 R_AARCH64_TLSDESC_OFF_G1
        R_AARCH64_TLSDESC_OFF_G0_NC R_AARCH64_TLSDESC_LDR R_AARCH64_TLSDESC_ADD R_AARCH64_TLSDESC_CALL
        R_AARCH64_TLSLE_LDST128_TPREL_LO12 R_AARCH64_TLSLE_LDST128_TPREL_LO12_NC R_AARCH64_TLSLD_LDST128_DTPREL_LO12
        R_AARCH64_TLSLD_LDST128_DTPREL_LO12_NC R_AARCH64_COPY R_AARCH64_GLOB_DAT R_AARCH64_JUMP_SLOT
        R_AARCH64_RELATIVE R_AARCH64_TLS_DTPMOD R_AARCH64_TLS_DTPREL R_AARCH64_TLS_TPREL R_AARCH64_TLSDESC
        R_AARCH64_IRELATIVE
    );
    // The table also has the withdrawn second NONE, and kinds newer than the constants.
    let newer = |kind: &&Kind| kind.number == 256 || kind.name.contains("_AUTH_") || matches!(kind.number, 316 | 317);
    assert_eq!(count, aarch64::KINDS.len() - aarch64::KINDS.iter().filter(newer).count());
}

#[test]
fn lookup_finds_every_kind_and_nothing_else() {
    for machine in [EM_X86_64, EM_AARCH64] {
        let table = Table::of(machine);
        for (position, kind) in table.kinds().iter().enumerate() {
            assert_eq!(table.get(kind.number), Some((position, kind)));
        }
        let known: Vec<u32> = table.kinds().iter().map(|kind| kind.number).collect();
        for number in (0..5000).chain([u32::MAX]) {
            assert_eq!(table.get(number).is_some(), known.contains(&number), "{number}");
        }
    }
    assert!(Table::of(3).get(1).is_none());
}

#[test]
fn what_cannot_be_linked_rightly_is_in_no_version() {
    for machine in [EM_X86_64, EM_AARCH64] {
        for kind in Table::of(machine).kinds() {
            assert!(!(kind.tls || kind.indirect) || kind.since.is_none(), "{}", kind.name);
            assert!(kind.since.is_none_or(|since| [15, 16, 17, 19, 20].contains(&since)), "{}", kind.name);
            assert_eq!(
                kind.tls,
                kind.name.contains("TLS") || kind.name.contains("TPOFF") || kind.name.contains("DTPMOD"),
                "{}",
                kind.name
            );
        }
    }
}

/// Gives every kind to LLVM's own tool, one object each.
#[test]
fn llvm_links_what_the_table_says() {
    let source = |base: &str| {
        format!(".text\n.globl main\nmain: .quad 0\n.quad 0\n.reloc main+8, {base}, foo\n.globl foo\nfoo: .quad 0\n")
    };
    let dir = tempfile::tempdir().unwrap();
    for (machine, object) in
        [(EM_X86_64, asm(&source("R_X86_64_64"))), (EM_AARCH64, asm_arm(&source("R_AARCH64_ABS64")))]
    {
        let (index, header) = view(&object).sections().find(|(_, header)| header.kind == SHT_RELA).unwrap();
        let info = view(&object).relocations(index, &header).unwrap().unwrap()[0].r_info.get(LE);
        for kind in Table::of(machine).kinds().iter().filter(|kind| !kind.tls) {
            let mut bytes = object.clone();
            let patched = info & !0xffff_ffff | u64::from(kind.number);
            bytes[header.offset as usize + 8..][..8].copy_from_slice(&patched.to_le_bytes());
            let path = dir.path().join("object.o");
            std::fs::write(&path, bytes).unwrap();
            // ci/llvm brings those of others.
            for llvm in 17..=23 {
                let tool = format!("llvm-jitlink-{llvm}");
                // Asked of PATH: under qemu-user, a program that does not exist is one that ends with 127.
                let folders = std::env::var_os("PATH").unwrap();
                if !std::env::split_paths(&folders).any(|folder| folder.join(&tool).exists()) {
                    assert!(![19, 22].contains(&llvm), "no '{tool}' in PATH; install llvm-{llvm}");
                    continue;
                }
                let output = std::process::Command::new(&tool).arg("-noexec").arg(&path).output().unwrap();
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() || !text.is_empty(), "{tool}: {}", output.status);
                let unsupported = text.contains("nsupported");
                assert_eq!(kind.linkable(llvm), !unsupported, "{} on LLVM {llvm}: {text}", kind.name);
            }
        }
    }
}
