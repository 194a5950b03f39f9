//! Nothing: what counts is the build script, which says in one line what a build of slabjit needs and does not find.
//!
//! It is a crate of its own so that it runs before llvm-sys is compiled, which says it in many lines. Cargo starts what
//! most other crates wait for first; this crate has no dependencies, and all of slabjit waits for it.
