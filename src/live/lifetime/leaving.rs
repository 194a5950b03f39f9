//! Small objects of libraries that have ended: their memory is overwritten already. Their names, unwind tables and
//! addresses go together, which takes a third of the time that they take one by one.

use smallvec::SmallVec;

use crate::debuggers;
use crate::fork_guard::Mutex;
use crate::live::linked::image::Image;

/// The most objects that wait for others, and the most bytes of their memory.
const MOST: usize = 64;
const MOST_BYTES: usize = 256 << 10;

/// The objects of an engine that wait.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    waiting: Mutex<Waiting>,
    /// Whoever ends some has it: nothing is left of what waited before, once it can be had.
    ending: Mutex<()>,
}

#[derive(Debug, Default)]
struct Waiting {
    images: Vec<Image>,
    bytes: usize,
}

impl Leaving {
    /// Ends a library's objects; a single one later, with others, if its memory can be overwritten now.
    pub(crate) fn end(&self, mut images: SmallVec<[Image; 1]>) {
        let overwritten = match &mut *images {
            // A debugger is told at once.
            [image] if !debuggers::debugger_waits() => image.overwrite(),
            _ => None,
        };
        let Some(bytes) = overwritten else { return Image::end_all(&mut images) };
        let is_full = {
            let mut waiting = self.waiting.lock();
            waiting.bytes += bytes;
            if waiting.images.is_empty() {
                waiting.images.reserve_exact(MOST);
            }
            images.pop().into_iter().for_each(|image| waiting.images.push(image));
            waiting.images.len() >= MOST || waiting.bytes >= MOST_BYTES
        };
        if is_full {
            self.end_now();
        }
    }

    /// Ends those that wait.
    pub(crate) fn end_now(&self) {
        let _ending = self.ending.lock();
        let mut waiting = std::mem::take(&mut *self.waiting.lock());
        Image::end_all(&mut waiting.images);
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.end_now();
    }
}
