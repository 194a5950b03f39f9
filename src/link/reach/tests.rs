//! Bridges of both machines, run by a small simulator: the result of the rewritten code is compared with the ABI.

use proptest::prelude::*;

use super::*;

const AARCH64_KINDS: [(u32, u32); 5] = [
    (275, 0x9000_0005), // adrp x5
    (274, 0x1000_0005), // adr x5
    (283, 0x9400_0000), // bl
    (280, 0x5400_0001), // b.ne
    (279, 0x3728_0003), // tbnz w3, #5
];

/// `lea` into rax, r13 and rdi; call, jmp, je, jg.
const X86_FORMS: [&[u8]; 7] =
    [&[0x48, 0x8d, 0x05], &[0x4c, 0x8d, 0x2d], &[0x49, 0x8d, 0x3d], &[0xe8], &[0xe9], &[0x0f, 0x84], &[0x0f, 0x8f]];

struct Memory<'a> {
    code: (u64, &'a [u8]),
    rooms: &'a StubAreas,
    places: [(u64, usize); 3],
}

impl Memory<'_> {
    fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        let places = self.places.iter().zip(self.rooms.rooms.iter()).map(|((start, _), room)| (*start, &*room.bytes));
        for (start, bytes) in places.chain([self.code]) {
            if let Some(found) = at.checked_sub(start).and_then(|o| bytes.get(o as usize..)?.get(..N)) {
                return found.try_into().unwrap();
            }
        }
        panic!("nothing at {at:#x}");
    }

    fn word(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }
}

fn signed(value: u32, bits: u32) -> i64 {
    i64::from(value) << (64 - bits) >> (64 - bits)
}

/// Runs AArch64 code from `pc` until it leaves the bridges or comes back to `pc + 4`; conditions hold if `taken`.
/// Returns the final address, and x5.
fn run_aarch64(memory: &Memory<'_>, pc: u64, taken: bool) -> (u64, u64) {
    let (start, mut at, mut x5, mut x16) = (pc, pc, 0, 0);
    for _ in 0..8 {
        let word = memory.word(at);
        let go = |offset: i64| at.wrapping_add_signed(offset);
        at = match word {
            w if w & 0x7c00_0000 == 0x1400_0000 => go(signed(w & 0x3ff_ffff, 26) * 4),
            w if w & 0xff00_0000 == 0x5400_0000 => go(if taken { signed(w >> 5 & 0x7ffff, 19) * 4 } else { 4 }),
            w if w & 0x7e00_0000 == 0x3600_0000 => go(if taken { signed(w >> 5 & 0x3fff, 14) * 4 } else { 4 }),
            w if w & 0xff00_0000 == 0x5800_0000 => {
                let value = u64::from_le_bytes(memory.bytes(go(signed(w >> 5 & 0x7ffff, 19) * 4)));
                match w & 0x1f {
                    5 => x5 = value,
                    16 => x16 = value,
                    register => panic!("x{register} is changed"),
                }
                go(4)
            }
            0xd61f_0200 => x16,
            w => panic!("{w:#010x} at {at:#x}"),
        };
        let inside = (0..4).any(|i| match i {
            3 => at.wrapping_sub(memory.code.0) < memory.code.1.len() as u64 && at == start,
            i => at.wrapping_sub(memory.places[i].0) < memory.places[i].1 as u64,
        });
        if !inside {
            return (at, x5);
        }
    }
    panic!("it runs on and on");
}

fn edge(relocation: u32, offset: usize, target: u64, addend: i64) -> Edge<'static> {
    Edge { relocation, offset, place: Place::AtAddress, addend, target, symbol: b"far" }
}

proptest! {
    #[test]
    fn aarch64_bridges_compute_the_same(
        kind in 0..AARCH64_KINDS.len(),
        base in 0x1_0000_u64..0x1000_0000_0000,
        // The distance from the code to the room.
        gap in prop_oneof![-0x7f0_0000_i64..0x7f0_0000, -0x10_0000_i64..0x10_0000],
        target: u64,
        addend in -0x1_0000_i64..0x1_0000,
        stale: u32,
    ) {
        let (relocation, word) = AARCH64_KINDS[kind];
        // The field's old contents do not matter.
        let mask = match relocation { 275 | 274 => 0x60ff_ffe0, 283 => 0x3ff_ffff, 280 => 0xff_ffe0, _ => 0x7_ffe0 };
        let address = base & !3;
        let room = address.wrapping_add_signed(gap + if gap >= 0 { 8 } else { -64 }) & !7;
        let branch = relocation != 275 && relocation != 274;
        let (target, addend) = if branch { (target & !3, addend & !3) } else { (target, addend) };
        let mut rooms = StubAreas::new([StubArea::new(0, 0, 0), StubArea::new(room, 48, 0), StubArea::new(0, 0, 0)]);
        let mut content = (word | stale & mask).to_le_bytes();
        let edge = edge(relocation, 0, target, addend);
        prop_assert!(aarch64_bridges::cost(&edge, true).code <= 48);
        prop_assert_eq!(aarch64_bridges::cost(&edge, false).code, 0);
        let mut block = Block { section: ".text", executable: false, address, content: &mut content, origin: None };
        prop_assert!(aarch64_bridges::bridge(&edge, &mut block, &mut rooms).is_none());
        block.executable = true;
        prop_assert!(aarch64_bridges::bridge(&edge, &mut block, &mut rooms).is_some());

        let value = target.wrapping_add_signed(addend);
        let used = rooms.rooms[1].used as u64;
        prop_assert!(used <= aarch64_bridges::cost(&edge, true).code, "{used} bytes used");
        let places = [(0, 0), (room, used as usize), (0, 0)];
        let memory = Memory { code: (address, &content), rooms: &rooms, places };
        let next = address.wrapping_add(4);
        match relocation {
            275 => prop_assert_eq!(run_aarch64(&memory, address, true), (next, value & !0xfff)),
            274 => prop_assert_eq!(run_aarch64(&memory, address, true), (next, value)),
            283 => {
                prop_assert_eq!(run_aarch64(&memory, address, true).0, value);
                prop_assert_eq!(u32::from_le_bytes(content) & 0xfc00_0000, 0x9400_0000);
            }
            _ => {
                prop_assert_eq!(run_aarch64(&memory, address, true), (value, 0));
                prop_assert_eq!(run_aarch64(&memory, address, false), (next, 0));
            }
        }
    }

    #[test]
    fn x86_64_bridges_compute_the_same(
        form in 0..X86_FORMS.len(),
        base in 0x1_0000_u64..0x1000_0000_0000,
        gap in -0x7fff_0000_i64..0x7fff_0000,
        target: u64,
        addend in -0x1_0000_i64..0x1_0000,
        stale: u32,
    ) {
        let code = X86_FORMS[form];
        let lea = code[1..].first() == Some(&0x8d);
        let addend = if lea { addend } else { -4 };
        let room = base.wrapping_add_signed(gap) & !7;
        let mut rooms = StubAreas::new([StubArea::new(0, 0, 0xcc), StubArea::new(room, 8, 0xcc), StubArea::new(room + 8, 8, 0)]);
        let mut content = [code, &stale.to_le_bytes()].concat();
        let edge = edge(if lea { 2 } else { 4 }, code.len(), target, addend);
        let cost = x86_64_bridges::cost(&edge, &content);
        prop_assert_eq!((cost.code, cost.data), if lea { (0, 8) } else { (8, 8) });
        prop_assume!((room as i64 - base as i64).abs() < 0x7fff_0000);
        prop_assert!(x86_64_bridges::bridge(&edge, base, &mut content, &mut rooms).is_some());

        let memory = Memory { code: (base, &content), rooms: &rooms, places: [(0, 0), (room, 8), (room + 8, 8)] };
        let end = base + content.len() as u64;
        let relative = |end: u64, field: [u8; 4]| end.wrapping_add_signed(i32::from_le_bytes(field).into());
        let to = relative(end, content[code.len()..].try_into().unwrap());
        let value = if lea {
            // Only LEA became MOV: prefix and registers are unchanged.
            prop_assert_eq!(&content[..3], &[code[0], 0x8b, code[2]][..]);
            u64::from_le_bytes(memory.bytes(to))
        } else {
            prop_assert_eq!(&content[..code.len()], code);
            let stub: [u8; 6] = memory.bytes(to);
            prop_assert_eq!(&stub[..2], &[0xff, 0x25][..]);
            u64::from_le_bytes(memory.bytes(relative(to + 6, stub[2..].try_into().unwrap())))
        };
        prop_assert_eq!(value, target.wrapping_add_signed(addend + 4));
    }
}

#[test]
fn what_is_reserved_is_never_exceeded_and_what_is_shared_takes_no_more() {
    let mut reach = Reach::new(EM_AARCH64, OutOfRange::Bridge, 0x7f00_0000_0000..0x7f00_4000_0000);
    let mut code: Vec<u8> = (0..64).flat_map(|_| 0x9000_0000_u32.to_le_bytes()).collect();
    let edges = || (0..64).map(|i| edge(275, 4 * i, 0x1234_5678, 8));
    reach.survey(256, true, &code, edges().map(|e| (e, None)));
    let [head, tail, data] = reach.reserve();
    assert_eq!((head, tail, data), (0, 64 * 16, 0));
    reach.settle([(0, 0), (0x7f00_0000_1000, tail as usize), (0, 0)], 0);
    for edge in edges() {
        let address = 0x7f00_0000_0000;
        let mut block = Block { section: ".text", executable: true, address, content: &mut code, origin: None };
        assert!(reach.check(&edge, &mut block, None, Local::default(), |_| None));
    }
    assert_eq!(reach.bridges(), 64);
    assert_eq!(reach.rooms.rooms[1].used, 8, "one literal serves all");
}

/// A reference for which nothing is reserved reaches wherever its two ends may be.
#[test]
fn what_needs_no_room_is_in_range() {
    let sizes = [0, 1, 1 << 19, 1 << 20, (1 << 29) - (1 << 19), 1 << 29, (1 << 31) - 1, 1 << 31];
    let with_addends = |(bytes, target)| {
        sizes.into_iter().flat_map(move |by| [by as i64, -(by as i64)].map(|addend| (bytes, target, addend)))
    };
    let kinds = |machine| Table::of(machine).kinds().iter().map(move |kind| (machine, kind));
    for (machine, kind) in [EM_X86_64, EM_AARCH64].into_iter().flat_map(kinds) {
        let page = match kind.operation {
            Operation::Relative => 0,
            Operation::PageRelative => 4096,
            _ => continue,
        };
        let mut reach = Reach::new(machine, OutOfRange::Bridge, 0..(2 << 30) - (32 << 20));
        for (bytes, target, addend) in sizes.into_iter().flat_map(|b| sizes.map(|t| (b, t))).flat_map(with_addends) {
            reach.bytes = bytes;
            // As far from each other as they may be.
            let apart = i128::from(bytes + PADDING);
            for (place, offset) in [(Place::SameBlock, bytes as usize), (Place::OtherBlock, 0)] {
                let edge = Edge { relocation: kind.number, offset, place, addend, target, symbol: b"" };
                if reach.may_be_out_of_range(kind, &edge) {
                    continue;
                }
                let distances = match place {
                    Place::SameBlock => [i128::from(target) - i128::from(bytes); 2],
                    _ => [-apart, apart],
                };
                for distance in distances {
                    let value = distance + i128::from(addend);
                    assert!(kind.fits(value - page) && kind.fits(value + page), "{}: {edge:?} of {bytes}", kind.name);
                }
            }
        }
    }
}

#[test]
fn nothing_is_reserved_for_what_reaches() {
    let arena = 0x7f00_0000_0000..0x7f00_4000_0000;
    let reserved = |machine, code: &[u8], edge: Edge<'static>| {
        let mut reach = Reach::new(machine, OutOfRange::Bridge, arena.clone());
        reach.survey(4096, true, code, std::iter::once((edge, None)));
        reach.reserve()
    };
    let near = arena.end as u64 + 4096;
    let lea = [0x48, 0x8d, 0x05, 0, 0, 0, 0];
    assert_eq!(reserved(EM_X86_64, &lea, edge(2, 3, near, -4)), [0, 0, 0]);
    assert_eq!(reserved(EM_X86_64, &lea, edge(2, 3, near + (1 << 31), -4)), [0, 0, 8]);
    let adrp = 0x9000_0000_u32.to_le_bytes();
    assert_eq!(reserved(EM_AARCH64, &adrp, edge(275, 0, near + (1 << 31), 0)), [0, 0, 0]);
    assert_eq!(reserved(EM_AARCH64, &adrp, edge(275, 0, near + (1 << 32), 0)), [0, 16, 0]);
    // Calls go through JITLink's stubs in the object.
    let stub = Edge { place: Place::OtherBlock, ..edge(283, 0, 0, 0) };
    assert_eq!(reserved(EM_AARCH64, &adrp, stub), [0, 0, 0]);
}

#[test]
fn aarch64_instructions_decide_which_kind_an_edge_is() {
    let reach = Reach::new(EM_AARCH64, OutOfRange::Bridge, 0..1);
    // As encoded by llvm-mc 22.
    let cases = [
        (277, 0x9100_0000, "R_AARCH64_ADD_ABS_LO12_NC"),     // add x0, x0, #0
        (277, 0x3940_0000, "R_AARCH64_LDST8_ABS_LO12_NC"),   // ldrb w0, [x0]
        (277, 0x7940_0000, "R_AARCH64_LDST16_ABS_LO12_NC"),  // ldrh w0, [x0]
        (277, 0xb900_0000, "R_AARCH64_LDST32_ABS_LO12_NC"),  // str w0, [x0]
        (277, 0xfd40_0000, "R_AARCH64_LDST64_ABS_LO12_NC"),  // ldr d0, [x0]
        (277, 0x3dc0_0000, "R_AARCH64_LDST128_ABS_LO12_NC"), // ldr q0, [x0]
        (264, 0xd280_0000, "R_AARCH64_MOVW_UABS_G0_NC"),     // movz x0, #0
        (264, 0xf2a0_0000, "R_AARCH64_MOVW_UABS_G1_NC"),     // movk x0, #0, lsl #16
        (264, 0xf2c0_0000, "R_AARCH64_MOVW_UABS_G2_NC"),     // movk x0, #0, lsl #32
        (264, 0xf2e0_0000, "R_AARCH64_MOVW_UABS_G3"),        // movk x0, #0, lsl #48
    ];
    for (relocation, word, name) in cases {
        let content = u32::to_le_bytes(word);
        assert_eq!(reach.kind(&edge(relocation, 0, 0, 0), &content).map(|k| k.name), Some(name));
        // The field's old contents do not survive, whatever JITLink does with them.
        let stale = if relocation == 277 { 0x3f_fc00 } else { 0x1f_ffe0 };
        let mut dirty = u32::to_le_bytes(word | stale);
        let mut block = Block { section: ".text", executable: true, address: 0, content: &mut dirty, origin: None };
        let mut reach = Reach::new(EM_AARCH64, OutOfRange::Bridge, 0..1);
        assert!(!reach.check(&edge(relocation, 0, 0x1000, 0), &mut block, None, Local::default(), |_| None));
        assert_eq!(dirty, content, "{name}");
    }
}
