//! Functions that can be redirected, and those that are compiled when they are first called.
//!
//! A module that is added lazily becomes an object of stubs, one for each function, and of words that these jump
//! through. A word leads to `call_through` at first, and to the function's code once that has been made.
//!
//! ```text
//! stub_object   the object of stubs
//! stubs         which functions it is for, and where their words lead
//! call_through  the first call
//! ```

mod call_through;
mod stub_object;
mod stubs;

pub(super) use call_through::address as first_call;
#[cfg(feature = "inkwell")]
pub(crate) use stubs::Lazy;
pub(super) use stubs::{FindBody, Stubs};
