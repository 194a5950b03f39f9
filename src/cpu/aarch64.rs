//! What a word of AArch64 code needs beyond Armv8.0-A with floating point and Advanced SIMD.
//!
//! The rows are those of LLVM 22's decoder, merged as far as no row takes a word of another extension or of the
//! baseline; `the_disassembler_agrees` compares them with it. A row may take words that are no instruction.

use super::needs::Needs;

macro_rules! features {
    ($($name:ident $(= $std:tt)? $(@ $bit:literal)?)*) => {
        /// An extension by Arm's name (FEAT_…), as index into [`FEATURES`]. It stands for those that it requires, too:
        /// SVE2 for SVE and SVE2. PAUTH is pointer authentication outside of the hints. SME and SME2 are also what
        /// optional parts of them add.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "Arm's names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        enum Feature { $($name),* }

        use Feature::*;

        /// The names, for texts and files: only ever append.
        static FEATURES: &[&str] = &[$(stringify!($name)),*];

        #[cfg(test)]
        const ALL: &[Feature] = &[$($name),*];

        /// Returns the numbers of all features that this CPU has, a bit for each.
        #[cfg(target_arch = "aarch64")]
        pub(super) fn find() -> u128 {
            let mut found = 0;
            $(found |= u128::from(features!(@ask $($std)? $(@ $bit)?)) << $name as u32;)*
            found
        }
    };
    // Those that the standard library cannot be asked for have a bit of AT_HWCAP2 (Linux, asm/hwcap.h).
    (@ask @ $bit:literal) => { rustix::param::linux_hwcap().1 >> $bit & 1 == 1 };
    (@ask $std:tt) => { std::arch::is_aarch64_feature_detected!($std) };
}

features! {
    CRC32 = "crc"
    LSE = "lse"
    RDM = "rdm"
    FP16 = "fp16"
    DOTPROD = "dotprod"
    AES = "aes"
    SHA2 = "sha2"
    SHA3 = "sha3"
    SM4 = "sm4"
    FCMA = "fcma"
    JSCVT = "jsconv"
    RCPC = "rcpc"
    RCPC2 = "rcpc2"
    RCPC3 @ 46
    FHM = "fhm"
    FLAGM = "flagm"
    FLAGM2 @ 7
    FRINTTS = "frintts"
    BF16 = "bf16"
    I8MM = "i8mm"
    F32MM = "f32mm"
    F64MM = "f64mm"
    PAUTH = "paca"
    MTE = "mte"
    SB = "sb"
    RAND = "rand"
    MOPS @ 43
    HBC @ 44
    CSSC @ 34
    SVE = "sve"
    SVE2 = "sve2"
    SVE2_AES = "sve2-aes"
    SVE2_BITPERM = "sve2-bitperm"
    SVE2_SHA3 = "sve2-sha3"
    SVE2_SM4 = "sve2-sm4"
    SME @ 23
    SME2 @ 37
}

// A bit for each.
const _: () = assert!(FEATURES.len() <= 128);

pub(super) fn name(number: u8) -> Option<&'static str> {
    FEATURES.get(usize::from(number)).copied()
}

pub(super) fn number(name: &str) -> Option<u8> {
    FEATURES.iter().position(|known| *known == name).map(|at| at as u8)
}

/// Reads a function's instructions.
pub(super) fn read(code: &[u8], needs: &mut Needs) {
    let (words, rest) = code.as_chunks();
    needs.undecoded |= !rest.is_empty();
    for (offset, word) in (0..).step_by(4).zip(words) {
        match self::needs(u32::from_le_bytes(*word)) {
            Some(features) => features.iter().for_each(|feature| needs.add(*feature as u8, offset)),
            None => needs.undecoded = true,
        }
    }
}

/// Returns what a word needs: nothing if it is of the baseline, as hints are, or no instruction of a space that the
/// baseline shares. None is an extension that has no name here, or no instruction of another space, such as zero.
/// What both SVE and SME bring needs SVE.
fn needs(word: u32) -> Option<&'static [Feature]> {
    let bucket = (word >> BUCKET_SHIFT) as usize;
    let rows = &INDEX.1[INDEX.0[bucket].into()..INDEX.0[bucket + 1].into()];
    match rows.iter().map(|&row| &ROWS[usize::from(row)]).find(|row| row.takes(word)) {
        Some(row) => (!row.needs.is_empty()).then_some(row.needs),
        // Bits 28:27: none of the baseline is below SVE and SME.
        None => (word >> 27 & 3 != 0).then_some(&[]),
    }
}

/// Some encodings, and what they need.
struct Row {
    mask: u32,
    value: u32,
    needs: &'static [Feature],
}

impl Row {
    const fn takes(&self, word: u32) -> bool {
        word & self.mask == self.value
    }
}

/// Makes a row from bits 31 to 0, `.` for any.
const fn row(bits: &str, needs: &'static [Feature]) -> Row {
    let (mut mask, mut value, mut at) = (0, 0, 0);
    while at < bits.len() {
        let bit = bits.as_bytes()[at];
        if bit != b' ' {
            mask = mask << 1 | (bit != b'.') as u32;
            value = value << 1 | (bit == b'1') as u32;
        }
        at += 1;
    }
    Row { mask, value, needs }
}

/// A word is looked up by bits 31:21: at most 12 rows can take it then, mostly none.
const BUCKET_SHIFT: u32 = 21;
const BUCKETS: usize = 1 << (32 - BUCKET_SHIFT);

/// Where the rows of each bucket begin, and the rows of all buckets.
static INDEX: ([u16; BUCKETS + 1], [u8; listed(&mut [0; BUCKETS + 1])]) = {
    assert!(ROWS.len() <= 256);
    let (mut begins, mut rows) = ([0; BUCKETS + 1], [0; listed(&mut [0; BUCKETS + 1])]);
    listed(&mut begins);
    let mut bucket = 0;
    while bucket < BUCKETS {
        begins[bucket + 1] += begins[bucket];
        bucket += 1;
    }
    // From the last row to the first, and so each bucket from its end.
    let mut row = ROWS.len();
    while row > 0 {
        row -= 1;
        let (value, any) = buckets(&ROWS[row]);
        let mut bits = any;
        loop {
            begins[value | bits] -= 1;
            rows[begins[value | bits] as usize] = row as u8;
            if bits == 0 {
                break;
            }
            bits = (bits - 1) & any;
        }
    }
    (begins, rows)
};

/// Counts the rows of each bucket, and returns the sum.
const fn listed(counts: &mut [u16; BUCKETS + 1]) -> usize {
    let (mut row, mut sum) = (0, 0);
    while row < ROWS.len() {
        let (value, any) = buckets(&ROWS[row]);
        let mut bits = any;
        loop {
            counts[value | bits] += 1;
            sum += 1;
            if bits == 0 {
                break;
            }
            bits = (bits - 1) & any;
        }
        row += 1;
    }
    sum
}

/// Returns the lowest bucket that a row is in, and the bits that are free in it.
const fn buckets(row: &Row) -> (usize, usize) {
    ((row.value >> BUCKET_SHIFT) as usize, (!row.mask >> BUCKET_SHIFT) as usize)
}

/// An extension that has no name here, such as SVE2.1 or FP8.
const UNNAMED: &[Feature] = &[];

/// The first that takes a word says what it needs.
const ROWS: &[Row] = &[
    // SME: bits 28:25 are 0000 and bit 31 is set.
    row("1000000. 1.0..... ........ ....0...", &[SME]), // bfmopa, bfmops, fmopa, fmops
    row("10000001 101..... ........ ....00..", &[SME]), // fmopa, fmops
    row("1010000. 1....... ........ ....0...", &[SME]), // smopa, smops, sumopa, sumops, umopa, umops, usmopa, usmops
    row("11000000 ..0.000. ........ ...0....", &[SME]), // addha, addva, mova
    row("11000000 ..00001. ......0. ........", &[SME]), // mova
    row("11000000 00001000 00000000 ........", &[SME]), // zero
    row("11100000 ........ ........ ...0....", &[SME]), // ld1b, ld1d, ld1h, ld1w, st1b, st1d, st1h, st1w
    row("11100001 ........ 0....... ...0....", &[SME]), // ld1q, ldr, st1q, str
    row("11100001 11...... 1....... ...0....", &[SME]), // ld1q, st1q
    row("10100000 0....... ........ ........", UNNAMED), // ld1*, ldnt1*, st1*, stnt1* of several vectors: SVE2.1 or SME2
    row("1..0000. ........ ........ ........", &[SME2]), // all the rest: SME2 and what builds on it
    // SVE: bits 28:25 are 0010.
    row("01100100 .11..... 0100.0.. ........", &[SVE, BF16]), // bfdot, bfmlalb
    row("01100100 .11..... 100000.. ........", &[SVE, BF16]), // bfdot, bfmlalb
    row("01100100 011..... 111001.. ........", &[SVE, BF16]), // bfmmla
    row("0110010. 10001010 101..... ........", &[SVE, BF16]), // bfcvt, bfcvtnt
    row("01100100 111..... 0100.1.. ........", &[SVE, BF16]), // bfmlalt
    row("01100100 111..... 100001.. ........", &[SVE, BF16]), // bfmlalt
    row("01100100 101..... 111001.. ........", &[SVE, F32MM]), // fmmla
    row("00000101 101..... 000..... ........", &[SVE, F64MM]), // trn1, trn2, uzp1, uzp2, zip1, zip2
    row("01100100 111..... 111001.. ........", &[SVE, F64MM]), // fmmla
    row("1010010. .01..... 00...... ........", &[SVE, F64MM]), // ld1rob, ld1rod, ld1roh, ld1row
    row("01000100 100..... 011110.. ........", &[SVE, I8MM]), // usdot
    row("01000100 101..... 00011... ........", &[SVE, I8MM]), // sudot, usdot
    row("01000101 ..0..... 100110.. ........", &[SVE, I8MM]), // smmla, ummla, usmmla
    row("01000101 000..... 01101... ........", &[SVE2_AES]),  // pmullb, pmullt
    row("01000101 001000.0 11100... ........", &[SVE2_AES]),  // aesd, aese, aesimc, aesmc
    row("01000101 ..0..... 1011.... ........", &[SVE2_BITPERM]), // bdep, bext, bgrp
    row("01000101 001..... 111101.. ........", &[SVE2_SHA3]), // rax1
    row("01000101 001..... 111100.. ........", &[SVE2_SM4]),  // sm4ekey
    row("01000101 00100011 111000.. ........", &[SVE2_SM4]),  // sm4e
    row("00000100 ..00011. 100..... ........", &[SVE2]),      // sqshl, uqshl
    row("00000100 ..0011.. 100..... ........", &[SVE2]),      // sqshlu, srshr, urshr
    row("00000100 ..1..... 001101.. ........", &[SVE2]),      // xar
    row("00000100 ..1..... 00111... ........", &[SVE2]),      // bcax, bsl, bsl1n, bsl2n, eor3, nbsl
    row("00000100 ..1..... 0110.... ........", &[SVE2]),      // mul, pmul, smulh, umulh
    row("00000100 ..1..... 01110... ........", &[SVE2]),      // sqdmulh, sqrdmulh
    row("00000101 ..1..... 00101... ........", &[SVE2]),      // tbl, tbx
    row("00000101 ..101101 100..... ........", &[SVE2]),      // splice
    row("00000101 011..... 000..... ........", &[SVE2]),      // ext
    row("00100101 ..1..... 000..0.. ........", &[SVE2]),      // whilege, whilegt, whilehi, whilehs
    row("00100101 ..1..... 001100.. ........", &[SVE2]),      // whilerw, whilewr
    row("01000100 ........ 00001... ........", &[SVE2]),      // mla, mls, sqdmlalbt, sqdmlslbt
    row("01000100 ........ 00.1.... ........", &[SVE2]),      // cdot, sqdmlslb, sqdmlslt, sqrdcmlah, sqrdmlah, sqrdmlsh
    row("01000100 ..0..... 001..... ........", &[SVE2]),      // cmla, sqrdcmlah
    row("01000100 ..0..... 01...... ........", &[SVE2]),      // smlal*, smlsl*, sqdml*, sqrdm*, umlal*, umlsl*
    row("0100010. ........ 100..... ........", &[SVE2]),      // eo*, match, nmatch, saddlbt, sh*, sm*, sq*, sr*, ss*, …
    row("01000100 ..00.000 101..... ........", &[SVE2]),      // sqabs, urecpe
    row("01000100 ..0..001 101..... ........", &[SVE2]),      // addp, sqneg, ursqrte
    row("01000100 ..0.01.. 101..... ........", &[SVE2]),      // sadalp, smaxp, sminp, uadalp, umaxp, uminp
    row("01000100 ..1..... ..1..... ........", &[SVE2]),      // cmla, mul, smls*, sqdm*, sqrd*, umls*
    row("0100010. .11..... 01...... ........", &[SVE2]), // add*, cdot, cmla, rad*, rsu*, sqrdcmlah, sqx*, sub*, uqx*
    row("0100010. 1.1..... .1...... ........", &[SVE2]), // ad*, cdot, cmla, histcnt, mul, ra*, rs*, sm*, sq*, su*, …
    row("01000101 ..0..... ........ ........", &[SVE2]), // ad*, cadd, eo*, pm*, sa*, sb*, sli, sm*, sq*, sr*, ss*, …
    row("01000101 0.1..... 00...... ........", &[SVE2]), // rshrn*, shrnb, shrnt, sqrsh*, sqshr*, uqrsh*, uqshr*
    row("01000101 001..000 010..... ........", &[SVE2]), // sqxtnb, sqxtnt, sqxtunb, sqxtunt, uqxtnb, uqxtnt
    row("01000101 001..... 101000.. ........", &[SVE2]), // histseg
    row("01100100 ..0010.. 101..... ........", &[SVE2]), // fcvtlt, fcvtnt, fcvtxnt
    row("01100100 ..010... 100..... ........", &[SVE2]), // faddp, fmaxnmp, fmaxp, fminnmp, fminp
    row("01100100 101..... 01.0.... ........", &[SVE2]), // fmlalb, fmlalt, fmlslb, fmlslt
    row("01100100 101..... 10.00... ........", &[SVE2]), // fmlalb, fmlalt, fmlslb, fmlslt
    row("01100101 000.1..0 101..... ........", &[SVE2]), // fcvtx, flogb
    row("1000010. .00..... 10...... ........", &[SVE2]), // ldnt1b, ldnt1h, ldnt1sb, ldnt1sh, ldnt1w
    row("1100010. .00..... 1.0..... ........", &[SVE2]), // ldnt1b, ldnt1d, ldnt1h, ldnt1sb, ldnt1sh, ldnt1sw, ldnt1w
    row("1110010. ..0..... 001..... ........", &[SVE2]), // stnt1b, stnt1d, stnt1h, stnt1w
    row("00000100 ..0..0.. 00...... ........", &[SVE]),  // add, an*, bic, eo*, movprfx, mul, or*, saddv, sm*, su*, …
    row(".0.0010. .0...... 000..... ........", &[SVE]),  // add, and, bic, cm*, eor, ext, ld*, mul, orr, prfb, sabd, …
    row(".0000100 ..0..... .1...... ........", &[SVE]),  // ld1b, ld1h, ldff1b, ldff1h, mad, mla, mls, msb, prfb, prfh
    row("0..00100 ..000... 100..... ........", &[SVE]),  // asr, asrd, fcadd, lsl, lsr
    row("00.0010. ........ 11...... ........", &[SVE]),  // add, br*, cm*, cn*, de*, dup, fcpy, fdup, in*, mad, msb, …
    row(".0.00100 ..01.... 10...... ........", &[SVE]),  // abs, as*, cl*, cn*, fabs, fneg, ld*, ls*, neg, not, sx*, …
    row("00000100 ..1..... 0...0... ........", &[SVE]),  // add*, and, bic, eor, index, orr, rdvl, sqadd, sub, uqadd
    row("0..00100 ..1..... 0001.... ........", &[SVE]),  // fcmla, sqadd, sqsub, uqadd, uqsub
    row("00000100 ..1..... 01001... ........", &[SVE]),  // index
    row("..000100 ..1..... 1....... ........", &[SVE]),  // adr, asr, cn*, de*, fexpa, ftssel, in*, ld*, ls*, …
    row("00000100 .100110. 000..... ........", &[SVE]),  // sabd, uabd
    row("00000100 110101.. 000..... ........", &[SVE]),  // sdiv, sdivr, udiv, udivr
    row("..000101 .00..... ........ ........", &[SVE]),  // and, cpy, fcpy, ld1d, ld1sw, ld1w, ldff1*, orr, prfd, prfw
    row(".0000101 ........ .1...... ........", &[SVE]),  // cpy, fcpy, ld*, pr*, pu*, rev, sel, tr*, uz*, zi*
    row("00000101 ..1.0... 001..0.. ........", &[SVE]),  // dup, insr, sunpkhi, sunpklo, uunpkhi, uunpklo
    row("00.00101 ..1..... 001.00.. ........", &[SVE]),  // ctermeq, ctermne, dup, tbl
    row("00000101 0.10..00 100..... ........", &[SVE]),  // clasta, cpy, revb, splice
    row("00000101 ..1.000. 101..... ........", &[SVE]),  // clasta, clastb, lasta, lastb
    row("00000101 0.100.1. 100..... ........", &[SVE]),  // lasta, lastb, rbit
    row("00.00101 ..1010.. 10...... ........", &[SVE]),  // clasta, clastb, cpy, sqdecp, sqincp, uqdecp, uqincp, wrffr
    row("00000101 ..111000 001110.. ........", &[SVE]),  // rev
    row("0..00101 .10.0... ........ ........", &[SVE]),  // br*, dupm, eor, fa*, fc*, fm*, fr*, fs*, ftmad, ptest, …
    row("...00101 .101.... .0...... ........", &[SVE]),  // cpy, fa*, fc*, fm*, fs*, ftmad, ld*, scvtf, ucvtf
    row("0..00101 1.0..0.. ........ ........", &[SVE]),  // and, br*, dupm, fa*, fc*, fm*, fr*, fs*, pnext, pt*, …
    row("00000101 1.10.... 100..... ........", &[SVE]),  // clas*, compact, cpy, last*, rbit, revb, revh, revw, splice
    row("0010010. ..0..... ........ ........", &[SVE]),  // an*, bi*, br*, cm*, eo*, na*, no*, or*, pf*, pnext, pt*, …
    row("00100100 ..1..... ........ ........", &[SVE]),  // cmphi, cmphs, cmplo, cmpls
    row("0.100101 ....110. 10...... ........", &[SVE]),  // decp, fc*, fd*, fm*, frecpx, fsqrt, incp, setffr
    row("00100101 ..100000 10....0. ........", &[SVE]),  // cntp
    row("0.100101 .1...... 000..... ........", &[SVE]),  // cmp*, fadd, fmla, fmul, frecps, frsqrts, fsub, ftsmul, whi*
    row("01.00100 1....... 00000... ........", &[SVE]),  // fmla, fmls, sdot, udot
    row("01100100 ..0..... 0....... ........", &[SVE]),  // fcmla
    row("01100100 ..1..... 00.000.. ........", &[SVE]),  // fmla, fmul
    row("01100100 0.1..... 000001.. ........", &[SVE]),  // fmls
    row("01100101 ........ .1...... ........", &[SVE]),  // facg*, fcmeq, fcmg*, fcmne, fcmuo, fnmad, fnml*, fnmsb
    row("01100101 ..00111. 001100.. ........", &[SVE]),  // frecpe, frsqrte
    row("01100101 010010.. 100..... ........", &[SVE]),  // fabd, fmulx, fscale
    row(".1100101 .11..... ........ ........", &[SVE]),  // fmad, fml*, fmsb, fnm*, st1*, st4*
    row("01100101 100.0... .0...... ........", &[SVE]),  // fa*, fc*, fm*, fr*, fs*, ftmad, scvtf, ucvtf
    row(".1100101 10...... 0.0..... ........", &[SVE]),  // fadd, fc*, fm*, fnmla, fr*, fsub, ftsmul, str
    row(".1100101 1..1.... 1....... ........", &[SVE]),  // fadd, fc*, fm*, fs*, ftmad, scvtf, st*, ucvtf
    row("01100101 101..... .0...... ........", &[SVE]),  // fmad, fmla, fmls, fmsb
    row("1.00010. ........ 0....... ........", &[SVE]),  // ld1*, ldf*, ldr, prf*
    row("10.0010. ........ .10..... ........", &[SVE]),  // ld1*, ld2*, ld3*, ld4*, ldn*, ldr, prf*
    row("1.00010. .1...... 1....... ........", &[SVE]),  // ld1*, ldf*, prf*
    row("1010010. ...0.... ..1..... ........", &[SVE]),  // ld1*, ld2*, ld3*, ld4*, ldn*
    row("1.10010. ........ 011..... ........", &[SVE]),  // ldf*, st2*, st3*, st4*, stn*
    row("1.10010. ........ 101..... ........", &[SVE]),  // ld1*, ldn*, st1*
    row("1.10010. 01...... .1...... ........", &[SVE]),  // ld1*, ld3*, ld4*, ldf*, st1*, st3*, st4*
    row("11.00100 ........ .1...... ........", &[SVE]),  // ld1*, ldf*, prf*, st1*, st2*, st3*, st4*, stn*
    row("11000101 .01..... 1....... ........", &[SVE]),  // ld1d, ld1sw, ld1w, ldff1d, ldff1sw, ldff1w
    row("1110010. ........ 1.0..... ........", &[SVE]),  // st1b, st1d, st1h, st1w
    row("11100101 00.1.... 111..... ........", &[SVE]),  // st2w, stnt1w
    row("00000100 ..1..... 01011... ........", &[SME]),  // addspl, addsvl, rdsvl
    // Loads and stores: bits 27 and 25 are 10.
    row("0.001000 0.1..... .11111.. ........", &[LSE]), // casp, caspa, caspal, caspl
    row("..001000 1.1..... .11111.. ........", &[LSE]), // cas, casa*, casb, cash, casl*
    row("..111000 ..1..... 0...00.. ........", &[LSE]), // ldad*, ldcl*, ldeo*, ldse*, ldsm*, ldum*
    row("..111000 ..1..... 100000.. ........", &[LSE]), // swp, swpa*, swpb, swph, swpl*
    row("00011001 ..0..... ....01.. ........", &[MOPS]), // cpyf*, sete*, setm*, setp*
    row("00011101 .00..... ....01.. ........", &[MOPS]), // cpye*, cpyp*
    row("00011101 010..... ....01.. ........", &[MOPS]), // cpym, cpymn, cpymr*, cpymt*, cpymw*
    row("00011101 110..... ....01.. ........", &[MOPS, MTE]), // setge*, setgm*, setgp*
    row("0110100. .0...... ........ ........", &[MTE]), // stgp
    row("11011001 ..1..... ........ ........", &[MTE]), // ldg, ldgm, st2g, stg, stgm, stz2g, stzg, stzgm
    row("11111000 ..1..... .....1.. ........", &[PAUTH]), // ldraa, ldrab
    row("..111000 10111111 110000.. ........", &[RCPC]), // ldapr, ldaprb, ldaprh
    row("..011001 ..0..... ....00.. ........", &[RCPC2]), // ldapur, ldapurb, ldapurh, ldapurs*, stlur, stlurb, stlurh
    row("0.001101 0.000001 100001.. ........", &[RCPC3]), // ldap1, stl1
    row("..011101 ..0..... ....10.. ........", &[RCPC3]), // ldapur, stlur
    row("1.011001 ..0..... 000.10.. ........", &[RCPC3]), // ldapr, ldiapp, stilp, stlr
    row("..001000 1.0..... 0....... ........", UNNAMED), // ldlar, ldlarb, ldlarh, stllr, stllrb, stllrh
    row("..001001 ..0..... ........ ........", UNNAMED), // casa*, caslt, casp*, cast, ldatxr, ldtxr, stltxr, sttxr
    row("..011001 ........ ........ ........", UNNAMED), // gcs*, lda*, ldc*, lds*, ldt*, rcw*, stlp, swp*
    row("00011101 11011111 ....00.. ........", UNNAMED), // setgoe*, setgom*, setgop*
    row("..111000 ..1..... 1...00.. ........", UNNAMED), // ld64b, rcwcl*, rcwsc*, rcwse*, rcwss*, rcwsw*, st64b*
    row("..111100 ..1..... ....00.. ........", UNNAMED), // ldbf*, ldfa*, ldfm*, stbf*, stfa*, stfm*
    row("11101.0. ........ ........ ........", UNNAMED), // ldtnp, ldtp, sttnp, sttp
    // Data processing with an immediate.
    row(".0010001 1100.... ........ ........", &[CSSC]), // smax, smin, umax, umin
    row("1.010001 10...... ........ ........", &[MTE]),  // addg, subg
    row("11110011 10...... ........ ...11111", UNNAMED), // autiasppc, autibsppc
    // Branches, exceptions and the system.
    row("11010101 00000000 01000000 00011111", &[FLAGM]),  // cfinv
    row("11010101 00000000 01000000 0..11111", &[FLAGM2]), // axflag, xaflag
    row("01010100 ........ ........ ...1....", &[HBC]),    // bc.$cond
    row("1101011. .0.11111 00001... ........", &[PAUTH]),  // blraa*, blrab*, braa, braaz, brab, brabz, ereta*
    row("11010110 01011111 00001.11 11111111", &[PAUTH]),  // retaa, retab
    row("11010101 00111011 00100100 00......", &[RAND]),   // mrs from rndr, rndrrs
    row("11010101 00000011 00110000 11111111", &[SB]),     // sb
    row("11010101 00000011 01000... 01111111", &[SME]),    // smstart, smstop
    row("01010101 00...... ........ ...11111", UNNAMED),   // retaasppc, retabsppc
    row(".111010. ........ ........ ........", UNNAMED),   // cbb*, cbeq, cbg*, cbh*, cbl*, cbne
    row("11010100 111000.0 0000.... ...00000", UNNAMED),   // tenter
    row("11010101 01...... ........ ........", UNNAMED),   // mrrs, msrr, sysp
    row("11010101 100.0..0 0000.... ........", UNNAMED),   // tchangeb, tchangef
    row("11010110 01011111 00001.11 111.....", UNNAMED),   // retaasppcr, retabsppcr
    row("11010110 11111111 00000.11 11100000", UNNAMED),   // texit
    // Data processing of registers.
    row(".0011010 110..... 010..... ........", &[CRC32]), // crc32b, crc32c*, crc32h, crc32w, crc32x
    row(".0011010 110..... 0110.... ........", &[CSSC]),  // smax, smin, umax, umin
    row(".1011010 11000000 00011... ........", &[CSSC]),  // cnt, ctz
    row(".1011010 11000000 001000.. ........", &[CSSC]),  // abs
    row("00111010 00000000 0.0010.. ...01101", &[FLAGM]), // setf16{, setf8{
    row("10111010 000..... .00001.. ...0....", &[FLAGM]), // rmif{
    row("10.11010 110..... 000.0... ........", &[MTE]),   // gmi, irg, subp, subps
    row("10011010 110..... 001100.. ........", &[PAUTH]), // pacga
    row("11011010 11000001 0....... ........", &[PAUTH]), // autd*, auti*, pacd*, paci*, xpac*
    row("1.011010 000..... 001..... ........", UNNAMED),  // addpt, subpt
    row("1.01101. .1...... 1....... ........", UNNAMED),  // autia*, autib*, msubpt, pacia*, pacib*, pacnb*
    row("10011011 011..... 0....... ........", UNNAMED),  // maddpt
    // Advanced SIMD and scalar floating point.
    row("0.001110 111..... 111000.. ........", &[AES]), // pmull, pmull2
    row("01001110 00101000 01..10.. ........", &[AES]), // aesd, aese, aesimc, aesmc
    row("0.001110 10100001 011010.. ........", &[BF16]), // bfcvtn, bfcvtn2
    row("0.001111 .1...... 1111.0.. ........", &[BF16]), // bfdot, bfmlalb{, bfmlalt{
    row("00011110 01100011 010000.. ........", &[BF16]), // bfcvt
    row("0.101110 .10..... 111.11.. ........", &[BF16]), // bfdot, bfmlalb, bfmlalt, bfmmla
    row("0..01110 100..... 100101.. ........", &[DOTPROD]), // sdot, udot
    row("0..01111 10...... 1110.0.. ........", &[DOTPROD]), // sdot, udot
    row("0.101110 1.0..... 110..1.. ........", &[FCMA]), // fcmla
    row("0.101110 1.0..... 111.01.. ........", &[FCMA]), // fcadd
    row("01101111 100..... 0..1.0.. ........", &[FCMA]), // fcmla
    row("0.101110 010..... 110..1.. ........", &[FCMA, FP16]), // fcmla
    row("0.101110 010..... 111.01.. ........", &[FCMA, FP16]), // fcadd
    row("0.101111 01...... 0..1.0.. ........", &[FCMA, FP16]), // fcmla
    row("0.001110 .01..... 111011.. ........", &[FHM]), // fmlal, fmlsl
    row("0.001111 10...... 0.00.0.. ........", &[FHM]), // fmlal, fmlsl
    row("0.101110 .01..... 110011.. ........", &[FHM]), // fmlal2, fmlsl2
    row("0.101111 10...... 1.00.0.. ........", &[FHM]), // fmlal2, fmlsl2
    row("0..01110 0.100001 111.10.. ........", &[FRINTTS]), // frint32x, frint32z, frint64x, frint64z
    row("00011110 0.10100. .10000.. ........", &[FRINTTS]), // frint32x, frint32z, frint64x, frint64z
    row("0.001110 100..... 10..11.. ........", &[I8MM]), // usdot, usmmla
    row("0.001111 .0...... 1111.0.. ........", &[I8MM]), // sudot, usdot
    row("01.01110 100..... 101001.. ........", &[I8MM]), // smmla, ummla
    row("00011110 01111110 000000.. ........", &[JSCVT]), // fjcvtzs
    row("0.101110 ..0..... 1000.1.. ........", &[RDM]), // sqrdmlah, sqrdmlsh
    row("0.101111 ........ 11.1.0.. ........", &[RDM]), // sqrdmlah, sqrdmlsh
    row("01111110 ..0..... 1000.1.. ........", &[RDM]), // sqrdmlah, sqrdmlsh
    row("01111111 ........ 11.1.0.. ........", &[RDM]), // sqrdmlah, sqrdmlsh
    row("01011110 000..... 0...00.. ........", &[SHA2]), // sha1c, sha1m, sha1p, sha1su0, sha256h, sha256h2, sha256su1
    row("01011110 00101000 00..10.. ........", &[SHA2]), // sha1h, sha1su1, sha256su0
    row("11001110 .0...... ........ ........", &[SHA3]), // bcax, eor3, xar
    row("11001110 011..... 1000.... ........", &[SHA3]), // rax1, sha512h, sha512h2, sha512su1
    row("11001110 11000000 100000.. ........", &[SHA3]), // sha512su0
    row("11001110 010..... ........ ........", &[SM4]), // sm3ss1, sm3tt1a, sm3tt1b, sm3tt2a, sm3tt2b
    row("11001110 011..... 1100.... ........", &[SM4]), // sm3partw1, sm3partw2, sm4ekey
    row("11001110 11000000 100001.. ........", &[SM4]), // sm4e
    row("0.001110 .0110000 11..10.. ........", &[FP16]), // fmaxnmv, fmaxv, fminnmv, fminv
    row("0..01110 .10..... 00..01.. ........", &[FP16]), // fabd, fadd*, fcmeq, fcmg*, fmax*, fmin*, fsub
    row("0..01110 010..... 00..11.. ........", &[FP16]), // facge, fdiv, fmla, fmul, fmulx, frecps
    row("0..01110 .111100. 1...10.. ........", &[FP16]), // fabs, fc*, fneg, fr*, fsqrt, scvtf, ucvtf
    row("0..01110 110..... 00.011.. ........", &[FP16]), // facgt, fmls
    row("0.001110 110..... 001111.. ........", &[FP16]), // frsqrts
    row("0..01111 00...... ..01.0.. ........", &[FP16]), // fmla, fmls, fmul, fmulx
    row("0.001111 00000... 111111.. ........", &[FP16]), // fmov
    row("0..01111 0001.... 111..1.. ........", &[FP16]), // fcvtzs, fcvtzu, scvtf, ucvtf
    row(".0011110 11...00. ........ ........", &[FP16]), // fabs, fcvtm*, fcvtn*, fcvtp*, fcvtz*, fmov, fneg, fsqrt
    row(".001111. 110..... ........ ........", &[FP16]), // fcvtzs, fcvtzu, fmadd, fmsub, scvtf, ucvtf
    row(".0011110 11100... 000000.. ........", &[FP16]), // fcvtas, fcvtau, fcvtns, fcvtnu, fmov, scvtf, ucvtf
    row("00011110 111..... ....01.. ........", &[FP16]), // fccmp, fccmpe
    row("00011110 111..... ....1... ........", &[FP16]), // fadd, fcsel, fdiv, fmax*, fmin*, fmul, fnmul, fsub
    row("00011110 111..... ...10000 000.....", &[FP16]), // fmov
    row("00011110 111..... 001000.. .....000", &[FP16]), // fcmp, fcmpe
    row("00011110 111001.. .10000.. ........", &[FP16]), // frinta, frinti, frintm, frintn, frintp, frintx, frintz
    row("00011111 111..... ........ ........", &[FP16]), // fnmadd, fnmsub
    row("01011110 .0110000 11..10.. ........", &[FP16]), // faddp, fmaxnmp, fmaxp, fminnmp, fminp
    row("01.11110 .10..... 00...1.. ........", &[FP16]), // fabd, facg*, fcmeq, fcmg*, fmulx, frecps, frsqrts
    row("01.11110 .111100. 1...10.. ........", &[FP16]), // fcmeq, fcmg*, fcml*, fcvt*, frec*, frsqrte, scvtf, ucvtf
    row("01.11111 00...... ..01.0.. ........", &[FP16]), // fmla, fmls, fmul, fmulx
    row("01.11111 0001.... 111..1.. ........", &[FP16]), // fcvtzs, fcvtzu, scvtf, ucvtf
    row("0..01110 ..0..... 11...1.. ........", UNNAMED), // fcvtn, fcvtn2, fdot, fmlalb, fmlall*, fmlalt, fmmla
    row("0..01110 1.1..... 110111.. ........", UNNAMED), // famax, famin
    row("0..01110 110..... 00.111.. ........", UNNAMED), // famax, famin, fscale
    row("0.001111 ........ 0000.0.. ........", UNNAMED), // fdot, fmlalb, fmlalt
    row("0.001111 01...... 1001.0.. ........", UNNAMED), // fdot
    row(".0011110 ..10101. 000000.. ........", UNNAMED), // fcvtns, fcvtnu
    row(".0011110 ..11..1. 000000.. ........", UNNAMED), // fcvtas, fcvtau, fcvtps, fcvtpu, fcvtzs, fcvtzu
    row(".0011110 ..11.10. 000000.. ........", UNNAMED), // fcvtms, fcvtmu, scvtf, ucvtf
    row("0.101110 ..100001 011110.. ........", UNNAMED), // bf1cvtl*, bf2cvtl*, f1cvtl, f1cvtl2, f2cvtl, f2cvtl2
    row("0.101110 1.1..... 111111.. ........", UNNAMED), // fscale
    row("0.101111 0....... 1000.0.. ........", UNNAMED), // fmlallbb, fmlallbt, fmlalltb, fmlalltt
    row("01001110 .10..... 0...00.. ........", UNNAMED), // luti2, luti4
    row("01001110 100..... 0..100.. ........", UNNAMED), // luti2
];

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::elf::testing::run;

    #[test]
    fn each_extension_is_found() {
        // As encoded by llvm-mc 22.
        let words: &[(u32, &[Feature])] = &[
            (0x9ac25c20, &[CRC32]),        // crc32cx w0, w1, x2
            (0xb8e10062, &[LSE]),          // ldaddal w1, w2, [x3]
            (0x382183e2, &[LSE]),          // swpb w1, w2, [sp]
            (0xc8e0fc41, &[LSE]),          // casal x0, x1, [x2]
            (0x4860fc82, &[LSE]),          // caspal x0, x1, x2, x3, [x4]
            (0x6e828420, &[RDM]),          // sqrdmlah v0.4s, v1.4s, v2.4s
            (0x7fa2f020, &[RDM]),          // sqrdmlsh s0, s1, v2.s[1]
            (0x1ee22820, &[FP16]),         // fadd h0, h1, h2
            (0x4e421420, &[FP16]),         // fadd v0.8h, v1.8h, v2.8h
            (0x4f321020, &[FP16]),         // fmla v0.8h, v1.8h, v2.h[3]
            (0x1ef80020, &[FP16]),         // fcvtzs w0, h1
            (0x4f03fe00, &[FP16]),         // fmov v0.8h, #1.0
            (0x4e829420, &[DOTPROD]),      // sdot v0.4s, v1.16b, v2.16b
            (0x2fa2e020, &[DOTPROD]),      // udot v0.2s, v1.8b, v2.4b[1]
            (0x4e284820, &[AES]),          // aese v0.16b, v1.16b
            (0x4ee2e020, &[AES]),          // pmull2 v0.1q, v1.2d, v2.2d
            (0x5e020020, &[SHA2]),         // sha1c q0, s1, v2.4s
            (0x5e024020, &[SHA2]),         // sha256h q0, q1, v2.4s
            (0xce628020, &[SHA3]),         // sha512h q0, q1, v2.2d
            (0xce020c20, &[SHA3]),         // eor3 v0.16b, v1.16b, v2.16b, v3.16b
            (0xcec08420, &[SM4]),          // sm4e v0.4s, v1.4s
            (0xce429020, &[SM4]),          // sm3tt1a v0.4s, v1.4s, v2.s[1]
            (0x6e82e420, &[FCMA]),         // fcadd v0.4s, v1.4s, v2.4s, #90
            (0x6ec2d420, &[FCMA]),         // fcmla v0.2d, v1.2d, v2.2d, #180
            (0x6e42c420, &[FCMA, FP16]),   // fcmla v0.8h, v1.8h, v2.8h, #0
            (0x1e7e0020, &[JSCVT]),        // fjcvtzs w0, d1
            (0xf8bfc020, &[RCPC]),         // ldapr x0, [x1]
            (0xd9408020, &[RCPC2]),        // ldapur x0, [x1, #8]
            (0xd9410840, &[RCPC3]),        // ldiapp x0, x1, [x2], #16
            (0x4e22ec20, &[FHM]),          // fmlal v0.4s, v1.4h, v2.4h
            (0x6f92c020, &[FHM]),          // fmlsl2 v0.4s, v1.4h, v2.h[1]
            (0xba008402, &[FLAGM]),        // rmif x0, #1, #2
            (0xd500401f, &[FLAGM]),        // cfinv
            (0xd500405f, &[FLAGM2]),       // axflag
            (0x4e21e820, &[FRINTTS]),      // frint32z v0.4s, v1.4s
            (0x1e69c020, &[FRINTTS]),      // frint64x d0, d1
            (0x6e42fc20, &[BF16]),         // bfdot v0.4s, v1.8h, v2.8h
            (0x6e42ec20, &[BF16]),         // bfmmla v0.4s, v1.8h, v2.8h
            (0x1e634020, &[BF16]),         // bfcvt h0, s1
            (0x4e82a420, &[I8MM]),         // smmla v0.4s, v1.16b, v2.16b
            (0x4e829c20, &[I8MM]),         // usdot v0.4s, v1.16b, v2.16b
            (0xdac10020, &[PAUTH]),        // pacia x0, x1
            (0xd65f0bff, &[PAUTH]),        // retaa
            (0xd61f081f, &[PAUTH]),        // braaz x0
            (0xf8200420, &[PAUTH]),        // ldraa x0, [x1]
            (0x9adf1020, &[MTE]),          // irg x0, x1
            (0xd9200820, &[MTE]),          // stg x0, [x1]
            (0x91810420, &[MTE]),          // addg x0, x1, #16, #1
            (0xd50330ff, &[SB]),           // sb
            (0xd53b2400, &[RAND]),         // mrs x0, rndr
            (0x19010440, &[MOPS]),         // cpyfp [x0]!, [x1]!, x2!
            (0x1dc20420, &[MOPS, MTE]),    // setgp [x0]!, x1!, x2
            (0x54000050, &[HBC]),          // bc.eq #8
            (0xdac02020, &[CSSC]),         // abs x0, x1
            (0x11c00c20, &[CSSC]),         // smax w0, w1, #3
            (0x65a20020, &[SVE]),          // fmla z0.s, p0/m, z1.s, z2.s
            (0x65420020, &[SVE]),          // fadd z0.h, z1.h, z2.h
            (0xa5414000, &[SVE]),          // ld1w { z0.s }, p0/z, [x0, x1, lsl #2]
            (0x2518e3e0, &[SVE]),          // ptrue p0.b
            (0x25a11c00, &[SVE]),          // whilelo p0.s, x0, x1
            (0x44820020, &[SVE]),          // sdot z0.s, z1.b, z2.b
            (0x04a0e3e0, &[SVE]),          // cntw x0
            (0xe5a1a000, &[SVE]),          // st1d { z0.d }, p0, [x0, z1.d, lsl #3]
            (0x64628020, &[SVE, BF16]),    // bfdot z0.s, z1.h, z2.h
            (0x658aa020, &[SVE, BF16]),    // bfcvt z0.h, p0/m, z1.s
            (0x45029820, &[SVE, I8MM]),    // smmla z0.s, z1.b, z2.b
            (0x64a2e420, &[SVE, F32MM]),   // fmmla z0.s, z1.s, z2.s
            (0x64e2e420, &[SVE, F64MM]),   // fmmla z0.d, z1.d, z2.d
            (0xa5202000, &[SVE, F64MM]),   // ld1row { z0.s }, p0/z, [x0]
            (0x44827020, &[SVE2]),         // sqrdmlah z0.s, z1.s, z2.s
            (0x44824020, &[SVE2]),         // smlalb z0.s, z1.h, z2.h
            (0x05232820, &[SVE2]),         // tbl z0.b, { z1.b, z2.b }, z3.b
            (0x45238440, &[SVE2]),         // match p0.b, p1/z, z2.b, z3.b
            (0x25a13010, &[SVE2]),         // whilerw p0.s, x0, x1
            (0x8502a020, &[SVE2]),         // ldnt1w { z0.s }, p0/z, [z1.s, x2]
            (0x4522e020, &[SVE2_AES]),     // aese z0.b, z0.b, z1.b
            (0x45026820, &[SVE2_AES]),     // pmullb z0.q, z1.d, z2.d
            (0x4582b420, &[SVE2_BITPERM]), // bdep z0.s, z1.s, z2.s
            (0x4522f420, &[SVE2_SHA3]),    // rax1 z0.d, z1.d, z2.d
            (0x4523e020, &[SVE2_SM4]),     // sm4e z0.s, z0.s, z1.s
            (0xd503477f, &[SME]),          // smstart
            (0x80812000, &[SME]),          // fmopa za0.s, p0/m, p1/m, z0.s, z1.s
            (0xc00800ff, &[SME]),          // zero {za}
            (0x04bf5820, &[SME]),          // rdsvl x0, #1
            (0xe11f8000, &[SME2]),         // ldr zt0, [x0]
            (0xc1221800, &[SME2]),         // fmla za.s[w8, 0, vgx2], {z0.s, z1.s}, z2.s
        ];
        for &(word, features) in words {
            assert_eq!(needs(word), Some(features), "{word:08x}");
        }
        for feature in ALL {
            assert!(words.iter().any(|(_, features)| features.contains(feature)), "{feature:?}");
        }
    }

    #[test]
    fn the_baseline_needs_nothing() {
        let words = [
            0xd503201f, // nop
            0xd503245f, // bti c
            0xd503233f, // paciasp
            0xd50320ff, // xpaclri
            0xd5033bbf, // dmb ish
            0xd53bd040, // mrs x0, tpidr_el0
            0xd51b4400, // msr fpcr, x0
            0xd65f03c0, // ret
            0x54000040, // b.eq #8
            0xc85f7c20, // ldxr x0, [x1]
            0xc89ffc20, // stlr x0, [x1]
            0xf8408420, // ldr x0, [x1], #8
            0x91004020, // add x0, x1, #16
            0x6ea26420, // umax v0.4s, v1.4s, v2.4s
            0x1e222820, // fadd s0, s1, s2
            0x1e23c020, // fcvt h0, s1
            0x1ee24020, // fcvt s0, h1
            0x0e217820, // fcvtl v0.4s, v1.4h
            0x4e22d420, // fadd v0.4s, v1.4s, v2.4s
            0x0e22e020, // pmull v0.8h, v1.8b, v2.8b
            0x6ea2b420, // sqrdmulh v0.4s, v1.4s, v2.4s
            0x1e65c020, // frintz d0, d1
            0x1e780020, // fcvtzs w0, d1
            0x4f03f600, // fmov v0.4s, #1.0
            0x6e021820, // ext v0.16b, v1.16b, v2.16b, #3
            0x3ce16800, // ldr q0, [x0, x1]
        ];
        for word in words {
            assert_eq!(needs(word), Some(&[][..]), "{word:08x}");
        }
    }

    #[test]
    fn what_has_no_name_here_is_unknown() {
        let words = [
            0x00000000, // udf #0
            0x4482c020, // sclamp z0.s, z1.s, z2.s
            0x74010040, // cbgt w0, w1, #8
            0x9a022020, // addpt x0, x1, x2
            0xa0004000, // ld1w { z0.s, z1.s }, pn8/z, [x0, x0, lsl #2]
        ];
        for word in words {
            assert_eq!(needs(word), None, "{word:08x}");
        }
    }

    #[test]
    fn names_are_those_of_the_features() {
        for (index, &feature) in ALL.iter().enumerate() {
            assert_eq!(feature as usize, index);
            assert_eq!(FEATURES[index], format!("{feature:?}"));
        }
    }

    /// Random words, most of them near a row, against llvm-mc with one feature at a time, and with all but one.
    #[test]
    fn the_disassembler_agrees() {
        let mut random = StdRng::seed_from_u64(64);
        let mut words: Vec<u32> = (0..1000).map(|_| random.random()).collect();
        for row in ROWS {
            for _ in 0..4 {
                let word = row.value | random.random::<u32>() & !row.mask;
                words.extend([word, word ^ 1 << random.random_range(0..32)]);
            }
        }
        // More where most rows are: in the spaces of SVE, Advanced SIMD and floating point.
        for space in [0x0400_0000, 0x0e00_0000, 0x1e00_0000] {
            words.extend((0..1000).map(|_| random.random::<u32>() & !0x1e00_0000 | space));
        }
        // LLVM takes any word in the space of system instructions for one, if only of a register without a name.
        words.retain(|word| word >> 22 != 0xd500_0000_u32 >> 22);

        // What SVE2.1 and SME share is unknown, so SME is no part of this.
        let named: String = ALL.iter().filter(|&&one| one < SME).map(|&one| format!(",+{}", llvm_name(one))).collect();
        let [baseline, with_named, with_all] = ["", &named, ",+all"].map(|features| decoded(&words, features));
        let mut by_needs = BTreeMap::<&[Feature], Vec<u32>>::new();
        for &word in &words {
            let known = with_all.contains(&word);
            match needs(word) {
                Some([]) => assert!(baseline.contains(&word) || !known, "{word:08x} is not of the baseline"),
                Some(features) => {
                    assert!(!baseline.contains(&word), "{word:08x} is of the baseline, not of {features:?}");
                    if known {
                        by_needs.entry(features).or_default().push(word);
                    }
                }
                // UDF, an instruction in name only, is below 0x10000.
                None => assert!(word >> 16 == 0 || !with_named.contains(&word), "{word:08x} is unknown"),
            }
        }
        assert!(by_needs.len() > 30);

        let enough = |features: &[Feature]| match features {
            // With all that builds on it.
            [SME2] => ",+all".to_owned(),
            _ => features.iter().map(|&one| format!(",+{}", llvm_name(one))).collect(),
        };
        let without = |feature| match feature {
            SME => named.clone(),
            SME2 => format!("{named},+{}", llvm_name(SME)),
            // These names of LLVM's are for two features each.
            SVE2_AES | SVE2_BITPERM | SVE2_SHA3 | SVE2_SM4 => {
                format!("{named},-{}", llvm_name(feature).replace('2', ""))
            }
            _ => format!("{named},-{}", llvm_name(feature)),
        };
        std::thread::scope(|threads| {
            for (features, words) in by_needs {
                let (enough, without) = (&enough, &without);
                threads.spawn(move || {
                    let decoded_with = decoded(&words, &enough(features));
                    let lacking = words.iter().find(|word| !decoded_with.contains(word));
                    assert!(lacking.is_none(), "{:08x} needs more than {features:?}", lacking.unwrap());
                    for &feature in features {
                        let without = decoded(&words, &without(feature)).into_iter().next();
                        assert!(without.is_none(), "{:08x} does not need {feature:?}", without.unwrap());
                    }
                });
            }
        });
    }

    /// Returns those that are instructions with these features of LLVM's beside the baseline.
    fn decoded(words: &[u32], features: &str) -> BTreeSet<u32> {
        let dir = tempfile::tempdir().unwrap();
        let lines: String = words
            .iter()
            .map(|word| format!("{}\n", word.to_le_bytes().map(|byte| format!("{byte:#x}")).join(" ")))
            .collect();
        std::fs::write(dir.path().join("words"), lines).unwrap();
        let args = ["-triple=aarch64", &format!("-mattr=+v8a{features}"), "-disassemble", "words"];
        let output = run(dir.path(), "llvm-mc-22", &args);
        let mut decoded: BTreeSet<u32> = words.iter().copied().collect();
        for line in String::from_utf8_lossy(&output.stderr).lines() {
            // words:LINE:1: warning: invalid instruction encoding
            if let Some(at) = line.strip_prefix("words:")
                && line.ends_with("invalid instruction encoding")
            {
                let number: usize = at.split(':').next().unwrap().parse().unwrap();
                decoded.remove(&words[number - 1]);
            }
        }
        decoded
    }

    /// The name in `-mattr`.
    fn llvm_name(feature: Feature) -> String {
        let name = match feature {
            CRC32 => "crc",
            FP16 => "fullfp16",
            FCMA => "complxnum",
            JSCVT => "jsconv",
            RCPC2 => "rcpc-immo",
            FHM => "fp16fml",
            FLAGM2 => "altnzcv",
            FRINTTS => "fptoint",
            SME => "sme,+sme-i16i64,+sme-f64f64",
            _ => return FEATURES[feature as usize].to_lowercase().replace('_', "-"),
        };
        name.to_owned()
    }
}
