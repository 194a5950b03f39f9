//! What takes the place of stock LLJIT where there is no LLVM.

pub mod lljit {
    pub fn is_jitlink() -> bool {
        false
    }
}

pub mod stock {
    use std::collections::BTreeMap;

    /// # Errors
    /// Always.
    pub fn link(_: &[u8], _: &BTreeMap<String, usize>, _: &[&str]) -> Result<BTreeMap<String, u64>, String> {
        Err("this build has no LLVM".to_owned())
    }
}
