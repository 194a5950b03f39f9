//! Mutations that keep an object an object: a fuzzer that only flips bytes hardly gets past the headers.

mod edit;
mod elf;

use libfuzzer_sys::arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzzer_mutate;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use edit::Edit;
use elf::Layout;

/// For `fuzz_mutator!`: changes the object in `data[..size]`, and returns its new size, at most `max_size`.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let mut random = SmallRng::seed_from_u64(seed.into());
    let Some(layout) = Layout::of(&data[..size]) else { return fuzzer_mutate(data, size, max_size) };
    match random.random_range(0..8) {
        // As libFuzzer does it, with what it has learned from comparisons.
        0 => fuzzer_mutate(data, size, max_size),
        1 | 2 => {
            // The same in one section, whose size stays.
            if let Some(contents) = layout.contents(&data[..size], random.random()) {
                let len = contents.len();
                fuzzer_mutate(&mut data[contents], len, len);
            }
            size
        }
        _ => {
            let choices: [u8; 256] = random.random();
            let mut choices = Unstructured::new(&choices);
            for _ in 0..random.random_range(1..5) {
                // There are choices enough for four edits.
                if let (Ok(edit), Some(layout)) = (Edit::arbitrary(&mut choices), Layout::of(&data[..size])) {
                    edit.apply(&layout, &mut data[..size]);
                }
            }
            size
        }
    }
}
