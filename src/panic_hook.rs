//! Names of loaded code for panics: backtraces of the standard library know files only, and loaded code is in none.

use std::io::Write as _;
use std::sync::Once;
use std::{io, panic, thread};

use crate::explanation::{Symbolized, symbolize};
use crate::live::lifetime::backtrace::return_addresses;

/// Has panics say which loaded code has called what panics: after the hook that there is, which prints message and
/// backtrace, one line for each such function, innermost first, and its source lines if they are
/// [kept](crate::JitEngineBuilder::debug_info). Nothing is printed if there is none. The second call changes nothing;
/// nor does one from a thread that panics.
///
/// ```text
/// thread 'main' panicked at src/main.rs:12:5:
/// the host refuses
/// slabjit: called by loaded code, innermost first:
/// slabjit:   forward+0x45 in 'forward.o' of library 'model' (generation 2), offset 0x45 of its slab
/// slabjit:     at /src/forward.c:12 (forward)
/// ```
pub fn install_panic_hook() {
    static ONCE: Once = Once::new();
    if thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            previous(info);
            report();
        }));
    });
}

fn report() {
    // A return address may be that of the next function.
    let callers = return_addresses().into_iter().filter_map(|address| address.checked_sub(1));
    let callers: Vec<Symbolized> =
        callers.filter_map(|address| symbolize(std::ptr::without_provenance(address))).collect();
    if callers.is_empty() {
        return;
    }
    let mut text = "slabjit: called by loaded code, innermost first:\n".to_owned();
    for caller in callers {
        caller.to_string().lines().for_each(|line| text += &format!("slabjit:   {line}\n"));
    }
    // Nobody may be there to read it.
    let _ = io::stderr().write_all(text.as_bytes());
}
