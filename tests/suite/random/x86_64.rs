//! x86-64: what each relocation kind may stand in, and what the psABI says of it. Encodings: Intel SDM volume 2.

use super::probe::{Code, Form, Formula, On, Outcome, Reach, Rule, Sign, Value, Wants};
use crate::common::Random;

pub const MACHINE: u16 = 62;
/// `lea -7(%rip), %rax; ret`: a function that returns its own address.
pub const SELF: [u8; 8] = [0x48, 0x8d, 0x05, 0xf9, 0xff, 0xff, 0xff, 0xc3];
/// Instructions may lie anywhere.
pub const CODE_ALIGN: u64 = 1;
/// `R_X86_64_NONE`
pub const NONE: u32 = 0;

const ABS64: u32 = 1;
const PC32: u32 = 2;
const GOT32: u32 = 3;
const PLT32: u32 = 4;
const GOTPCREL: u32 = 9;
const ABS32: u32 = 10;
const ABS32S: u32 = 11;
const ABS16: u32 = 12;
const PC16: u32 = 13;
const ABS8: u32 = 14;
const PC8: u32 = 15;
const PC64: u32 = 24;
const GOTOFF64: u32 = 25;
const GOTPC32: u32 = 26;
const GOT64: u32 = 27;
const GOTPCREL64: u32 = 28;
const GOTPC64: u32 = 29;
const GOTPLT64: u32 = 30;
const PLTOFF64: u32 = 31;
const SIZE32: u32 = 32;
const SIZE64: u32 = 33;
const PC32_BND: u32 = 39;
const PLT32_BND: u32 = 40;
const GOTPCRELX: u32 = 41;
const REX_GOTPCRELX: u32 = 42;
const CODE_GOTPCRELX: [u32; 3] = [43, 46, 49];

/// Limits: of 32 and 32S by the psABI ("must zero-extend", "must sign-extend"), of the others what their field can
/// hold.
pub fn rule(kind: u32) -> Option<Rule> {
    Some(match kind {
        PC32 | PLT32 | PC32_BND | PLT32_BND => Rule::signed(Value::Relative, 32),
        PC16 => Rule::signed(Value::Relative, 16),
        PC8 => Rule::signed(Value::Relative, 8),
        ABS32 => Rule::unsigned(Value::Absolute, 32),
        ABS32S => Rule::signed(Value::Absolute, 32),
        ABS16 => Rule::either(Value::Absolute, 16),
        ABS8 => Rule::either(Value::Absolute, 8),
        SIZE32 => Rule::unsigned(Value::Absolute, 32),
        GOT32 | GOTPCREL | GOTPCRELX | REX_GOTPCRELX | GOTPC32 | 43 | 46 | 49 => Rule::signed(Value::Got, 32),
        _ => return None,
    })
}

/// Whether JITLink puts a stub of its own between, if the target is not defined in the object.
pub fn has_stub(kind: u32) -> bool {
    matches!(kind, PLT32 | PLT32_BND)
}

const RET: &[u8] = &[0xc3];

/// A register that a function may change.
fn register(random: &mut Random) -> u8 {
    [0, 1, 2, 6, 7, 8, 9, 10, 11][random.below(9)]
}

/// `opcode disp32(%rip), reg` with REX.W; of the prefix two bits mean nothing here.
fn with_rip(random: &mut Random, opcode: u8, register: u8) -> [u8; 3] {
    [0x48 | (register >> 3) << 2 | random.below(4) as u8, opcode, 0x05 | (register & 7) << 3]
}

/// `mov %reg, %rax; ret`
fn returned(register: u8) -> [u8; 4] {
    [0x48 | (register >> 3) << 2, 0x89, 0xc0 | (register & 7) << 3, 0xc3]
}

/// The same with `opcode` and no prefix.
fn call(code: Code) -> Code {
    code.put(&[0x48, 0x83, 0xec, 0x08])
}

fn after_call(code: Code) -> Code {
    code.put(&[0x48, 0x83, 0xc4, 0x08]).put(RET)
}

/// Leaves the address of the GOT in rcx, one way or another.
fn got(random: &mut Random, code: Code) -> Code {
    match random.below(3) {
        0 => code.put(&[0x48, 0x8d, 0x0d]).field(random, 4, PC32, On::Got, -4),
        1 => code.put(&[0x48, 0x8d, 0x0d]).field(random, 4, GOTPC32, On::Got, -4),
        // movabs; lea of the field itself into rdx; add.
        _ => {
            let code = code.put(&[0x48, 0xb9]).field(random, 8, GOTPC64, On::Got, 0);
            code.put(&[0x48, 0x8d, 0x15, 0xf1, 0xff, 0xff, 0xff]).put(&[0x48, 0x01, 0xd1])
        }
    }
}

/// An addend for what is then taken off again.
fn more(random: &mut Random) -> i32 {
    [0, 0, 8, -8, 1, 0x1234, -0x7654][random.below(7)]
}

const fn form(name: &'static str, wants: Wants, reach: Reach, make: fn(&mut Random, i64) -> Code) -> Form {
    Form { name, wants, reach, code: true, weight: 4, since: 15, make }
}

const fn data(name: &'static str, wants: Wants, reach: Reach, make: fn(&mut Random, i64) -> Code) -> Form {
    Form { name, wants, reach, code: false, weight: 4, since: 15, make }
}

const fn since(llvm: u32, mut form: Form) -> Form {
    form.since = llvm;
    form
}

const fn often(weight: usize, mut form: Form) -> Form {
    form.weight = weight;
    form
}

use Outcome::*;
use Wants::{Call, Exact, Function, Read};

/// `add`, `or`, `and`, `xor`: from a register, 64 or 32 bits.
const ALU: [(u8, bool); 4] = [(0x03, false), (0x0b, false), (0x23, true), (0x33, false)];

pub const FORMS: &[Form] = &[
    // ---- direct ----
    often(
        12,
        form("PC32 lea", Wants::Address, Reach::All, |r, a| {
            let reg = register(r);
            let start = with_rip(r, 0x8d, reg);
            Code::new(Address).put(&start).field(r, 4, PC32, On::Target, a - 4).bridged().put(&returned(reg))
        }),
    ),
    form("PC32 lea of 32 bits", Wants::Address, Reach::Arena, |r, a| {
        Code::new(Low32).put(&[0x8d, 0x05]).field(r, 4, PC32, On::Target, a - 4).put(RET)
    }),
    often(
        8,
        form("PC32 mov", Read(8, 1), Reach::Arena, |r, a| {
            let reg = register(r);
            let start = with_rip(r, 0x8b, reg);
            Code::new(Memory(8, false)).put(&start).field(r, 4, PC32, On::Target, a - 4).put(&returned(reg))
        }),
    ),
    form("PC32 movzbl", Read(1, 1), Reach::Arena, |r, a| {
        Code::new(Memory(1, false)).put(&[0x0f, 0xb6, 0x05]).field(r, 4, PC32, On::Target, a - 4).put(RET)
    }),
    form("PC32 movslq", Read(4, 1), Reach::Arena, |r, a| {
        Code::new(Memory(4, true)).put(&[0x48, 0x63, 0x05]).field(r, 4, PC32, On::Target, a - 4).put(RET)
    }),
    form("PC32 imul with a byte behind", Read(8, 1), Reach::Arena, |r, a| {
        Code::new(Memory(8, false)).put(&[0x48, 0x6b, 0x05]).field(r, 4, PC32, On::Target, a - 5).put(&[1, 0xc3])
    }),
    form("PC32 imul with four bytes behind", Read(8, 1), Reach::Arena, |r, a| {
        let code = Code::new(Memory(8, false)).put(&[0x48, 0x69, 0x05]);
        code.field(r, 4, PC32, On::Target, a - 8).put(&[1, 0, 0, 0, 0xc3])
    }),
    form("PC32 call", Call, Reach::All, |r, a| {
        after_call(call(Code::new(Address)).put(&[0xe8]).field(r, 4, PC32, On::Target, a - 4).bridged())
    }),
    form("PC32_BND call", Call, Reach::All, |r, a| {
        after_call(call(Code::new(Address)).put(&[0xf2, 0xe8]).field(r, 4, PC32_BND, On::Target, a - 4).bridged())
    }),
    form("PC32 jmp", Call, Reach::All, |r, a| {
        Code::new(Address).put(&[0xe9]).field(r, 4, PC32, On::Target, a - 4).bridged()
    }),
    form("PC32 je", Call, Reach::All, |r, a| {
        let code = Code::new(Address).put(&[0x31, 0xc0, 0x0f, 0x84]);
        code.field(r, 4, PC32, On::Target, a - 4).bridged().put(&[0x0f, 0x0b])
    }),
    form("PC32 jne that does not jump", Call, Reach::All, |r, a| {
        let code = Code::new(Equal(0x1234_5678)).put(&[0x31, 0xc0, 0x0f, 0x85]);
        code.field(r, 4, PC32, On::Target, a - 4).bridged().put(&[0xb8, 0x78, 0x56, 0x34, 0x12, 0xc3])
    }),
    often(
        8,
        form("PLT32 call", Call, Reach::All, |r, a| {
            after_call(call(Code::new(Address)).put(&[0xe8]).field(r, 4, PLT32, On::Target, a - 4).bridged())
        }),
    ),
    form("PLT32_BND call", Call, Reach::All, |r, a| {
        after_call(call(Code::new(Address)).put(&[0xf2, 0xe8]).field(r, 4, PLT32_BND, On::Target, a - 4).bridged())
    }),
    form("PLT32 jmp", Call, Reach::All, |r, a| {
        Code::new(Address).put(&[0xe9]).field(r, 4, PLT32, On::Target, a - 4).bridged()
    }),
    form("PLT32 jle", Call, Reach::All, |r, a| {
        let code = Code::new(Address).put(&[0x31, 0xc0, 0x0f, 0x8e]);
        code.field(r, 4, PLT32, On::Target, a - 4).bridged().put(&[0x0f, 0x0b])
    }),
    form("PC8 jmp", Call, Reach::Section(100), |r, a| {
        Code::new(Address).put(&[0xeb]).field(r, 1, PC8, On::Target, a - 1)
    }),
    form("PC8 je", Call, Reach::Section(100), |r, a| {
        Code::new(Address).put(&[0x31, 0xc0, 0x74]).field(r, 1, PC8, On::Target, a - 1).put(&[0x0f, 0x0b])
    }),
    form("64 movabs", Wants::Address, Reach::All, |r, a| {
        Code::new(Address).put(&[0x48, 0xb8]).field(r, 8, ABS64, On::Target, a).put(RET)
    }),
    form("PC64 movabs", Wants::Address, Reach::All, |r, a| {
        Code::new(Distance(2)).put(&[0x48, 0xb8]).field(r, 8, PC64, On::Target, a).put(RET)
    }),
    form("32 mov", Wants::Address, Reach::Low(32), |r, a| {
        Code::new(Address).put(&[0xb8]).field(r, 4, ABS32, On::Target, a).put(RET)
    }),
    form("32S mov", Wants::Address, Reach::Low(31), |r, a| {
        Code::new(Address).put(&[0x48, 0xc7, 0xc0]).field(r, 4, ABS32S, On::Target, a).put(RET)
    }),
    form("32S mov from memory", Read(8, 1), Reach::Low(31), |r, a| {
        Code::new(Memory(8, false)).put(&[0x48, 0x8b, 0x04, 0x25]).field(r, 4, ABS32S, On::Target, a).put(RET)
    }),
    // ---- through the GOT ----
    often(
        8,
        form("GOTPCREL mov", Exact, Reach::All, |r, _| {
            let reg = register(r);
            let start = with_rip(r, 0x8b, reg);
            Code::new(Address).put(&start).field(r, 4, GOTPCREL, On::Target, -4).put(&returned(reg))
        }),
    ),
    form("GOTPCREL lea and mov", Exact, Reach::All, |r, _| {
        let more = more(r);
        let code = Code::new(Address).put(&[0x48, 0x8d, 0x05]).field(r, 4, GOTPCREL, On::Target, i64::from(more) - 4);
        code.put(&[0x48, 0x8b, 0x80]).put(&(-more).to_le_bytes()).put(RET)
    }),
    form("GOTPCREL push", Exact, Reach::All, |r, _| {
        Code::new(Address).put(&[0xff, 0x35]).field(r, 4, GOTPCREL, On::Target, -4).put(&[0x58, 0xc3])
    }),
    often(
        8,
        form("REX_GOTPCRELX mov", Exact, Reach::All, |r, _| {
            let reg = register(r);
            let start = with_rip(r, 0x8b, reg);
            let start = [start[0] & 0xfc, start[1], start[2]];
            Code::new(Address).put(&start).field(r, 4, REX_GOTPCRELX, On::Target, -4).put(&returned(reg))
        }),
    ),
    form("GOTPCRELX mov of 32 bits", Exact, Reach::All, |r, _| {
        Code::new(Low32).put(&[0x8b, 0x05]).field(r, 4, GOTPCRELX, On::Target, -4).put(RET)
    }),
    often(
        8,
        form("GOTPCRELX call", Function, Reach::All, |r, _| {
            after_call(call(Code::new(Address)).put(&[0xff, 0x15]).field(r, 4, GOTPCRELX, On::Target, -4))
        }),
    ),
    often(
        8,
        form("GOTPCRELX jmp", Function, Reach::All, |r, _| {
            Code::new(Address).put(&[0xff, 0x25]).field(r, 4, GOTPCRELX, On::Target, -4)
        }),
    ),
    form("REX_GOTPCRELX arithmetic", Exact, Reach::All, |r, _| {
        let (opcode, ones) = ALU[r.below(4)];
        let start: &[u8] = if ones { &[0x48, 0x83, 0xc8, 0xff] } else { &[0x31, 0xc0] };
        let code = Code::new(Address).put(start).put(&[0x48, opcode, 0x05]);
        code.field(r, 4, REX_GOTPCRELX, On::Target, -4).put(RET)
    }),
    form("GOTPCRELX arithmetic of 32 bits", Exact, Reach::All, |r, _| {
        let (opcode, ones) = ALU[r.below(4)];
        let start: &[u8] = if ones { &[0x48, 0x83, 0xc8, 0xff] } else { &[0x31, 0xc0] };
        Code::new(Low32).put(start).put(&[opcode, 0x05]).field(r, 4, GOTPCRELX, On::Target, -4).put(RET)
    }),
    form("REX_GOTPCRELX cmp", Exact, Reach::All, |r, _| {
        let code = Code::new(Equal(1)).put(&[0x48, 0xb8]).field(r, 8, ABS64, On::Target, 0);
        let code = code.put(&[0x48, 0x3b, 0x05]).field(r, 4, REX_GOTPCRELX, On::Target, -4);
        code.put(&[0x0f, 0x94, 0xc0, 0x0f, 0xb6, 0xc0, 0xc3])
    }),
    form("REX_GOTPCRELX test", Exact, Reach::All, |r, _| {
        let code = Code::new(IsZero).put(&[0x48, 0x83, 0xc8, 0xff, 0x48, 0x85, 0x05]);
        code.field(r, 4, REX_GOTPCRELX, On::Target, -4).put(&[0x0f, 0x94, 0xc0, 0x0f, 0xb6, 0xc0, 0xc3])
    }),
    form("GOTPCREL64", Exact, Reach::All, |r, _| {
        let more = more(r);
        let code = Code::new(Address).put(&[0x48, 0xb8]).field(r, 8, GOTPCREL64, On::Target, more.into());
        let code = code.put(&[0x48, 0x8d, 0x0d, 0xf1, 0xff, 0xff, 0xff, 0x48, 0x01, 0xc8]);
        code.put(&[0x48, 0x8b, 0x80]).put(&(-more).to_le_bytes()).put(RET)
    }),
    form("GOT64, GOTPLT64", Exact, Reach::All, |r, _| {
        let (more, kind) = (more(r), [GOT64, GOTPLT64][r.below(2)]);
        let code = got(r, Code::new(Address)).put(&[0x48, 0xb8]).field(r, 8, kind, On::Target, more.into());
        code.put(&[0x48, 0x8b, 0x84, 0x01]).put(&(-more).to_le_bytes()).put(RET)
    }),
    form("GOT32", Exact, Reach::All, |r, _| {
        let more = more(r);
        let code = got(r, Code::new(Address)).put(&[0x48, 0xc7, 0xc0]).field(r, 4, GOT32, On::Target, more.into());
        code.put(&[0x48, 0x8b, 0x84, 0x01]).put(&(-more).to_le_bytes()).put(RET)
    }),
    form("GOTOFF64", Wants::Address, Reach::All, |r, a| {
        let code = got(r, Code::new(Address)).put(&[0x48, 0xb8]).field(r, 8, GOTOFF64, On::Target, a);
        code.put(&[0x48, 0x01, 0xc8, 0xc3])
    }),
    form("PLTOFF64", Call, Reach::All, |r, a| {
        let code = got(r, Code::new(Address)).put(&[0x48, 0xb8]).field(r, 8, PLTOFF64, On::Target, a);
        after_call(call(code.put(&[0x48, 0x01, 0xc8])).put(&[0xff, 0xd0]))
    }),
    since(
        20,
        form("SIZE64 movabs", Exact, Reach::All, |r, _| {
            let more = i64::from(more(r));
            Code::new(Size(more)).put(&[0x48, 0xb8]).field(r, 8, SIZE64, On::Target, more).put(RET)
        }),
    ),
    // ---- data ----
    often(
        8,
        data("64", Wants::Address, Reach::All, |r, a| {
            Code::datum(r, ABS64, a, Datum(8, Sign::Unsigned, Formula::Absolute))
        }),
    ),
    data("32", Wants::Address, Reach::Low(32), |r, a| {
        Code::datum(r, ABS32, a, Datum(4, Sign::Unsigned, Formula::Absolute))
    }),
    data("32S", Wants::Address, Reach::Low(31), |r, a| {
        Code::datum(r, ABS32S, a, Datum(4, Sign::Signed, Formula::Absolute))
    }),
    data("16", Wants::Address, Reach::Low(16), |r, a| {
        Code::datum(r, ABS16, a, Datum(2, Sign::Either, Formula::Absolute))
    }),
    data("8", Wants::Address, Reach::Low(8), |r, a| Code::datum(r, ABS8, a, Datum(1, Sign::Either, Formula::Absolute))),
    data("PC64", Wants::Address, Reach::All, |r, a| Code::datum(r, PC64, a, Datum(8, Sign::Signed, Formula::Relative))),
    often(
        8,
        data("PC32", Wants::Address, Reach::Arena, |r, a| {
            Code::datum(r, PC32, a, Datum(4, Sign::Signed, Formula::Relative))
        }),
    ),
    data("PLT32", Function, Reach::All, |r, _| Code::datum(r, PLT32, 0, CallDatum(4))),
    data("PC16", Wants::Address, Reach::Section(0x7f00), |r, a| {
        Code::datum(r, PC16, a, Datum(2, Sign::Signed, Formula::Relative))
    }),
    data("PC8", Wants::Address, Reach::Section(100), |r, a| {
        Code::datum(r, PC8, a, Datum(1, Sign::Signed, Formula::Relative))
    }),
    data("GOTPCREL", Exact, Reach::All, |r, _| {
        let more = i64::from(more(r));
        Code::datum(r, GOTPCREL, more, GotDatum(4, more))
    }),
    data("CODE_*_GOTPCRELX", Exact, Reach::All, |r, _| {
        let (more, kind) = (i64::from(more(r)), CODE_GOTPCRELX[r.below(3)]);
        Code::datum(r, kind, more, GotDatum(4, more))
    }),
    data("GOTPCREL64", Exact, Reach::All, |r, _| {
        let more = i64::from(more(r));
        Code::datum(r, GOTPCREL64, more, GotDatum(8, more))
    }),
    since(20, data("SIZE32", Exact, Reach::All, |r, _| Code::datum(r, SIZE32, 77, SizeDatum(4, 77)))),
    since(
        20,
        data("SIZE64", Exact, Reach::All, |r, _| {
            let more = i64::from(more(r));
            Code::datum(r, SIZE64, more, SizeDatum(8, more))
        }),
    ),
];
