//! Preparation of arbitrary bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    slabjit::exercise(bytes);
});
