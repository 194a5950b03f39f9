//! The instructions of x86-64, and how a CPU says that it has them.
//!
//! Sources: Intel SDM, volume 2, CPUID; AMD APM, volume 3, appendix E.

use iced_x86::{Code, CpuidFeature, Decoder, DecoderOptions, Instruction};

use super::needs::Needs;

/// A feature beyond x86-64's baseline that a program may use.
struct Row {
    name: &'static str,
    feature: CpuidFeature,
    /// Leaf, subleaf, register and bit of CPUID.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only asked on x86-64"))]
    bit: (u32, u32, Register, u32),
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only asked on x86-64"))]
    registers: Registers,
}

#[derive(Clone, Copy)]
enum Register {
    A,
    B,
    C,
    D,
}

/// Registers that the system must save.
#[derive(Clone, Copy)]
enum Registers {
    Basic,
    Ymm,
    Zmm,
    Tiles,
}

macro_rules! rows {
    ($(($leaf:literal, $subleaf:literal) $register:ident { $($name:ident $bit:literal $registers:ident,)* })*) => {
        &[$($(Row {
            name: stringify!($name),
            feature: CpuidFeature::$name,
            bit: ($leaf, $subleaf, Register::$register, $bit),
            registers: Registers::$registers,
        },)*)*]
    };
}

/// What is not here is in every CPU that runs Linux (SSE2, CMOV), does nothing in others (`endbr64`, `prefetchw`), or
/// is not a program's to use.
static ROWS: &[Row] = rows! {
    (0x1, 0) C {
        SSE3 0 Basic, PCLMULQDQ 1 Basic, SSSE3 9 Basic, FMA 12 Ymm, CMPXCHG16B 13 Basic, SSE4_1 19 Basic,
        SSE4_2 20 Basic, MOVBE 22 Basic, POPCNT 23 Basic, AES 25 Basic, XSAVE 27 Basic, AVX 28 Ymm, F16C 29 Ymm,
        RDRAND 30 Basic,
    }
    (0x7, 0) B {
        FSGSBASE 0 Basic, BMI1 3 Basic, AVX2 5 Ymm, BMI2 8 Basic, RTM 11 Basic, AVX512F 16 Zmm, AVX512DQ 17 Zmm,
        RDSEED 18 Basic, ADX 19 Basic, AVX512_IFMA 21 Zmm, PCOMMIT 22 Basic, CLFLUSHOPT 23 Basic, CLWB 24 Basic,
        AVX512PF 26 Zmm, AVX512ER 27 Zmm, AVX512CD 28 Zmm, SHA 29 Basic, AVX512BW 30 Zmm, AVX512VL 31 Zmm,
    }
    (0x7, 0) C {
        AVX512_VBMI 1 Zmm, PKU 4 Basic, WAITPKG 5 Basic, AVX512_VBMI2 6 Zmm, GFNI 8 Basic, VAES 9 Ymm,
        VPCLMULQDQ 10 Ymm, AVX512_VNNI 11 Zmm, AVX512_BITALG 12 Zmm, AVX512_VPOPCNTDQ 14 Zmm, RDPID 22 Basic,
        KL 23 Basic, MOVDIRI 27 Basic, MOVDIR64B 28 Basic, ENQCMD 29 Basic,
    }
    (0x7, 0) D {
        AVX512_4VNNIW 2 Zmm, AVX512_4FMAPS 3 Zmm, UINTR 5 Basic, AVX512_VP2INTERSECT 8 Zmm, SERIALIZE 14 Basic,
        TSXLDTRK 16 Basic, AMX_BF16 22 Tiles, AVX512_FP16 23 Zmm, AMX_TILE 24 Tiles, AMX_INT8 25 Tiles,
    }
    (0x7, 1) A {
        SHA512 0 Ymm, SM3 1 Ymm, SM4 2 Ymm, RAO_INT 3 Basic, AVX_VNNI 4 Ymm, AVX512_BF16 5 Zmm, CMPCCXADD 7 Basic,
        AMX_FP16 21 Tiles, AVX_IFMA 23 Ymm,
    }
    (0x7, 1) D {
        AVX_VNNI_INT8 4 Ymm, AVX_NE_CONVERT 5 Ymm, AMX_COMPLEX 8 Tiles, AVX_VNNI_INT16 10 Ymm,
    }
    (0xd, 1) A { XSAVEOPT 0 Basic, XSAVEC 1 Basic, }
    (0x14, 0) B { PTWRITE 4 Basic, }
    (0x19, 0) B { AESKLE 0 Basic, WIDE_KL 2 Basic, }
    (0x8000_0001, 0) C {
        LZCNT 5 Basic, SSE4A 6 Basic, XOP 11 Ymm, LWP 15 Basic, FMA4 16 Ymm, TBM 21 Basic, MONITORX 29 Basic,
    }
    (0x8000_0001, 0) D { RDTSCP 27 Basic, D3NOWEXT 30 Basic, D3NOW 31 Basic, }
    (0x8000_0008, 0) B { CLZERO 0 Basic, RDPRU 4 Basic, }
};

/// No feature of [`ROWS`].
const BASELINE: u8 = u8::MAX;

/// The number in [`ROWS`] of each of the decoder's features.
static NUMBERS: [u8; 256] = {
    let mut numbers = [BASELINE; 256];
    let mut i = 0;
    while i < ROWS.len() {
        // Rows are fewer than features, of which there are fewer than 256.
        #[allow(clippy::indexing_slicing, reason = "checked when it is compiled")]
        {
            numbers[ROWS[i].feature as usize] = i as u8;
        }
        i += 1;
    }
    numbers
};

pub(super) fn name(number: u8) -> Option<&'static str> {
    ROWS.get(usize::from(number)).map(|row| row.name)
}

pub(super) fn number(name: &str) -> Option<u8> {
    ROWS.iter().position(|row| row.name == name).map(|at| at as u8)
}

/// Reads a function's instructions.
pub(super) fn read(code: &[u8], needs: &mut Needs) {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let offset = decoder.position() as u64;
        decoder.decode_out(&mut instruction);
        match instruction.code() {
            Code::INVALID => needs.undecoded = true,
            // Compilers write it as `rep bsf` for every CPU: both count the zeros of a number that is not 0.
            Code::Tzcnt_r16_rm16 | Code::Tzcnt_r32_rm32 | Code::Tzcnt_r64_rm64 => {}
            code => {
                for feature in code.cpuid_features() {
                    if let Some(number) = NUMBERS.get(*feature as usize).filter(|number| **number != BASELINE) {
                        needs.add(*number, offset);
                    }
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use host::find;

#[cfg(target_arch = "x86_64")]
mod host {
    #![allow(unsafe_code, reason = "asks the CPU")]

    use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    use super::{ROWS, Register, Registers};

    // A bit for each.
    const _: () = assert!(ROWS.len() <= 128);

    /// Returns the numbers of all features that this CPU has and whose registers the system saves, a bit for each.
    pub(crate) fn find() -> u128 {
        let saved = saved_registers();
        // In a virtual machine, each question takes a microsecond or more: rows of one leaf ask once.
        let (mut asked, mut answer) = ((0, 0), ask((0, 0)));
        let mut found = 0;
        for (number, row) in ROWS.iter().enumerate() {
            let (leaf, subleaf, register, bit) = row.bit;
            if asked != (leaf, subleaf) {
                asked = (leaf, subleaf);
                answer = ask(asked);
            }
            let value = match register {
                Register::A => answer.0,
                Register::B => answer.1,
                Register::C => answer.2,
                Register::D => answer.3,
            };
            let registers = match row.registers {
                Registers::Basic => 0,
                Registers::Ymm => 0b110,
                Registers::Zmm => 0b1110_0110,
                Registers::Tiles => 0b11 << 17,
            };
            if value >> bit & 1 == 1 && saved & registers == registers {
                found |= 1 << number;
            }
        }
        found
    }

    #[allow(unused_unsafe, reason = "CPUID is safe in newer versions of Rust")]
    fn ask((leaf, subleaf): (u32, u32)) -> (u32, u32, u32, u32) {
        // SAFETY: every x86-64 CPU has the instruction.
        let (most, answer) = unsafe { (__cpuid(leaf & 0x8000_0000).eax, __cpuid_count(leaf, subleaf)) };
        // Beyond the last leaf, some answer with the last's.
        if leaf > most { (0, 0, 0, 0) } else { (answer.eax, answer.ebx, answer.ecx, answer.edx) }
    }

    /// Returns the registers that the system saves (XCR0).
    fn saved_registers() -> u64 {
        const OSXSAVE: u32 = 1 << 27;
        if ask((1, 0)).2 & OSXSAVE == 0 {
            return 0;
        }
        // SAFETY: the system has enabled the instruction.
        unsafe { saved() }
    }

    #[target_feature(enable = "xsave")]
    unsafe fn saved() -> u64 {
        // SAFETY: register 0 is there wherever the instruction is.
        unsafe { _xgetbv(0) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::process::Command;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::elf::testing::run;

    fn features(code: &[u8]) -> (Vec<(&'static str, u64)>, bool) {
        let mut needs = Needs::default();
        read(code, &mut needs);
        let named = needs.features.iter().map(|(number, offset)| (name(*number).unwrap(), *offset)).collect();
        (named, needs.undecoded)
    }

    /// Bytes as llvm-mc 19 has them.
    #[test]
    fn instructions_need_what_the_manuals_say() {
        // rep bsf eax, ecx (tzcnt); endbr64; prefetchw [rax]; pause; mov eax, eax; cmove; addpd
        let baseline = b"\xf3\x0f\xbc\xc1\xf3\x0f\x1e\xfa\x0f\x0d\x08\xf3\x90\x89\xc0\x0f\x44\xc1\x66\x0f\x58\xc1";
        assert_eq!(features(baseline), (vec![], false));
        // ret; vpdpbusd zmm0, zmm1, zmm2
        let vnni = b"\xc3\x62\xf2\x75\x48\x50\xc2";
        assert_eq!(features(vnni), (vec![("AVX512_VNNI", 1)], false));
        // vpaddd ymm0, ymm1, ymm2; lzcnt eax, ecx; vpaddd
        let twice = b"\xc5\xf5\xfe\xc2\xf3\x0f\xbd\xc1\xc5\xf5\xfe\xc2";
        assert_eq!(features(twice), (vec![("AVX2", 0), ("LZCNT", 4)], false));
        // No instruction of 64-bit code, and one that is cut short.
        assert_eq!(features(b"\x06\xc3"), (vec![], true));
        assert_eq!(features(b"\xc5\xf5"), (vec![], true));
    }

    /// The standard library asks in its own way.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_cpu_has_what_the_standard_library_finds() {
        let found = host::find();
        let has = |name: &str| found >> number(name).unwrap() & 1 == 1;
        macro_rules! compare {
            ($($ours:literal $theirs:tt,)*) => {
                $(assert_eq!(has($ours), std::is_x86_feature_detected!($theirs), "{}", $ours);)*
            };
        }
        compare! {
            "SSE3" "sse3", "SSSE3" "ssse3", "SSE4_1" "sse4.1", "SSE4_2" "sse4.2", "SSE4A" "sse4a", "POPCNT" "popcnt",
            "AES" "aes", "PCLMULQDQ" "pclmulqdq", "MOVBE" "movbe", "RDRAND" "rdrand", "RDSEED" "rdseed", "ADX" "adx",
            "AVX" "avx", "AVX2" "avx2", "FMA" "fma", "F16C" "f16c", "BMI1" "bmi1", "BMI2" "bmi2", "LZCNT" "lzcnt",
            "SHA" "sha", "GFNI" "gfni", "VAES" "vaes", "VPCLMULQDQ" "vpclmulqdq", "TBM" "tbm", "RTM" "rtm",
            "CMPXCHG16B" "cmpxchg16b", "XSAVE" "xsave", "XSAVEC" "xsavec", "XSAVEOPT" "xsaveopt",
            "AVX512F" "avx512f", "AVX512CD" "avx512cd", "AVX512BW" "avx512bw", "AVX512DQ" "avx512dq",
            "AVX512VL" "avx512vl", "AVX512_IFMA" "avx512ifma", "AVX512_VBMI" "avx512vbmi",
            "AVX512_VBMI2" "avx512vbmi2", "AVX512_VNNI" "avx512vnni", "AVX512_BITALG" "avx512bitalg",
            "AVX512_VPOPCNTDQ" "avx512vpopcntdq",
        }
        // x86-64-v1 with SSE3 is what every test machine has; a table that finds nothing would pass without this.
        assert!(has("SSE3"));
    }

    /// GNU as's name for a feature, where it is not the same in small letters.
    const NAMES_OF_AS: [(&str, &str); 9] = [
        ("SSE4_1", "sse4.1"),
        ("SSE4_2", "sse4.2"),
        ("CMPXCHG16B", "cx16"),
        ("PCLMULQDQ", "pclmul"),
        ("RDRAND", "rdrnd"),
        ("MONITORX", "mwaitx"),
        ("D3NOW", "3dnow"),
        ("D3NOWEXT", "3dnowa"),
        ("BMI1", "bmi"),
    ];
    /// Instructions that the kernel runs, that do nothing where they are not known, or that only VIA's CPUs have; `tzcnt`;
    /// and one of SSE3 that GNU as has a name of its own for.
    const NOT_COMPARED: &[&str] = &[
        "wrss",
        "wruss",
        "rdssp",
        "incssp",
        "saveprevssp",
        "rstorssp",
        "setssbsy",
        "clrssbsy",
        "vm",
        "inv",
        "wbnoinvd",
        "prefetch",
        "cldemote",
        "clflush",
        "bnd",
        "sys",
        "skinit",
        "clgi",
        "stgi",
        "getsec",
        "pconfig",
        "xrstors",
        "xsaves",
        "xsha",
        "xstore",
        "xcrypt",
        "montmul",
        "tzcnt",
        "fisttp",
    ];

    /// Assembles lines for a CPU with features; returns which are not supported, and which are not understood.
    fn assemble(features: &[&str], lines: &[&String]) -> [BTreeSet<usize>; 2] {
        let folder = tempfile::tempdir().unwrap();
        let source: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(folder.path().join("a.s"), source).unwrap();
        let name = |name: &str| NAMES_OF_AS.iter().find(|known| known.0 == name).map(|known| known.1.to_owned());
        let features = features.iter().map(|feature| name(feature).unwrap_or_else(|| feature.to_lowercase()));
        let march: Vec<String> = std::iter::once("-march=generic64".to_owned()).chain(features).collect();
        let arguments = ["--64", &march.join("+"), "a.s", "-o", "/dev/null"];
        let tool = if cfg!(target_arch = "x86_64") { "as" } else { "x86_64-linux-gnu-as" };
        let output = Command::new(tool).args(arguments).current_dir(folder.path()).output().expect("binutils");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut refused = [BTreeSet::new(), BTreeSet::new()];
        for line in told.lines() {
            let Some((number, problem)) = line.strip_prefix("a.s:").and_then(|rest| rest.split_once(": Error: "))
            else {
                // An extension that this version of binutils does not know: nothing is compared.
                assert!(!line.contains("Fatal") || line.contains("invalid -march"), "{told}");
                if line.contains("invalid -march") {
                    return [BTreeSet::new(), (0..lines.len()).collect()];
                }
                continue;
            };
            refused[usize::from(!problem.contains("not supported"))].insert(number.parse::<usize>().unwrap() - 1);
        }
        refused
    }

    /// Random instructions are disassembled by LLVM, and assembled by GNU as for a CPU with what they need, and for one
    /// with nothing. (LLVM's assembler takes every instruction for every CPU.)
    #[test]
    fn the_assembler_agrees() {
        let mut random = StdRng::seed_from_u64(7);
        let starts: [&[u8]; 12] = [
            &[],
            &[0x0f],
            &[0x66, 0x0f],
            &[0xf3, 0x0f],
            &[0xf2, 0x0f],
            &[0x0f, 0x38],
            &[0x66, 0x0f, 0x38],
            &[0xf2, 0x0f, 0x38],
            &[0x66, 0x0f, 0x3a],
            // VEX and EVEX.
            &[0xc4],
            &[0xc5],
            &[0x62],
        ];
        let mut source = String::new();
        for _ in 0..24_000 {
            let mut code = starts[random.random_range(0..starts.len())].to_vec();
            code.extend((0..12).map(|_| random.random::<u8>()));
            if code[0] == 0x62 {
                // With its fixed bits, and the maps that there are.
                code[1] = code[1] & 0xf0 | [1, 2, 3, 5, 6][random.random_range(0..5)];
                code[2] |= 4;
            }
            let instruction = Decoder::new(64, &code, DecoderOptions::NONE).decode();
            if instruction.code() != Code::INVALID {
                let bytes = code[..instruction.len()].iter().map(|byte| format!("0x{byte:02x} "));
                source.extend(bytes.chain(["\n".to_owned()]));
            }
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), source).unwrap();
        let arguments = ["-triple=x86_64", "-disassemble", "-show-encoding", "a.txt"];
        let output = run(folder.path(), "llvm-mc-22", &arguments).stdout;
        let mut groups = BTreeMap::<Vec<&'static str>, BTreeSet<String>>::new();
        for line in String::from_utf8_lossy(&output).lines() {
            let Some((text, bytes)) = line.split_once("# encoding: [") else { continue };
            let byte = |text: &str| u8::from_str_radix(text.strip_prefix("0x")?, 16).ok();
            // Where a fixup is, it has no bytes.
            let Some(code) = bytes.trim_end_matches(']').split(',').map(byte).collect::<Option<Vec<u8>>>() else {
                continue;
            };
            let (found, undecoded) = features(&code);
            let text = text.trim().to_owned();
            if !undecoded && !NOT_COMPARED.iter().any(|start| text.starts_with(start)) {
                groups.entry(found.into_iter().map(|(name, _)| name).collect()).or_default().insert(text);
            }
        }
        let mut compared = 0;
        for (features, lines) in &groups {
            let lines: Vec<&String> = lines.iter().collect();
            let [unsupported, strange] = assemble(features, &lines);
            let told: Vec<_> = unsupported.iter().map(|at| lines[*at]).collect();
            assert!(told.is_empty(), "{features:?} is not enough for {told:?}");
            if features.is_empty() {
                continue;
            }
            let [unsupported, _] = assemble(&[], &lines);
            let needless = (0..lines.len()).filter(|at| !unsupported.contains(at) && !strange.contains(at));
            // One text for an encoding of SSE2 and one of SSE4.1.
            let needless: Vec<_> = needless.map(|at| lines[at]).filter(|text| !text.starts_with("pextrw")).collect();
            assert!(needless.is_empty(), "{features:?} is not needed for {needless:?}");
            compared += unsupported.len();
        }
        assert!(groups.len() > 40 && compared > 900, "{} {compared}", groups.len());
    }
}
