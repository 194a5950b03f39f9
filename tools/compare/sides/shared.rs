//! A linker process, and `dlopen` of the shared object that it leaves.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::{Hold, Loaded, Object, Side};

struct Shared {
    linker: String,
    folder: TempDir,
    count: AtomicUsize,
}

struct Held(*mut c_void);

// SAFETY: the dynamic loader has a lock of its own.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

/// GNU ld.
pub fn ld() -> Result<Box<dyn Side>, String> {
    first_of(vec!["ld".into()])
}

/// LLVM's linker, as it is called where several versions are installed if need be.
pub fn lld() -> Result<Box<dyn Side>, String> {
    let mut names = vec!["ld.lld".to_owned(), format!("ld.lld-{}", slabjit::llvm_version())];
    names.extend([22, 19, 16, 15].map(|major| format!("ld.lld-{major}")));
    first_of(names)
}

fn first_of(names: Vec<String>) -> Result<Box<dyn Side>, String> {
    let is_there = |name: &&String| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let linker = names.iter().find(is_there).ok_or_else(|| format!("no {} on PATH", names[0]))?.clone();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    Ok(Box::new(Shared { linker, folder, count: AtomicUsize::new(0) }))
}

impl Side for Shared {
    fn load(&self, object: &mut Object) -> Result<Loaded, String> {
        let loaded = self.load_together(std::slice::from_mut(object))?.pop();
        loaded.ok_or_else(|| "nothing was loaded".into())
    }

    fn load_together(&self, objects: &mut [Object]) -> Result<Vec<Loaded>, String> {
        let file = |extension: &str| {
            let number = self.count.fetch_add(1, Ordering::Relaxed);
            self.folder.path().join(format!("{number}.{extension}"))
        };
        let (inputs, output) = (objects.iter().map(|_| file("o")).collect::<Vec<_>>(), file("so"));
        for (input, object) in inputs.iter().zip(&*objects) {
            std::fs::write(input, &object.bytes).map_err(|error| error.to_string())?;
        }
        // The table for what is thrown in it, as compilers have it; and references inside it stay there, as with the
        // others.
        let options = ["-shared", "--eh-frame-hdr", "-Bsymbolic"];
        let linked = Command::new(&self.linker).args(options).args(&inputs).arg("-o").arg(&output).output();
        match linked {
            Ok(linked) if linked.status.success() => {}
            Ok(linked) => {
                let said = String::from_utf8_lossy(&linked.stderr);
                return Err(format!("{}: {}", self.linker, said.lines().next().unwrap_or_default()));
            }
            Err(error) => return Err(format!("{}: {error}", self.linker)),
        }
        let held = Held::open(&output)?;
        // It is mapped, and named by a number that never comes again.
        let removed = inputs.iter().chain([&output]).try_for_each(std::fs::remove_file);
        removed.map_err(|error| error.to_string())?;
        let held = Arc::new(held);
        objects.iter().map(|object| held.loaded(object)).collect()
    }
}

impl Held {
    fn open(path: &Path) -> Result<Self, String> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the initialisers are those of `workloads`, which only set variables.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() { Err(dl_error()) } else { Ok(Self(handle)) }
    }
}

impl Held {
    fn loaded(self: &Arc<Self>, object: &Object) -> Result<Loaded, String> {
        // SAFETY: a handle that is open, and a name.
        let address = unsafe { libc::dlsym(self.0, object.entry.as_ptr()) }.addr();
        if address == 0 {
            return Err(format!("dlsym does not find {:?}", object.entry));
        }
        // SAFETY: just found, and held.
        unsafe { object.ask(address) }?;
        Ok(Loaded { address: Some(address), hold: Box::new(Arc::clone(self)) })
    }
}

/// The last one closes it.
impl Hold for Arc<Held> {
    fn unload(self: Box<Self>) -> Result<(), String> {
        let Some(held) = Arc::into_inner(*self) else { return Ok(()) };
        // SAFETY: opened once, closed once; what it has is called no more.
        if unsafe { libc::dlclose(held.0) } == 0 { Ok(()) } else { Err(dl_error()) }
    }
}

fn dl_error() -> String {
    // SAFETY: a text of this thread's, until its next call.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "dlopen failed".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}
