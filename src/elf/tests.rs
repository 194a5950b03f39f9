mod archive;
mod harmonize;
mod identity;
mod index;
mod random;
mod steps;
mod thread_local;
mod validate;
