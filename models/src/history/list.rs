//! A list that is read while others add and remove.

use loom::sync::Arc as Shared;
use loom::thread;

use super::directory::Directory;
use crate::model;
use crate::sync::{Arc, Box};

type Text = Arc<str>;

fn text(number: u32) -> Box<Text> {
    Box::new(number.to_string().into())
}

/// The pointer is one of this model's threads, of which one writes.
struct Added(*const Text);

// SAFETY: loom's threads take turns.
unsafe impl Send for Added {}

/// A list of one value, which is removed, beside others that read all values.
fn beside<const READERS: usize>(write: fn(&Directory<Text>, Added)) {
    model(move || {
        let list = Shared::new(Directory::<Text>::default());
        let added = Added(list.add(text(1)));
        let readers = [(); READERS].map(|()| {
            let list = Shared::clone(&list);
            thread::spawn(move || {
                let found = list.find(|text| text.parse::<u32>().ok());
                assert!(matches!(found, None | Some(1 | 2)));
            })
        });
        write(&list, added);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn what_is_removed_stays_as_long_as_anybody_reads() {
    beside::<1>(|list, added| {
        let mut removed = Vec::new();
        // SAFETY: of `add`, once.
        if unsafe { list.remove(added.0, &mut removed) } {
            removed.clear();
        } else {
            // Kept, as by the crate.
            std::mem::forget(removed);
        }
    });
}

#[test]
fn its_place_is_taken_by_another() {
    beside::<1>(|list, added| {
        let mut removed = Vec::new();
        // SAFETY: of `add`, once.
        if unsafe { list.remove(added.0, &mut removed) } {
            removed.clear();
        }
        list.add(text(2));
        std::mem::forget(removed);
    });
}

#[test]
fn several_may_read() {
    beside::<2>(|list, added| {
        let mut removed = Vec::new();
        // SAFETY: of `add`, once.
        if unsafe { list.remove(added.0, &mut removed) } {
            removed.clear();
        }
        std::mem::forget(removed);
    });
}

/// A new piece of the list is seen with its value.
#[test]
fn it_grows_beside_readers() {
    model(|| {
        let list = Shared::new(Directory::<Text>::default());
        (1..=16).for_each(|number| _ = list.add(text(number)));
        let reader = {
            let list = Shared::clone(&list);
            thread::spawn(move || {
                let found = list.find(|text| text.parse::<u32>().ok().filter(|number| *number > 16));
                assert!(matches!(found, None | Some(17)));
            })
        };
        list.add(text(17));
        reader.join().unwrap();
    });
}
