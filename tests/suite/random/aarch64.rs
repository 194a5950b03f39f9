//! AArch64: what each relocation kind may stand in, and what AAELF64 says of it. Encodings: Arm ARM (DDI 0487), C6.2.

use super::probe::{Code, Form, Formula, On, Outcome, Reach, Rule, Sign, Value, Wants};
use crate::common::Random;

pub const MACHINE: u16 = 183;
/// `adr x0, .; ret`: a function that returns its own address.
pub const SELF: [u8; 8] = [0x00, 0x00, 0x00, 0x10, 0xc0, 0x03, 0x5f, 0xd6];
pub const CODE_ALIGN: u64 = 4;
/// `R_AARCH64_NONE`
pub const NONE: u32 = 0;

const ABS64: u32 = 257;
const ABS32: u32 = 258;
const ABS16: u32 = 259;
const PREL64: u32 = 260;
const PREL32: u32 = 261;
const PREL16: u32 = 262;
const UABS: Wide = Wide { kinds: &[263, 265, 267, 269], rest: &[264, 266, 268], signed: false };
const SABS: Wide = Wide { kinds: &[270, 271, 272], rest: &[264, 266, 268], signed: true };
const LD_PREL_LO19: u32 = 273;
const ADR_PREL_LO21: u32 = 274;
const ADR_PREL_PG_HI21: u32 = 275;
const ADR_PREL_PG_HI21_NC: u32 = 276;
const ADD_LO12: u32 = 277;
const TSTBR14: u32 = 279;
const CONDBR19: u32 = 280;
const JUMP26: u32 = 282;
const CALL26: u32 = 283;
const PREL: Wide = Wide { kinds: &[287, 289, 291, 293], rest: &[288, 290, 292], signed: true };
const GOTOFF: Wide = Wide { kinds: &[300, 302, 304, 306], rest: &[301, 303, 305], signed: true };
const GOTREL64: u32 = 307;
const GOTREL32: u32 = 308;
const GOT_LD_PREL19: u32 = 309;
const LD64_GOTOFF_LO15: u32 = 310;
const ADR_GOT_PAGE: u32 = 311;
const LD64_GOT_LO12: u32 = 312;
const LD64_GOTPAGE_LO15: u32 = 313;
const PLT32: u32 = 314;
const GOTPCREL32: u32 = 315;

/// The overflow checks of AAELF64's tables.
pub fn rule(kind: u32) -> Option<Rule> {
    use Value::*;
    Some(match kind {
        ABS32 => Rule::either(Absolute, 32),
        ABS16 => Rule::either(Absolute, 16),
        PREL32 => Rule::either(Relative, 32),
        PREL16 => Rule::either(Relative, 16),
        263 => Rule::unsigned(Absolute, 16),
        265 => Rule::unsigned(Absolute, 32),
        267 => Rule::unsigned(Absolute, 48),
        // -2^16 <= X < 2^16, and so on: the sign is in the instruction.
        270 => Rule::signed(Absolute, 17),
        271 => Rule::signed(Absolute, 33),
        272 => Rule::signed(Absolute, 49),
        LD_PREL_LO19 => Rule::signed(Relative, 21).aligned(4),
        ADR_PREL_LO21 => Rule::signed(Relative, 21),
        ADR_PREL_PG_HI21 => Rule::signed(Page, 33),
        TSTBR14 => Rule::signed(Relative, 16).aligned(4),
        CONDBR19 => Rule::signed(Relative, 21).aligned(4),
        JUMP26 | CALL26 => Rule::signed(Relative, 28).aligned(4),
        // Only what the instruction can hold.
        284 => Rule { align: 2, ..NO_LIMIT },
        285 => Rule { align: 4, ..NO_LIMIT },
        286 => Rule { align: 8, ..NO_LIMIT },
        299 => Rule { align: 16, ..NO_LIMIT },
        287 => Rule::signed(Relative, 17),
        289 => Rule::signed(Relative, 33),
        291 => Rule::signed(Relative, 49),
        300 => Rule::signed(Got, 17),
        302 => Rule::signed(Got, 33),
        304 => Rule::signed(Got, 49),
        GOTREL32 => Rule::signed(Got, 32),
        GOT_LD_PREL19 => Rule::signed(Got, 21).aligned(4),
        LD64_GOTOFF_LO15 | LD64_GOTPAGE_LO15 => Rule::unsigned(Got, 15).aligned(8),
        ADR_GOT_PAGE => Rule::signed(Got, 33),
        PLT32 => Rule::signed(Relative, 32),
        GOTPCREL32 => Rule::signed(Got, 32),
        _ => return None,
    })
}

const NO_LIMIT: Rule = Rule { value: Value::PageOffset, low: i128::MIN, high: i128::MAX, align: 1 };

/// Whether JITLink puts a stub of its own between, if the target is not defined in the object.
pub fn has_stub(kind: u32) -> bool {
    matches!(kind, CALL26 | JUMP26)
}

const RET: u32 = 0xd65f_03c0;
const ADRP: u32 = 0x9000_0000;
const ADR: u32 = 0x1000_0000;
const ADD: u32 = 0x9100_0000;
const LDR: u32 = 0xf940_0000;
const MOVZ: u32 = 0xd280_0000;
const MOVK: u32 = 0xf280_0000;
const MOVN: u32 = 0x9280_0000;

/// Which bits hold the immediate.
fn immediate(kind: u32) -> u32 {
    match kind {
        274..=276 | 311 => 0x60ff_ffe0,
        277 | 278 | 284..=286 | 299 | 310 | 312 | 313 => 0x003f_fc00,
        279 => 0x0007_ffe0,
        273 | 280 | 309 => 0x00ff_ffe0,
        282 | 283 => 0x03ff_ffff,
        _ => 0x001f_ffe0,
    }
}

impl Code {
    fn word(self, word: u32) -> Self {
        self.put(&word.to_le_bytes())
    }

    /// An instruction with a relocation, and anything in its immediate field.
    fn at(mut self, random: &mut Random, word: u32, kind: u32, on: On, addend: i64) -> Self {
        let start = self.bytes.len();
        self = self.field(random, 4, kind, on, addend);
        let stale = random.next() as u32 & immediate(kind);
        self.bytes[start..].copy_from_slice(&(word | stale).to_le_bytes());
        self
    }

    fn ret(self) -> Self {
        self.word(RET)
    }
}

/// `mov x0, xN; ret`
fn returned(code: Code, register: u32) -> Code {
    code.word(0xaa00_03e0 | register << 16).ret()
}

fn register(random: &mut Random) -> u32 {
    random.below(16) as u32
}

/// `ADRP` and an instruction on the low 12 bits, which reads memory into x0 (with another after it, perhaps).
fn load(random: &mut Random, a: i64, word: u32, kind: u32, then: Option<u32>, outcome: Outcome) -> Code {
    let reg = register(random);
    let code = Code::new(outcome).at(random, ADRP | reg, ADR_PREL_PG_HI21, On::Target, a).bridged();
    let code = code.at(random, word | reg << 5, kind, On::Target, a);
    then.into_iter().fold(code, Code::word).ret()
}

/// Leaves the address of the GOT in x1.
fn got(random: &mut Random, code: Code) -> Code {
    got_page(random, code).at(random, ADD | 1 << 5 | 1, ADD_LO12, On::Got, 0)
}

fn got_page(random: &mut Random, code: Code) -> Code {
    code.at(random, ADRP | 1, ADR_PREL_PG_HI21, On::Got, 0)
}

/// Kinds of wide moves, by the position of their 16 bits.
struct Wide {
    kinds: &'static [u32],
    /// Those without a check, for what is below the first.
    rest: &'static [u32],
    /// The sign of the value chooses between MOVZ and MOVN.
    signed: bool,
}

/// Wide moves into x0 from group `top` down; all but the first are MOVK. Each addend is `step` more than the one
/// before: 4 where the place counts.
fn wide(random: &mut Random, mut code: Code, top: usize, kinds: &Wide, a: i64, step: i64) -> Code {
    let Wide { kinds, rest, signed } = *kinds;
    let first = if signed && random.below(2) == 0 { MOVN } else { MOVZ };
    code = code.at(random, first | (top as u32) << 21, kinds[top], On::Target, a);
    for (i, group) in (0..top).rev().enumerate() {
        code = code.at(random, MOVK | (group as u32) << 21, rest[group], On::Target, a + step * (i as i64 + 1));
    }
    code
}

/// A conditional branch of which it is known whether it is taken.
fn conditional(random: &mut Random) -> (Option<u32>, u32, u32, bool) {
    const CMP_EQUAL: u32 = 0xeb1f_03ff;
    const W3_IS_0: u32 = 0x5280_0003;
    const X3_IS_1: u32 = 0xd280_0023;
    const X3_IS_TOP: u32 = 0xd2f0_0003;
    [
        (Some(CMP_EQUAL), 0x5400_0000, CONDBR19, true),  // b.eq
        (Some(CMP_EQUAL), 0x5400_0001, CONDBR19, false), // b.ne
        (Some(W3_IS_0), 0x3400_0003, CONDBR19, true),    // cbz w3
        (Some(W3_IS_0), 0xb500_0003, CONDBR19, false),   // cbnz x3
        (Some(X3_IS_1), 0xb500_0003, CONDBR19, true),    // cbnz x3
        (Some(X3_IS_1), 0xb400_0003, CONDBR19, false),   // cbz x3
        (None, 0x3628_001f, TSTBR14, true),              // tbz wzr, #5
        (None, 0x3700_001f, TSTBR14, false),             // tbnz wzr, #0
        (Some(X3_IS_1), 0x3700_0003, TSTBR14, true),     // tbnz w3, #0
        (Some(X3_IS_TOP), 0xb7f8_0003, TSTBR14, true),   // tbnz x3, #63
        (Some(X3_IS_TOP), 0xb6f8_0003, TSTBR14, false),  // tbz x3, #63
    ][random.below(11)]
}

fn branch_if(random: &mut Random, a: i64, wanted: u32) -> Code {
    let (before, word, kind, taken) = loop {
        let found = conditional(random);
        if found.2 == wanted {
            break found;
        }
    };
    let code = Code::new(if taken { Outcome::Address } else { Outcome::Equal(0x1234) });
    let code = before.into_iter().fold(code, Code::word);
    let code = code.at(random, word, kind, On::Target, a).bridged();
    // movz x0, #0x1234; or nothing may come here.
    if taken { code.word(0) } else { code.word(MOVZ | 0x1234 << 5).ret() }
}

const fn form(name: &'static str, wants: Wants, reach: Reach, make: fn(&mut Random, i64) -> Code) -> Form {
    Form { name, wants, reach, code: true, weight: 4, since: 15, make }
}

const fn data(name: &'static str, wants: Wants, reach: Reach, make: fn(&mut Random, i64) -> Code) -> Form {
    Form { name, wants, reach, code: false, weight: 4, since: 15, make }
}

const fn often(weight: usize, mut form: Form) -> Form {
    form.weight = weight;
    form
}

use Outcome::*;
use Wants::{Call, Exact, Function, Read};

const MIB: i64 = 1 << 20;

pub const FORMS: &[Form] = &[
    // ---- direct ----
    often(
        12,
        form("ADR_PREL_PG_HI21 adrp, ADD_ABS_LO12_NC add", Wants::Address, Reach::All, |r, a| {
            let reg = register(r);
            let code = Code::new(Address).at(r, ADRP | reg, ADR_PREL_PG_HI21, On::Target, a).bridged();
            returned(code.at(r, ADD | reg << 5 | reg, ADD_LO12, On::Target, a), reg)
        }),
    ),
    form("ADR_PREL_PG_HI21_NC", Wants::Address, Reach::Arena, |r, a| {
        let reg = register(r);
        let code = Code::new(PageUnchecked(0)).at(r, ADRP | reg, ADR_PREL_PG_HI21_NC, On::Target, a);
        returned(code.at(r, ADD | reg << 5 | reg, ADD_LO12, On::Target, a), reg)
    }),
    form("LDST8_ABS_LO12_NC ldrb", Read(1, 1), Reach::All, |r, a| load(r, a, 0x3940_0000, 278, None, Memory(1, false))),
    form("LDST8_ABS_LO12_NC ldrsb", Read(1, 1), Reach::All, |r, a| load(r, a, 0x3980_0000, 278, None, Memory(1, true))),
    form("LDST16_ABS_LO12_NC ldrh", Read(2, 2), Reach::All, |r, a| {
        load(r, a, 0x7940_0000, 284, None, Memory(2, false))
    }),
    form("LDST16_ABS_LO12_NC ldrsh", Read(2, 2), Reach::All, |r, a| {
        load(r, a, 0x7980_0000, 284, None, Memory(2, true))
    }),
    form("LDST32_ABS_LO12_NC ldr", Read(4, 4), Reach::All, |r, a| load(r, a, 0xb940_0000, 285, None, Memory(4, false))),
    form("LDST32_ABS_LO12_NC ldr s0", Read(4, 4), Reach::All, |r, a| {
        load(r, a, 0xbd40_0000, 285, Some(0x1e26_0000), Memory(4, false))
    }),
    form("LDST64_ABS_LO12_NC ldr", Read(8, 8), Reach::All, |r, a| load(r, a, LDR, 286, None, Memory(8, false))),
    form("LDST64_ABS_LO12_NC ldr d0", Read(8, 8), Reach::All, |r, a| {
        load(r, a, 0xfd40_0000, 286, Some(0x9e66_0000), Memory(8, false))
    }),
    form("LDST128_ABS_LO12_NC ldr q0", Read(16, 16), Reach::All, |r, a| {
        load(r, a, 0x3dc0_0000, 299, Some(0x9e66_0000), Memory(8, false))
    }),
    form("ADR_PREL_LO21", Wants::Address, Reach::Section(MIB - 4096), |r, a| {
        let reg = register(r);
        returned(Code::new(Address).at(r, ADR | reg, ADR_PREL_LO21, On::Target, a).bridged(), reg)
    }),
    form("ADR_PREL_LO21 far", Wants::Address, Reach::All, |r, a| {
        returned(Code::new(Address).at(r, ADR | 7, ADR_PREL_LO21, On::Target, a).bridged(), 7)
    }),
    form("LD_PREL_LO19 ldr", Read(8, 4), Reach::Section(MIB - 4096), |r, a| {
        Code::new(Memory(8, false)).at(r, 0x5800_0000, LD_PREL_LO19, On::Target, a).ret()
    }),
    form("LD_PREL_LO19 ldrsw", Read(4, 4), Reach::Section(MIB - 4096), |r, a| {
        Code::new(Memory(4, true)).at(r, 0x9800_0000, LD_PREL_LO19, On::Target, a).ret()
    }),
    often(
        8,
        form("CALL26 bl", Call, Reach::All, |r, a| {
            let code = Code::new(Address).word(0xa9bf_7bfd).at(r, 0x9400_0000, CALL26, On::Target, a).bridged();
            code.word(0xa8c1_7bfd).ret()
        }),
    ),
    often(
        8,
        form("JUMP26 b", Call, Reach::All, |r, a| {
            Code::new(Address).at(r, 0x1400_0000, JUMP26, On::Target, a).bridged()
        }),
    ),
    often(8, form("CONDBR19", Call, Reach::All, |r, a| branch_if(r, a, CONDBR19))),
    often(8, form("TSTBR14", Call, Reach::All, |r, a| branch_if(r, a, TSTBR14))),
    // ---- wide moves ----
    form("MOVW_UABS_G3", Wants::Address, Reach::All, |r, a| wide(r, Code::new(Address), 3, &UABS, a, 0).ret()),
    form("MOVW_UABS_G2", Wants::Address, Reach::All, |r, a| wide(r, Code::new(Address), 2, &UABS, a, 0).ret()),
    form("MOVW_UABS_G1", Wants::Address, Reach::Low(32), |r, a| wide(r, Code::new(Address), 1, &UABS, a, 0).ret()),
    form("MOVW_UABS_G0", Wants::Address, Reach::Low(16), |r, a| wide(r, Code::new(Address), 0, &UABS, a, 0).ret()),
    form("MOVW_SABS_G2", Wants::Address, Reach::All, |r, a| wide(r, Code::new(Address), 2, &SABS, a, 0).ret()),
    form("MOVW_SABS_G1", Wants::Address, Reach::Low(32), |r, a| wide(r, Code::new(Address), 1, &SABS, a, 0).ret()),
    form("MOVW_SABS_G0", Wants::Address, Reach::Low(16), |r, a| wide(r, Code::new(Address), 0, &SABS, a, 0).ret()),
    form("MOVW_PREL_G3", Wants::Address, Reach::All, |r, a| wide(r, Code::new(Distance(0)), 3, &PREL, a, 4).ret()),
    form("MOVW_PREL_G2", Wants::Address, Reach::All, |r, a| wide(r, Code::new(Distance(0)), 2, &PREL, a, 4).ret()),
    form("MOVW_PREL_G1", Wants::Address, Reach::Arena, |r, a| wide(r, Code::new(Distance(0)), 1, &PREL, a, 4).ret()),
    form("MOVW_PREL_G0", Wants::Address, Reach::Section(0xff00), |r, a| {
        wide(r, Code::new(Distance(0)), 0, &PREL, a, 4).ret()
    }),
    // ---- through the GOT ----
    often(
        8,
        form("ADR_GOT_PAGE, LD64_GOT_LO12_NC", Exact, Reach::All, |r, _| {
            let reg = register(r);
            let code = Code::new(Address).at(r, ADRP | reg, ADR_GOT_PAGE, On::Target, 0);
            code.at(r, LDR | reg << 5, LD64_GOT_LO12, On::Target, 0).ret()
        }),
    ),
    form("LD64_GOTPAGE_LO15", Exact, Reach::All, |r, _| {
        got_page(r, Code::new(Address)).at(r, LDR | 1 << 5, LD64_GOTPAGE_LO15, On::Target, 0).ret()
    }),
    form("LD64_GOTOFF_LO15", Exact, Reach::All, |r, _| {
        got(r, Code::new(Address)).at(r, LDR | 1 << 5, LD64_GOTOFF_LO15, On::Target, 0).ret()
    }),
    form("GOT_LD_PREL19", Exact, Reach::All, |r, _| {
        Code::new(Address).at(r, 0x5800_0000, GOT_LD_PREL19, On::Target, 0).ret()
    }),
    form("MOVW_GOTOFF", Exact, Reach::All, |r, _| {
        let top = r.below(4);
        let code = got(r, Code::new(Address));
        wide(r, code, top, &GOTOFF, 0, 0).word(0xf860_6820).ret()
    }),
    // ldr x0, .+12; add x0, x0, x1; ret
    form("GOTREL64", Wants::Address, Reach::All, |r, a| {
        let code = got(r, Code::new(Address)).word(0x5800_0060).word(0x8b01_0000).ret();
        code.field(r, 8, GOTREL64, On::Target, a)
    }),
    // The same with ldrsw.
    form("GOTREL32", Wants::Address, Reach::Arena, |r, a| {
        let code = got(r, Code::new(Address)).word(0x9800_0060).word(0x8b01_0000).ret();
        code.field(r, 4, GOTREL32, On::Target, a)
    }),
    // ---- data ----
    often(
        8,
        data("ABS64", Wants::Address, Reach::All, |r, a| {
            Code::datum(r, ABS64, a, Datum(8, Sign::Unsigned, Formula::Absolute))
        }),
    ),
    data("ABS32", Wants::Address, Reach::Low(32), |r, a| {
        Code::datum(r, ABS32, a, Datum(4, Sign::Either, Formula::Absolute))
    }),
    data("ABS16", Wants::Address, Reach::Low(16), |r, a| {
        Code::datum(r, ABS16, a, Datum(2, Sign::Either, Formula::Absolute))
    }),
    data("PREL64", Wants::Address, Reach::All, |r, a| {
        Code::datum(r, PREL64, a, Datum(8, Sign::Signed, Formula::Relative))
    }),
    often(
        8,
        data("PREL32", Wants::Address, Reach::Arena, |r, a| {
            Code::datum(r, PREL32, a, Datum(4, Sign::Either, Formula::Relative))
        }),
    ),
    data("PREL16", Wants::Address, Reach::Section(0x7f00), |r, a| {
        Code::datum(r, PREL16, a, Datum(2, Sign::Either, Formula::Relative))
    }),
    data("PLT32", Function, Reach::Arena, |r, _| Code::datum(r, PLT32, 0, CallDatum(4))),
    data("GOTPCREL32", Exact, Reach::All, |r, _| {
        let more = [0, 8, -0x1234][r.below(3)];
        Code::datum(r, GOTPCREL32, more, GotDatum(4, more))
    }),
];
