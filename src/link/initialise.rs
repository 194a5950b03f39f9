//! Runs resolvers and initialisers of what was linked.
#![allow(unsafe_code)] // runs initialisers

use std::sync::{Arc, Weak};

use super::arrays::{self, Entry};
use super::code::Code;
use super::hold::Kept;
use super::image::Image;
use super::{exit, indirect};
use crate::name::Name;

/// What has to be called for objects that were linked together.
#[derive(Default)]
struct Waiting {
    objects: Vec<Object>,
    /// Initialisers in their order, and whose they are.
    entries: Vec<(usize, Entry)>,
    slots: Vec<(Name, u64)>,
    /// Whether there are finalisers.
    finalisers: bool,
}

/// An object that is being initialised.
struct Object {
    name: Name,
    number: u32,
    /// Where it is among the images.
    position: usize,
    /// Initialisers that have not run.
    left: usize,
}

impl Code {
    /// Runs the initialisers of the objects with these numbers, which were linked together, in the order of
    /// [`arrays`]. On failure says which object failed, and how.
    ///
    /// # Safety
    /// They may be run, and are run by one thread.
    pub(super) unsafe fn initialise(self: &Arc<Self>, numbers: &[u32]) -> Result<(), (Name, String)> {
        #[cfg(feature = "cli")]
        super::outermost::forget_floating_point();
        // Before anything runs: a process that ends in an initialiser has handlers and finalisers to run, as with dlopen.
        if let Some(handlers) = self.handlers() {
            handlers.belong_to(Arc::downgrade(self) as Weak<dyn Kept>);
            self.enlist();
        }
        let Waiting { mut objects, entries, slots, finalisers } = self.take_waiting(numbers);
        // All of them before any initialiser, as the dynamic loader has it: initialisers may call them.
        for (object, slot) in slots {
            // No lock is held: resolvers are linked code like any other.
            // SAFETY: by the caller; the slot is the object's, which is published, and `Image::new` registered its
            // frames.
            unsafe { indirect::resolve(slot) }.map_err(|message| (object, message))?;
        }
        if finalisers {
            self.enlist();
        }
        for (object, entry) in entries {
            let Some(object) = objects.get_mut(object) else { continue };
            if entry.function != 0 {
                // No lock is held: initialisers may look up, load and remove.
                // SAFETY: by the caller; the object is published, and `Image::new` registered its frames.
                unsafe { arrays::call(entry.function) }.map_err(|message| (object.name.clone(), message))?;
            }
            object.left -= 1;
            if object.left == 0 {
                self.set_initialised(object);
            }
        }
        Ok(())
    }

    /// What has to be called for these objects.
    fn take_waiting(&self, numbers: &[u32]) -> Waiting {
        let mut waiting = Waiting::default();
        // Most objects have nothing to call.
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        let mut images = self.images();
        // They lie in the order of the batch.
        for (position, image) in images.iter_mut().enumerate() {
            let Some(arrays) = image.arrays.as_mut().filter(|_| sorted.binary_search(&image.number).is_ok()) else {
                continue;
            };
            waiting.finalisers |= !arrays.finalisers().is_empty();
            waiting.slots.extend(arrays.take_slots().into_iter().map(|slot| (image.object.clone(), slot)));
            let (object, mut entries) = (waiting.objects.len(), arrays.take_initialisers());
            if entries.is_empty() {
                entries.push(Entry::NOTHING);
            }
            let (name, number, left) = (image.object.clone(), image.number, entries.len());
            waiting.objects.push(Object { name, number, position, left });
            waiting.entries.extend(entries.into_iter().map(|entry| (object, entry)));
        }
        arrays::put_in_order(&mut waiting.entries);
        waiting
    }

    fn set_initialised(&self, object: &Object) {
        let mut images = self.images();
        let is = |image: &&mut Image| image.number == object.number;
        // Where it was, unless others before it have gone since.
        let there = images.get(object.position).is_some_and(|image| image.number == object.number);
        let image = if there { images.get_mut(object.position) } else { images.iter_mut().find(is) };
        if let Some(image) = image {
            image.initialised = true;
            // Nobody will ask again.
            image.arrays.take_if(|arrays| arrays.finalisers().is_empty());
        }
    }

    fn enlist(self: &Arc<Self>) {
        if self.is_enlisted_first() {
            exit::enlist(self);
        }
    }
}
