//! Registers sections of objects whose code lies side by side as one, for libgcc before 13, which keeps sections in
//! lists. Deregistration goes through those lists, and the first throw sorts them; with 100 000 sections the one took
//! 0.2 ms and the other 11 s.
//!
//! Other threads may throw meanwhile, through code that stays. libgcc 12 works as follows (`_Unwind_Find_FDE`):
//!
//! - It looks into the first sorted entry that begins at or before an address, and no further, and then into the
//!   unsorted entries. So nothing may be registered that lies within the bounds of a group. Where a group takes the
//!   place of others, it is registered, then they are deregistered, the lowest first; where others take the place of a
//!   group, they are registered, the highest first, and then it is deregistered. At each moment, the entry that is
//!   found first for an address has it, or none is found first that has not.
//! - It reads its notes on the entry it has found after it has unlocked them. So an object keeps all notes that it was
//!   ever found by ([`Member::past`]): a thread that unwinds its code keeps the object. An object that is removed needs
//!   none: no thread unwinds its code. Nor are notes kept into which libgcc has not looked: by those, nothing was found.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::fork_guard::Mutex;
use crate::live::unwind::unwinder::{__deregister_frame_info, __register_frame_info};

/// The range of an object's code in an arena, without another object's in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CodeRange {
    pub(crate) addresses: Range<u64>,
    /// The start of the arena.
    pub(crate) arena: u64,
}

unsafe extern "C" {
    // libgcc: an array of sections that ends in a null pointer, and memory for its notes.
    fn __register_frame_info_table(sections: *const c_void, notes: *mut c_void);
    // The record of the function that contains an address, and three addresses (`struct dwarf_eh_bases`).
    fn _Unwind_Find_FDE(pc: *const c_void, bases: *mut [usize; 3]) -> *const c_void;
}

/// The size of small groups: neighbours are merged after so many changes, and where groups would have fewer than half of
/// it on average.
const SOME: usize = 8;
/// The number of changes after which all groups around the last one are merged.
const CHANGES: usize = MOST / 2;
/// The largest size of a group. Once somebody has thrown, a group of at least half of it is sorted when it is made,
/// unless it is the last one and may soon grow. The next throw sorts the others.
const MOST: usize = 256;
/// The most parts that a group is divided into where one member is taken out: one on each side for each time it is
/// halved.
const MOST_PIECES: usize = 2 * MOST.ilog2() as usize;

/// Returns how many past groups bar a section from a group of `members`: notes stay until the section goes, and among
/// neighbours that come and go all the time their number would grow without limit.
const fn most_past(members: usize) -> usize {
    if members > SOME { 24 } else { 64 }
}

/// The groups of all engines.
pub(super) static GROUPS: Mutex<Groups> = Mutex::new(Groups::new());

/// Groups by the start of their first code. None begins within another.
pub(super) struct Groups {
    by_code: BTreeMap<u64, Group>,
    members: usize,
    /// The number of additions and removals.
    changes: usize,
    /// The start of the large group that was not sorted.
    unsorted: Option<u64>,
    /// Whether libgcc has ever looked into a group.
    searched: bool,
}

/// Neighbours, by ascending addresses.
struct Group {
    members: Vec<Member>,
    registered: Registered,
}

/// An object's section.
pub(super) struct Member {
    code: CodeRange,
    section: NonZero<u64>,
    /// True if it may be in no group, nor lie within one.
    alone: bool,
    /// The notes of groups that it was in.
    past: Vec<Arc<Notes>>,
}

/// libgcc's `struct object` (unwind-dw2-fde.h): six words, or seven. The first is the lowest address that it describes,
/// and the highest one there is until it is searched for the first time.
struct Notes(UnsafeCell<[usize; 7]>);

// SAFETY: while it is registered, only libgcc uses what is in it, under its lock; afterwards, all only read it.
unsafe impl Send for Notes {}
// SAFETY: as above.
unsafe impl Sync for Notes {}

impl Member {
    /// # Safety
    /// As for [`Frames::register_all`](super::Frames::register_all), until the member is removed.
    pub(super) unsafe fn new(code: CodeRange, section: NonZero<u64>, alone: bool) -> Self {
        Self { code, section, alone, past: Vec::new() }
    }
}

impl Groups {
    pub(super) const fn new() -> Self {
        Self { by_code: BTreeMap::new(), members: 0, changes: 0, unsorted: None, searched: false }
    }

    /// Registers a section.
    fn add(&mut self, member: Member) {
        let code = member.code.addresses.start;
        self.divide_at(code);
        self.by_code.insert(code, Group::register(vec![member]));
        self.members += 1;
        self.changed(code, 1);
    }

    /// Registers sections: neighbours without another between them as groups.
    pub(super) fn add_all(&mut self, mut members: SmallVec<[Member; 1]>) {
        if members.len() == 1 {
            return members.into_iter().for_each(|member| self.add(member));
        }
        members.sort_unstable_by_key(|member| member.code.addresses.start);
        let mut members = members.into_iter().peekable();
        while let Some(member) = members.next() {
            let (first, arena, alone) = (member.code.addresses.start, member.code.arena, member.alone);
            self.divide_at(first);
            let mut group = vec![member];
            let end = self.by_code.range(first..).next().map_or(u64::MAX, |(next, _)| *next);
            let joins =
                |next: &Member| !alone && !next.alone && next.code.arena == arena && next.code.addresses.start < end;
            while group.len() < MOST
                && let Some(next) = members.next_if(joins)
            {
                group.push(next);
            }
            let added = group.len();
            self.members += added;
            let group = Group::register(group);
            if added >= MOST / 2 && self.searched {
                group.sort();
            }
            self.by_code.insert(first, group);
            self.changed(first, added);
        }
    }

    /// Divides the group around a place, where a section was removed, so that another can be there.
    fn divide_at(&mut self, code: u64) {
        if let Some((&first, group)) = self.by_code.range(..code).next_back()
            && group.members.last().is_some_and(|last| last.code.addresses.start > code)
        {
            let at = group.members.partition_point(|other| other.code.addresses.start < code);
            self.split(first, &[], at, &mut SmallVec::new());
        }
    }

    /// Deregisters the sections of objects whose code begins there, by ascending addresses.
    #[must_use = "they are dropped when nothing is locked"]
    pub(super) fn remove(&mut self, mut code: &[u64]) -> SmallVec<[Member; 1]> {
        let mut removed = SmallVec::with_capacity(code.len());
        while let Some((&next, others)) = code.split_first() {
            let Some((&first, group)) = self.by_code.range(..=next).next_back() else {
                code = others;
                continue;
            };
            let end = group.members.last().map_or(0, |last| last.code.addresses.start + 1).max(next + 1);
            let (here, others) = code.split_at(code.partition_point(|start| *start < end));
            code = others;
            let mut members = group.members.iter().map(|member| member.code.addresses.start).enumerate().peekable();
            let at = |start: &u64| {
                while members.next_if(|(_, other)| other < start).is_some() {}
                members.next_if(|(_, other)| other == start).map(|(at, _)| at)
            };
            let all_go = here.len() == group.members.len();
            let mut out = SmallVec::<[usize; 4]>::with_capacity(here.len());
            out.extend(here.iter().filter_map(at));
            if out.is_empty() {
                continue;
            }
            self.members -= out.len();
            self.split(first, &out, 0, &mut removed);
            // Nothing is divided where all go.
            self.changed(next, if all_go { 1 } else { out.len() });
        }
        removed
    }

    /// Counts so many additions or removals at an address.
    fn changed(&mut self, code: u64, members: usize) {
        let before = self.changes;
        self.changes = self.changes.wrapping_add(members);
        let are_many = |changes| self.changes / changes != before / changes;
        let (some, most) = (are_many(SOME), are_many(CHANGES));
        // libgcc goes through the later ones when one is deregistered.
        if some || self.by_code.len() > self.members / (SOME / 2) + 2 * SOME {
            self.merge(code, SOME);
        }
        if most {
            self.merge(code, MOST);
        }
    }

    /// Merges smaller groups around an address, if that makes one of at least half of `most`.
    fn merge(&mut self, around: u64, most: usize) {
        let mut near = self.by_code.range(..=around).rev().chain(self.by_code.range(around..));
        let Some(arena) = near.next().and_then(|(_, group)| group.members.first()).map(|m| m.code.arena) else {
            return;
        };
        let fits = |group: &Group, total: usize| {
            let may = |m: &Member| m.code.arena == arena && !m.alone && m.past.len() < most_past(most);
            group.members.len() < most && total + group.members.len() <= most && group.members.iter().all(may)
        };
        let mut total = 0;
        let mut run = Vec::new();
        for (first, group) in self.by_code.range(..=around).rev() {
            if !fits(group, total) {
                break;
            }
            total += group.members.len();
            run.push(*first);
        }
        run.reverse();
        for (first, group) in self.by_code.range(around + 1..) {
            if !fits(group, total) {
                break;
            }
            total += group.members.len();
            run.push(*first);
        }
        if run.len() < 2 || total < most / 2 {
            return;
        }
        let old: Vec<Group> = run.iter().filter_map(|first| self.by_code.remove(first)).collect();
        let (mut members, mut before) = (Vec::with_capacity(total), Vec::with_capacity(old.len()));
        for group in old {
            before.push((members.len()..members.len() + group.members.len(), group.registered));
            members.extend(group.members);
        }
        let mut merged = Group::register(members);
        for (range, registered) in before {
            self.searched |= registered.end(merged.members.get_mut(range).unwrap_or_default());
        }
        self.put(merged);
        if total >= MOST / 2 && self.searched {
            self.sort(run.first().copied(), total);
        }
    }

    /// Sorts the large group that was registered last, unless it may soon be merged once more, and the one before that
    /// was left so.
    fn sort(&mut self, last: Option<u64>, members: usize) {
        let is_full = members > MOST - SOME;
        let before = self.unsorted.take().filter(|before| Some(*before) != last);
        for group in before.into_iter().chain(last.filter(|_| is_full)) {
            self.by_code.get(&group).into_iter().for_each(Group::sort);
        }
        self.unsorted = last.filter(|_| !is_full);
    }

    /// Takes members out of a group, which it divides in halves, and so on, until each part has none of them, or
    /// nothing else, and does not reach over `cut`. Halves, so that each member's group changes only a few times until
    /// it is by itself, too.
    fn split(&mut self, first: u64, out: &[usize], cut: usize, removed: &mut SmallVec<[Member; 1]>) {
        let Some(Group { members: mut rest, registered }) = self.by_code.remove(&first) else { return };
        let mut parts = SmallVec::new();
        divide(0..rest.len(), out, cut, &mut parts);
        let mut pieces = SmallVec::<[Group; MOST_PIECES]>::new();
        for part in parts.into_iter().rev() {
            removed.extend(rest.drain(part.end..));
            let mut piece = if part.start == 0 { std::mem::take(&mut rest) } else { rest.split_off(part.start) };
            // The first has the memory of all.
            piece.shrink_to(2 * piece.len());
            pieces.push(Group::register(piece));
        }
        removed.extend(rest);
        self.searched |= registered.end(pieces.iter_mut().flat_map(|piece| &mut piece.members));
        pieces.into_iter().for_each(|piece| self.put(piece));
    }

    fn put(&mut self, group: Group) {
        if let Some(first) = group.members.first() {
            self.by_code.insert(first.code.addresses.start, group);
        }
    }
}

/// Lists the parts that are left of a group where some members are taken out, in halves.
fn divide(within: Range<usize>, out: &[usize], cut: usize, parts: &mut SmallVec<[Range<usize>; MOST_PIECES]>) {
    if out.len() == within.len() {
        return;
    }
    if out.is_empty() && !(within.start + 1..within.end).contains(&cut) {
        return parts.push(within);
    }
    let middle = within.start + within.len() / 2;
    let (left, right) = out.split_at(out.partition_point(|at| *at < middle));
    divide(within.start..middle, left, cut, parts);
    divide(middle..within.end, right, cut, parts);
}

impl Group {
    fn register(members: Vec<Member>) -> Self {
        let registered = Registered::new(&members);
        Self { members, registered }
    }

    /// Has libgcc sort the group now, and those that were registered later: a throw would do it for all groups at once.
    fn sort(&self) {
        let Some(member) = self.members.first() else { return };
        let code = member.code.addresses.start as *const c_void;
        let mut bases = [0; 3];
        // SAFETY: the address is only looked up, and the result is not used.
        unsafe { _Unwind_Find_FDE(code, &raw mut bases) };
    }
}

/// A registration with libgcc.
struct Registered {
    notes: Arc<Notes>,
    /// A single section by its address.
    begin: u64,
    /// Sections, with a null pointer behind the last.
    array: Box<[u64]>,
}

/// An empty section. An array begins with it, as libgcc takes one whose first 32 bits are zero for empty.
static EMPTY: [u64; 2] = [0; 2];

impl Registered {
    fn new(members: &[Member]) -> Self {
        let notes = Arc::new(Notes(UnsafeCell::new([0; 7])));
        let memory = notes.0.get().cast();
        if let [only] = members {
            let begin = only.section.get();
            // SAFETY: `Frames::register_all` was promised that the section ends with a terminator and stays until it is
            // removed, and it is deregistered before that. The notes stay for longer.
            unsafe { __register_frame_info(begin as *const c_void, memory) };
            #[cfg(test)]
            crate::live::unwind::tests::step();
            return Self { notes, begin, array: Box::default() };
        }
        let empty = (&raw const EMPTY).addr() as u64 + 4;
        let sections = members.iter().map(|member| member.section.get());
        let array: Box<[u64]> = [empty].into_iter().chain(sections).chain([0]).collect();
        // SAFETY: as above; the array stays until it is deregistered.
        unsafe { __register_frame_info_table(array.as_ptr().cast(), memory) };
        #[cfg(test)]
        crate::live::unwind::tests::step();
        Self { notes, begin: 0, array }
    }

    /// Deregisters it. The members that stay keep its notes, if libgcc has ever looked into it, which is returned.
    fn end<'a>(self, members: impl IntoIterator<Item = &'a mut Member>) -> bool {
        let begin = if self.array.is_empty() { self.begin as *const c_void } else { self.array.as_ptr().cast() };
        // SAFETY: it was registered; the sections are still there, as they go only after they were removed.
        unsafe { __deregister_frame_info(begin) };
        #[cfg(test)]
        crate::live::unwind::tests::step();
        // SAFETY: libgcc writes to it under its lock, and no more since it was deregistered, for which it took the lock.
        let lowest = unsafe { *self.notes.0.get() }[0];
        if lowest == usize::MAX {
            return false;
        }
        for member in members {
            // There may be many members, of few groups each: as many notes as fit into what malloc gives for them.
            let (len, room) = (member.past.len(), member.past.capacity());
            if len == room {
                member.past.reserve_exact((2 * room + 1).max(3) - len);
            }
            member.past.push(Arc::clone(&self.notes));
        }
        true
    }
}

#[cfg(test)]
impl Groups {
    pub(super) fn len(&self) -> usize {
        self.by_code.len()
    }

    /// Returns the number of notes that members keep.
    pub(super) fn notes(&self) -> usize {
        self.by_code.values().flat_map(|group| &group.members).map(|member| member.past.len()).sum()
    }

    /// Asserts that there are so many members, in order, and no group that overlaps another or is too large.
    pub(super) fn assert_sound(&self, members: usize) {
        let all: Vec<&Member> = self.by_code.values().flat_map(|group| &group.members).collect();
        assert_eq!(all.len(), members);
        assert!(all.is_sorted_by(|one, next| one.code.addresses.end <= next.code.addresses.start));
        for (first, group) in &self.by_code {
            assert_eq!(group.members[0].code.addresses.start, *first);
            assert!(group.members.len() <= MOST);
            assert!(group.members.len() == 1 || group.members.iter().all(|member| !member.alone));
            // A merge adds a few more than the limit: the group is divided until the member is by itself.
            assert!(group.members.iter().all(|member| member.past.len() <= most_past(SOME) + 8));
        }
    }
}
