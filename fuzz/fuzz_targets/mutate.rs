//! Preparation of objects of which headers, sections, symbols and relocations were changed.
#![no_main]

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    slabjit_fuzz::mutate(data, size, max_size, seed)
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    slabjit::exercise(bytes);
});
