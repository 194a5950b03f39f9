//! A folder of objects that `ci/cutedsl` made.

use std::path::{Path, PathBuf};

/// The objects of one version of the compiler.
pub struct Compiled {
    /// Such as `4.4.2`.
    pub version: String,
    folder: PathBuf,
}

/// The forms of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Called through the C header that the compiler writes.
    C,
    /// Called through `__tvm_ffi_<name>`.
    TvmFfi,
    /// The same, not position independent.
    TvmFfiStatic,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::C, Self::TvmFfi, Self::TvmFfiStatic];

    fn extension(self) -> &'static str {
        match self {
            Self::C => "o",
            Self::TvmFfi => "tvm_ffi.o",
            Self::TvmFfiStatic => "tvm_ffi_static.o",
        }
    }
}

impl Compiled {
    /// A folder of `ci/cutedsl`.
    pub fn read(folder: &Path) -> Self {
        let version = std::fs::read_to_string(folder.join("version"));
        let version = version.unwrap_or_else(|e| panic!("{} is no folder of ci/cutedsl: {e}", folder.display()));
        Self { version: version.trim().to_owned(), folder: folder.to_owned() }
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether this is one of those that write function pointers into a second section called `.text` (CUTLASS#3162),
    /// where they refer to functions by TVM-FFI's form.
    pub fn has_two_texts(&self) -> bool {
        self.is_4_4()
    }

    /// Bytes between a tensor's address and its first element, to be added by the TVM-FFI form: 4.4 takes none.
    pub fn byte_offset(&self) -> u64 {
        if self.is_4_4() { 0 } else { 64 }
    }

    /// Whether its runtime keeps its lock when it cannot load a kernel, so that each further call of any kernel of the
    /// process waits forever.
    pub fn fails_once(&self) -> bool {
        self.is_4_4()
    }

    fn is_4_4(&self) -> bool {
        self.version.starts_with("4.4.")
    }

    /// An object's file.
    pub fn object(&self, kernel: &str, form: Form) -> PathBuf {
        self.folder.join(format!("{kernel}.{}", form.extension()))
    }

    /// An object.
    pub fn bytes(&self, kernel: &str, form: Form) -> Vec<u8> {
        std::fs::read(self.object(kernel, form)).unwrap()
    }

    /// C that calls a kernel through the header that the compiler wrote.
    pub fn host(&self, kernel: &str) -> Vec<u8> {
        std::fs::read(self.folder.join(format!("{kernel}.host.o"))).unwrap()
    }

    /// The wheel's `libcute_dsl_runtime.so`.
    pub fn runtime(&self) -> PathBuf {
        self.folder.join("libcute_dsl_runtime.so").canonicalize().unwrap()
    }

    /// `libtvm_ffi.so` of apache-tvm-ffi.
    pub fn tvm_ffi(&self) -> PathBuf {
        self.folder.join("libtvm_ffi.so").canonicalize().unwrap()
    }
}
