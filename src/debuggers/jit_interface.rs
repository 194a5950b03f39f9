//! GDB's JIT Compilation Interface: a list of object files that a debugger reads from memory when it attaches, or reads
//! a core file, and a function at which it has a breakpoint to see changes.
//!
//! The list is this crate's own. Other JITs of a process have others, LLVM's in libLLVM among them.
#![allow(unsafe_code, reason = "a list that debuggers read")]

use std::arch::global_asm;
use std::ops::Deref;
use std::ptr;

use crate::fork_guard::Mutex;

/// `jit_code_entry` of the interface.
#[repr(C)]
struct Entry {
    next: *mut Entry,
    previous: *mut Entry,
    file: *const u8,
    bytes: u64,
}

/// `jit_descriptor` of the interface.
#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    relevant: *mut Entry,
    first: *mut Entry,
}

const REGISTER: u32 = 1;
const UNREGISTER: u32 = 2;

// Weak, as an LLVM that is linked into the program has both, and hidden, as no other one may take them for its own.
#[cfg(target_arch = "x86_64")]
global_asm!(".macro slabjit_return", "ret", ".endm");
#[cfg(target_arch = "aarch64")]
global_asm!(".macro slabjit_return", "nop", "ret", ".endm");
global_asm!(
    ".text",
    ".balign 16",
    ".weak __jit_debug_register_code",
    ".hidden __jit_debug_register_code",
    ".type __jit_debug_register_code, %function",
    "__jit_debug_register_code: slabjit_return",
    ".size __jit_debug_register_code, . - __jit_debug_register_code",
    ".data",
    ".balign 8",
    ".weak __jit_debug_descriptor",
    ".hidden __jit_debug_descriptor",
    ".type __jit_debug_descriptor, %object",
    "__jit_debug_descriptor: .long 1, 0",
    ".quad 0, 0",
    ".size __jit_debug_descriptor, . - __jit_debug_descriptor",
    ".text",
);

unsafe extern "C" {
    static mut __jit_debug_descriptor: Descriptor;
    fn __jit_debug_register_code();
}

/// The instruction with which GDB and LLDB stop a program, as its first bytes are in memory.
const BREAKPOINT: &[u8] = if cfg!(target_arch = "x86_64") { &[0xcc] } else { &[0x00, 0x00, 0x20, 0xd4] };

/// Returns whether a debugger has put a breakpoint into the function. One that is outside of the machine, as with
/// qemu-user, or that has the processor's breakpoints, is not seen: it is told in any case.
pub(crate) fn debugger_waits() -> bool {
    let function: *const u8 = (__jit_debug_register_code as unsafe extern "C" fn() as *const ()).cast();
    // SAFETY: code of this program, of at least one instruction. A debugger may change it at any time.
    (0..BREAKPOINT.len()).all(|i| unsafe { function.add(i).read_volatile() } == BREAKPOINT[i])
}

/// Who may change the list.
static LIST: Mutex<()> = Mutex::new(());

/// A file that debuggers are shown until this is dropped.
pub(super) struct Registered<F> {
    /// Allocated by `Box`; the list refers to it.
    entry: *mut Entry,
    file: F,
    /// Whether a debugger was told of it.
    told: bool,
}

// SAFETY: the entry is changed under `LIST` only.
unsafe impl<F: Send> Send for Registered<F> {}
// SAFETY: as above.
unsafe impl<F: Sync> Sync for Registered<F> {}

/// The bytes of `F` stay where they are.
impl<F: Deref<Target = [u8]>> Registered<F> {
    /// Puts a file into the list and tells a debugger.
    pub(super) fn new(file: F) -> Self {
        let mut this = Self::silently(file);
        this.tell();
        this
    }

    /// Puts a file into the list. A debugger that is attached is told later, by [`tell`](Self::tell).
    pub(super) fn silently(file: F) -> Self {
        let entry = Entry { next: ptr::null_mut(), previous: ptr::null_mut(), file: file.as_ptr(), bytes: 0 };
        let entry = Box::into_raw(Box::new(Entry { bytes: file.len() as u64, ..entry }));
        let _list = LIST.lock();
        // SAFETY: ours alone by the lock, and all entries are there: those of others go under it. A debugger may stop
        // this thread anywhere, and follows `next` from `first`.
        unsafe {
            let list = &raw mut __jit_debug_descriptor;
            (*entry).next = (*list).first;
            if let Some(next) = (*list).first.as_mut() {
                next.previous = entry;
            }
            (&raw mut (*list).first).write_volatile(entry);
        }
        Self { entry, file, told: false }
    }

    /// Tells a debugger to read the file, again if it has.
    pub(super) fn tell(&mut self) {
        let _list = LIST.lock();
        if self.told {
            // SAFETY: the entry is in the list.
            unsafe { notify(UNREGISTER, self.entry) };
        }
        self.told = true;
        // SAFETY: as above.
        unsafe { notify(REGISTER, self.entry) };
    }

    /// Returns what debuggers read.
    #[cfg(test)]
    pub(super) fn shown(&self) -> &[u8] {
        // SAFETY: the entry is ours, and refers to the file.
        unsafe { std::slice::from_raw_parts((*self.entry).file, (*self.entry).bytes as usize) }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> &F {
        &self.file
    }

    /// Has another file in the place of this one.
    pub(super) fn replace(&mut self, file: F) {
        *self = Self::silently(file);
    }
}

impl Registered<Vec<u8>> {
    /// Returns the file, to change bytes of it.
    pub(super) fn file(&mut self) -> &mut [u8] {
        &mut self.file
    }
}

impl<F> Drop for Registered<F> {
    fn drop(&mut self) {
        let _list = LIST.lock();
        // SAFETY: in the list until now; as in `silently`.
        unsafe {
            let list = &raw mut __jit_debug_descriptor;
            let Entry { next, previous, .. } = *self.entry;
            match previous.as_mut() {
                Some(previous) => (&raw mut previous.next).write_volatile(next),
                None => (&raw mut (*list).first).write_volatile(next),
            }
            if let Some(next) = next.as_mut() {
                next.previous = previous;
            }
            if self.told {
                notify(UNREGISTER, self.entry);
            }
            (*list).relevant = ptr::null_mut();
            drop(Box::from_raw(self.entry));
        }
    }
}

/// # Safety
/// The entry exists, and the caller has `LIST`.
unsafe fn notify(action: u32, entry: *mut Entry) {
    // SAFETY: ours alone by the lock. The writes are for whoever has a breakpoint in the function.
    unsafe {
        let list = &raw mut __jit_debug_descriptor;
        (&raw mut (*list).action).write_volatile(action);
        (&raw mut (*list).relevant).write_volatile(entry);
        __jit_debug_register_code();
    }
}
