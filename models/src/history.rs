//! What is known of an address, while others come to lie there.

use std::ops::Range;

use loom::sync::Arc;
use loom::thread;

use self::occupant::{Occupant, RemovalTime};
use self::record::{Readers, Record, Seen};
use crate::functions::{FunctionTable, SymbolTables, number};
use crate::model;
use crate::name::Name;

#[path = "../../src/memory/address_log/record.rs"]
mod record;

#[path = "../../src/memory/address_log/directory.rs"]
mod directory;

mod list;

mod occupant {
    use std::time::{Duration, SystemTime};

    use crate::name::ShortName;

    pub(super) struct Occupant {
        pub(super) start: usize,
        pub(super) library: ShortName,
        pub(super) object: ShortName,
        pub(super) generation: u64,
        pub(super) removed: Option<SystemTime>,
        pub(super) function: Option<(ShortName, usize)>,
        pub(super) frames: u64,
    }

    #[derive(Clone, Copy)]
    pub(super) struct RemovalTime(pub(super) u64);

    impl From<RemovalTime> for SystemTime {
        fn from(time: RemovalTime) -> Self {
            Self::UNIX_EPOCH + Duration::from_nanos(time.0)
        }
    }
}

const PAGE: usize = 4096;
/// In the range of every generation.
const ADDRESS: usize = 16 * PAGE;

/// Where the object of a generation lies.
fn range(generation: u64) -> Range<usize> {
    ADDRESS - generation as usize * PAGE..ADDRESS + PAGE
}

#[derive(Default)]
struct Known {
    record: Record,
    readers: Readers,
}

impl Known {
    /// Its names say the same. One of them is a number.
    fn write(&self, seen: &mut Seen, generation: u64) {
        let text = || Name::Given(generation.to_string().into());
        let number = || Name::Number(generation as u32);
        let (library, object) = if generation.is_multiple_of(2) { (number(), text()) } else { (text(), number()) };
        let functions = (Some(FunctionTable::new(generation)), generation as u32);
        self.record.write(seen, &range(generation), generation, (library, object), functions);
    }

    /// As `History::forget`.
    fn forget(&self, seen: &mut Seen) {
        self.record.clear(seen, &self.readers).into_iter().for_each(|cleared| drop(cleared.functions));
    }

    fn read(&self) -> Option<Occupant> {
        let reading = self.readers.enter();
        let known = self.record.read(ADDRESS, SymbolTables, &reading)?;
        assert_eq!(known.start, range(known.generation).start);
        assert_eq!((known.library.0, known.object.0), (known.generation, known.generation));
        assert_eq!((number(known.function), known.frames), (known.generation, known.generation));
        // Another may be there now, or none.
        self.record.functions(SymbolTables, &reading).iter().for_each(|(name, _)| assert!(name.parse::<u64>().is_ok()));
        Some(known)
    }
}

/// A writer, to which the first generation is known, beside others that read.
fn beside<const READERS: usize>(write: fn(&Known, &mut Seen), read: fn(&Known)) {
    model(move || {
        let known = Arc::new(Known::default());
        let mut seen = Seen::default();
        known.write(&mut seen, 1);
        let readers = [(); READERS].map(|()| {
            let known = Arc::clone(&known);
            thread::spawn(move || read(&known))
        });
        write(&known, &mut seen);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn what_is_read_belongs_together() {
    let write = |known: &Known, seen: &mut Seen| {
        known.forget(seen);
        known.write(seen, 2);
    };
    beside::<1>(write, |known| _ = known.read());
}

#[test]
fn names_stay_as_long_as_anybody_reads_them() {
    let write = |known: &Known, seen: &mut Seen| {
        known.forget(seen);
        known.write(seen, 2);
        known.forget(seen);
    };
    beside::<1>(write, |known| _ = known.read());
}

#[test]
fn names_stay_until_the_last_of_several_readers_has_left() {
    beside::<2>(Known::forget, |known| _ = known.read());
}

#[test]
fn what_comes_after_something_removed_is_not_removed() {
    let write = |known: &Known, seen: &mut Seen| {
        known.record.remove(RemovalTime(1));
        known.forget(seen);
        known.write(seen, 2);
    };
    let read = |known: &Known| {
        if let Some(known) = known.read() {
            assert!(known.generation == 1 || known.removed.is_none());
        }
    };
    beside::<1>(write, read);
}
