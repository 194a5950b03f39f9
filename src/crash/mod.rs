//! Reports of crashes in loaded code, for programs that ask for them with [`install`].
//!
//! A debugger or a core says where the processor stopped; it does not know whose code that was, or that the code was
//! removed. The report does:
//!
//! ```text
//! slabjit: SIGSEGV at 0x7f2a5c001012, writing 0x0, where nothing is mapped
//! slabjit:   in scale+0x12, object 'scale.o' of library 'model' (generation 3)
//! slabjit:   called from forward+0x45, object 'forward.o' of library 'model' (generation 2)
//! slabjit:   called from the program+0x1a2b3
//! ```
//!
//! Nothing of this happens unless a program calls [`install`].

mod alternate_stack;
mod expression;
mod fault_report;
mod frame_table;
mod handler;
mod line;
mod modules;
mod own_stack;
mod previous;
mod readable;
mod reader;
mod registers;
mod rules;
mod walk;

pub use alternate_stack::AlternateStack;
pub use install::install;

mod install;
