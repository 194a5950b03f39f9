use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use smallvec::smallvec;

use crate::live::unwind::groups::{Groups, Member};
use crate::live::unwind::unwinder::{Unwinder, describing};
use crate::live::unwind::{CodeRange, frame_records};

unsafe extern "C" {
    // libgcc: the FDE of an address. `bases` has text and data base, and where the function begins.
    fn _Unwind_Find_FDE(pc: *const c_void, bases: *mut [usize; 3]) -> *const c_void;
}

/// Returns the FDE that unwinders find for an address, and the start of its code.
fn found(address: u64) -> Option<(u64, u64)> {
    let mut bases = [0; 3];
    // SAFETY: it writes to the bases.
    let fde = unsafe { _Unwind_Find_FDE(address as *const c_void, &mut bases) };
    (!fde.is_null()).then(|| (fde.addr() as u64, bases[2] as u64))
}

/// Addresses that nobody runs, and sections that describe them, one for each slot.
struct LoadedLibrary {
    memory: Vec<u64>,
    sections: Vec<[u32; 12]>,
}

impl LoadedLibrary {
    const SLOT: u64 = 64;

    fn new(slots: usize) -> Self {
        let memory = vec![0; slots * (Self::SLOT as usize / 8)];
        let mut code = Self { memory, sections: Vec::new() };
        code.sections = (0..slots).map(|slot| describing(code.at(slot), Self::SLOT as u32)).collect();
        code
    }

    fn at(&self, slot: usize) -> u64 {
        self.memory.as_ptr().addr() as u64 + slot as u64 * Self::SLOT
    }

    fn range(&self, slot: usize) -> CodeRange {
        CodeRange { addresses: self.at(slot)..self.at(slot) + Self::SLOT, arena: self.at(0) }
    }

    fn member(&self, slot: usize, alone: bool) -> Member {
        // SAFETY: the sections end in a zero terminator, and stay as long as the groups.
        unsafe { Member::new(self.range(slot), NonZero::new(self.section(slot)).unwrap(), alone) }
    }

    fn section(&self, slot: usize) -> u64 {
        self.sections[slot].as_ptr().addr() as u64
    }

    /// Returns the expected result for a slot.
    fn answer(&self, slot: usize) -> Option<(u64, u64)> {
        Some((self.section(slot) + 16, self.at(slot)))
    }
}

thread_local! {
    static EACH_STEP: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// Notes are kept for those who have found something by them, and for nobody else.
#[test]
fn notes_are_kept_where_somebody_has_looked() {
    if !has_list() {
        return;
    }
    let code = LoadedLibrary::new(300);
    let notes = |looks: bool| {
        let mut groups = Groups::new();
        groups.add_all((0..300).map(|slot| code.member(slot, false)).collect());
        assert!(!looks || found(code.at(7)) == code.answer(7));
        // Of a group of 256.
        assert!(groups.remove(&[code.at(100)]).len() == 1);
        let notes = groups.notes();
        let all: Vec<u64> = (0..300).filter(|slot| *slot != 100).map(|slot| code.at(slot)).collect();
        assert_eq!(groups.remove(&all).len(), 299);
        notes
    };
    assert_eq!(notes(true), 255);
    // Other threads may look at any moment.
    assert!((0..1000).any(|_| notes(false) == 0));
}

/// Lets another thread throw after each registration and deregistration.
pub(super) fn step() {
    EACH_STEP.with_borrow_mut(|each_step| each_step.as_mut().map(|run| run()));
}

fn has_list() -> bool {
    let list = Unwinder::of_process() == Unwinder::List;
    if !list {
        println!("not run: this unwinder has no list");
    }
    list
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// Sections come and go in any order; libgcc finds each that is there, and no other.
    #[test]
    fn libgcc_finds_what_is_there(
        steps in prop::collection::vec((0_usize..900, any::<bool>(), 0..40), 1..2500),
        throws in 1_usize..50,
    ) {
        if !has_list() {
            return Ok(());
        }
        let code = LoadedLibrary::new(900);
        let mut groups = Groups::new();
        let mut there = BTreeMap::new();
        let agrees = |there: &BTreeMap<usize, ()>, step: usize| {
            (0..900).step_by(step).all(|slot| found(code.at(slot) + 63) == there.get(&slot).and_then(|()| code.answer(slot)))
        };
        for (n, (slot, ascending, alone)) in steps.into_iter().enumerate() {
            // Now and then many neighbours come or go at once: all, or every other one.
            if n % 61 == 60 {
                let new = (slot..900.min(slot + 300)).step_by(1 + usize::from(ascending));
                let new: Vec<usize> = new.filter(|slot| there.insert(*slot, ()).is_none()).collect();
                // In any order.
                let members = new.iter().rev().map(|slot| code.member(*slot, alone as usize == slot % 64));
                groups.add_all(members.collect());
                prop_assert!(agrees(&there, 7));
                continue;
            }
            if n % 97 == 96 {
                let gone = (slot..slot + 400).step_by(1 + usize::from(ascending));
                let gone: Vec<usize> = gone.filter(|slot| there.remove(slot).is_some()).collect();
                let addresses: Vec<u64> = gone.iter().map(|slot| code.at(*slot)).collect();
                prop_assert_eq!(groups.remove(&addresses).len(), gone.len());
                prop_assert!(agrees(&there, 7));
                continue;
            }
            // Half of them as a pool gives them: the lowest that is free.
            let slot = if ascending { (0..900).find(|s| !there.contains_key(s)).unwrap_or(slot) } else { slot };
            match there.remove(&slot) {
                Some(()) => prop_assert!(groups.remove(&[code.at(slot)]).len() == 1),
                None => {
                    groups.add_all(smallvec![code.member(slot, alone == 0)]);
                    there.insert(slot, ());
                }
            }
            if n % throws == 0 {
                prop_assert!(agrees(&there, 7));
            }
        }
        groups.assert_sound(there.len());
        prop_assert!(agrees(&there, 1));
        for slot in there.keys() {
            prop_assert!(groups.remove(&[code.at(*slot)]).len() == 1);
        }
        groups.assert_sound(0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Sections that exist before and after a change are found at each moment between, after any earlier lookups.
    #[test]
    fn what_stays_is_found_at_each_step(steps in prop::collection::vec((0_usize..80, any::<u8>()), 1..500)) {
        if !has_list() {
            return Ok(());
        }
        let code = Rc::new(LoadedLibrary::new(81));
        let there = Rc::new(RefCell::new(BTreeSet::new()));
        let (wrong, random) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(0_u8)));
        {
            let (code, there, wrong, random) = (code.clone(), there.clone(), wrong.clone(), random.clone());
            let each_step = move || {
                random.set(random.get().wrapping_mul(5).wrapping_add(113));
                // Nobody has the last slot, so that all are sorted; or some are, as they come.
                match random.get() >> 5 {
                    0 => drop(found(code.at(80))),
                    1 => return,
                    _ => {}
                }
                let there = there.borrow();
                let start = usize::from(random.get()) % 80;
                let missing = (start..80).chain(0..start).find(|slot| there.contains(slot) && found(code.at(*slot)) != code.answer(*slot));
                wrong.set(wrong.get().or(missing));
            };
            EACH_STEP.set(Some(Box::new(each_step)));
        }
        let mut groups = Groups::new();
        for (slot, number) in steps {
            random.set(number);
            if number % 32 == 1 {
                let new: Vec<usize> = (slot..80).step_by(1 + usize::from(number % 64 == 1)).collect();
                let new = new.into_iter().filter(|slot| !there.borrow().contains(slot)).collect::<Vec<_>>();
                groups.add_all(new.iter().map(|slot| code.member(*slot, false)).collect());
                there.borrow_mut().extend(new);
                continue;
            }
            if number % 32 == 0 {
                let gone = (slot..80).step_by(1 + usize::from(number % 64 == 0));
                let gone = gone.filter(|slot| there.borrow_mut().remove(slot));
                let gone: Vec<u64> = gone.map(|slot| code.at(slot)).collect();
                drop(groups.remove(&gone));
                continue;
            }
            if there.borrow_mut().remove(&slot) {
                drop(groups.remove(&[code.at(slot)]));
            } else {
                groups.add_all(smallvec![code.member(slot, false)]);
                there.borrow_mut().insert(slot);
            }
        }
        EACH_STEP.set(None);
        for slot in there.borrow().iter() {
            drop(groups.remove(&[code.at(*slot)]));
        }
        prop_assert_eq!(wrong.get(), None);
    }
}

/// A throw through code that stays finds it while neighbours come and go.
#[test]
fn what_stays_is_found_meanwhile() {
    if !has_list() {
        return;
    }
    const SLOTS: usize = 600;
    let code = LoadedLibrary::new(SLOTS);
    let stays = |slot: usize| slot.is_multiple_of(5);
    let mut groups = Groups::new();
    (0..SLOTS).filter(|slot| stays(*slot)).for_each(|slot| groups.add_all(smallvec![code.member(slot, false)]));
    let done = AtomicBool::new(false);
    let (code, done) = (&code, &done);
    std::thread::scope(|scope| {
        let finders: Vec<_> = (0..3)
            .map(|t| {
                scope.spawn(move || {
                    let mut slot = t;
                    while !done.load(Ordering::Relaxed) {
                        slot = (slot * 7 + 5 + t) % SLOTS;
                        if stays(slot) && found(code.at(slot) + 1) != code.answer(slot) {
                            return Err(slot);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) && !finders.iter().any(|finder| finder.is_finished()) {
            (0..SLOTS)
                .filter(|slot| !stays(*slot))
                .for_each(|slot| groups.add_all(smallvec![code.member(slot, false)]));
            (0..SLOTS)
                .rev()
                .filter(|slot| !stays(*slot) && slot.is_multiple_of(3))
                .for_each(|slot| drop(groups.remove(&[code.at(slot)])));
            (0..SLOTS)
                .filter(|slot| !stays(*slot) && !slot.is_multiple_of(3))
                .for_each(|slot| drop(groups.remove(&[code.at(slot)])));
        }
        done.store(true, Ordering::Relaxed);
        for finder in finders {
            assert_eq!(finder.join().unwrap(), Ok(()));
        }
    });
    (0..SLOTS).filter(|slot| stays(*slot)).for_each(|slot| drop(groups.remove(&[code.at(slot)])));
    groups.assert_sound(0);
}

/// Sections added one after the other are soon in few groups, and most removals one after the other change few.
#[test]
fn neighbours_are_in_few_groups() {
    if !has_list() {
        return;
    }
    const SLOTS: usize = 4096;
    let code = LoadedLibrary::new(SLOTS);
    let mut groups = Groups::new();
    (0..SLOTS).for_each(|slot| groups.add_all(smallvec![code.member(slot, false)]));
    assert!(groups.len() <= SLOTS / 128, "{}", groups.len());
    // The same of batches, most of which are too small to be sorted by themselves.
    for batch in [20, 50, 100, 200] {
        let mut groups = Groups::new();
        for first in (0..SLOTS).step_by(batch) {
            groups.add_all((first..SLOTS.min(first + batch)).map(|slot| code.member(slot, false)).collect());
        }
        assert!(groups.len() <= SLOTS / 96, "{} of batches of {batch}", groups.len());
        (0..SLOTS).for_each(|slot| drop(groups.remove(&[code.at(slot)])));
        groups.assert_sound(0);
    }
    let few =
        |groups: &Groups, members: usize| assert!(groups.len() <= members / 4 + 24, "{} of {members}", groups.len());
    // Every third one, and then one after the other.
    for slot in (0..SLOTS).step_by(3) {
        drop(groups.remove(&[code.at(slot)]));
        few(&groups, SLOTS);
    }
    groups.assert_sound(SLOTS - SLOTS.div_ceil(3));
    for slot in (0..SLOTS).filter(|slot| !slot.is_multiple_of(3)) {
        drop(groups.remove(&[code.at(slot)]));
        few(&groups, SLOTS);
    }
    groups.assert_sound(0);

    // At random, many more come and go than are there.
    let mut random = 1_usize;
    let mut there: Vec<usize> = (0..SLOTS).collect();
    there.iter().for_each(|slot| groups.add_all(smallvec![code.member(*slot, false)]));
    let mut free = Vec::new();
    for _ in 0..SLOTS * 20 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (random >> 33) % there.len();
        let slot = there.swap_remove(at);
        drop(groups.remove(&[code.at(slot)]));
        free.push(slot);
        if free.len() > 64 {
            let slot = free.swap_remove((random >> 17) % 64);
            groups.add_all(smallvec![code.member(slot, false)]);
            there.push(slot);
        }
        few(&groups, SLOTS);
    }
    groups.assert_sound(there.len());
    there.iter().for_each(|slot| drop(groups.remove(&[code.at(*slot)])));
    groups.assert_sound(0);
}

#[test]
fn records_that_describe_something_else_are_seen() {
    let code = LoadedLibrary::new(2);
    let describe_only = |section: u64, slot: usize| {
        // SAFETY: sections of `describing` end in a terminator.
        unsafe { frame_records::describe_only(section as *const c_void, &code.range(slot).addresses) }
    };
    assert!(describe_only(code.section(0), 0));
    assert!(!describe_only(code.section(0), 1));
    // One byte more than there is.
    let longer = describing(code.at(0), 65);
    assert!(!describe_only(longer.as_ptr().addr() as u64, 0));
    // One function, which so many records describe: of more than 1024, the CIE included, none is looked at.
    let one = describing(code.at(0), 64);
    let many = |records: u32| {
        let mut section = one[..4].to_vec();
        for record in 0..records {
            let distance = one[5] + 24 * record;
            section.extend([&one[4..5], &[distance], &one[6..10]].concat());
        }
        section.push(0);
        describe_only(section.as_ptr().addr() as u64, 0)
    };
    assert_eq!([1, 1023, 1024].map(many), [true, true, false]);

    // As compilers write them: "zPLR", with a personality of 4 bytes and pointers relative to themselves
    // (DW_EH_PE_pcrel | sdata4).
    let mut section = Vec::new();
    let cie = [1, b'z', b'P', b'L', b'R', 0, 1, 0x78, 16, 7, 0x9b, 0, 0, 0, 0, 0x1b, 0x1b, 0xc, 7, 8];
    section.extend((cie.len() as u32 + 4).to_le_bytes());
    section.extend([0; 4]);
    section.extend(cie);
    let fde = section.len();
    section.extend(20_u32.to_le_bytes());
    section.extend((fde as u32 + 4).to_le_bytes());
    section.extend([0; 4]);
    section.extend(16_u32.to_le_bytes());
    section.extend([4, 0, 0, 0, 0, 0, 0, 0]);
    section.extend([0; 4]);
    let place = section.as_ptr().addr() as u64 + fde as u64 + 8;
    let describe_only = |code: std::ops::Range<u64>| {
        // SAFETY: as above.
        unsafe { frame_records::describe_only(section.as_ptr().cast(), &code) }
    };
    assert!(describe_only(place..place + 16));
    assert!(!describe_only(place + 1..place + 17));
    assert!(!describe_only(place - 1..place + 15));
}
