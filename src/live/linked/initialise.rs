//! Runs resolvers and initialisers of linked objects.
#![allow(unsafe_code, reason = "runs initialisers")]

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use crate::live::lifetime::atexit;
use crate::live::lifetime::code_ref::Kept;
use crate::live::lifetime::loaded_library::LoadedLibrary;
use crate::live::linked::catching;
use crate::live::linked::ifunc;
use crate::live::linked::image::Image;
use crate::live::linked::init_fini::{self, Entry};
use crate::name::Name;

/// The initialisers to call for objects that were linked together.
#[derive(Default)]
struct Waiting {
    objects: Vec<Object>,
    /// Initialisers in their order, each with the position of its object.
    entries: Vec<(usize, Entry)>,
    /// True if there are finalisers.
    finalisers: bool,
}

/// An object that is being initialised.
struct Object {
    name: Name,
    number: u32,
    /// Its position among the images.
    position: usize,
    /// The number of initialisers that have not run.
    left: usize,
}

impl LoadedLibrary {
    /// Runs the initialisers of the objects with these numbers, which were linked together, in the order of
    /// [`init_fini`]. On failure says which object failed, and how.
    ///
    /// # Safety
    /// They may be run, and are run by one thread.
    pub(crate) unsafe fn initialise(self: &Arc<Self>, numbers: &[u32]) -> Result<(), (Name, String)> {
        #[cfg(feature = "cli")]
        crate::live::outermost::forget_floating_point();
        // Handlers are enlisted before anything runs: a process that ends in an initialiser has handlers and
        // finalisers to run, as with dlopen.
        let adopted = self.adopted();
        for handlers in self.handlers().into_iter().chain(adopted.iter().filter_map(|adopted| adopted.handlers())) {
            handlers.belong_to(Arc::downgrade(self) as Weak<dyn Kept>);
            self.enlist();
        }
        // All resolvers run before any initialiser, as in the dynamic loader: initialisers may call their functions.
        // SAFETY: by the caller.
        unsafe { self.resolve_indirect(numbers)? };
        let Waiting { mut objects, entries, finalisers } = self.take_waiting(numbers);
        if finalisers {
            self.enlist();
        }
        for (object, entry) in entries {
            let Some(object) = objects.get_mut(object) else { continue };
            if entry.function != 0 {
                // No lock is held: initialisers may look up, load and remove.
                // SAFETY: by the caller; the object is published, and `Image::new` registered its frames.
                unsafe { catching::call(entry.function) }.map_err(|message| (object.name.clone(), message))?;
            }
            object.left -= 1;
            if object.left == 0 {
                self.set_initialised(object);
            }
        }
        Ok(())
    }

    /// Runs the resolvers of indirect functions of the objects with these numbers, once. On failure says which object
    /// failed, and how.
    ///
    /// # Safety
    /// They may be run, and nobody calls the functions meanwhile.
    pub(crate) unsafe fn resolve_indirect(&self, numbers: &[u32]) -> Result<(), (Name, String)> {
        let mut slots = Vec::new();
        let numbers: HashSet<u32> = numbers.iter().copied().collect();
        for image in self.images().iter_mut().filter(|image| image.arrays.is_some() && numbers.contains(&image.number))
        {
            let arrays = image.arrays.as_mut().map(|arrays| arrays.take_slots()).unwrap_or_default();
            slots.extend(arrays.into_iter().map(|slot| (image.object.clone(), slot)));
        }
        for (object, slot) in slots {
            // No lock is held: resolvers are linked code like any other.
            // SAFETY: by the caller; the slot is the object's, which is published, and `Image::new` registered its
            // frames.
            unsafe { ifunc::resolve(slot) }.map_err(|message| (object, message))?;
        }
        Ok(())
    }

    /// Takes the initialisers to call for these objects.
    fn take_waiting(&self, numbers: &[u32]) -> Waiting {
        let mut waiting = Waiting::default();
        // Most objects have nothing to call.
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        let mut images = self.images();
        // The images lie in the order of the batch.
        for (position, image) in images.iter_mut().enumerate() {
            let Some(arrays) = image.arrays.as_mut().filter(|_| sorted.binary_search(&image.number).is_ok()) else {
                continue;
            };
            waiting.finalisers |= !arrays.finalisers().is_empty();
            let (object, mut entries) = (waiting.objects.len(), arrays.take_initialisers());
            if entries.is_empty() {
                entries.push(Entry::NOTHING);
            }
            let (name, number, left) = (image.object.clone(), image.number, entries.len());
            waiting.objects.push(Object { name, number, position, left });
            waiting.entries.extend(entries.into_iter().map(|entry| (object, entry)));
        }
        init_fini::put_in_order(&mut waiting.entries);
        waiting
    }

    fn set_initialised(&self, object: &Object) {
        let mut images = self.images();
        let is = |image: &&mut Image| image.number == object.number;
        // Its position is the same unless others before it have gone since.
        let there = images.get(object.position).is_some_and(|image| image.number == object.number);
        let image = if there { images.get_mut(object.position) } else { images.iter_mut().find(is) };
        if let Some(image) = image {
            image.initialised = true;
            // The functions are not asked for again.
            image.arrays.take_if(|arrays| arrays.finalisers().is_empty());
        }
    }

    fn enlist(self: &Arc<Self>) {
        if self.is_enlisted_first() {
            atexit::enlist(self);
        }
    }
}
