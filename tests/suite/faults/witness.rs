//! strace
pub fn strace_sees_no_other_call() {}
pub fn strace_refuses_calls() {}
pub fn witnessed() {}
