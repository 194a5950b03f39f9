//! Devices, with a driver of our own (`tests/cuda/fake.c`) in the place of NVIDIA's: it is found as that is, by its
//! name, in a process of its own.

use std::ffi::{CStr, CString, c_void};
use std::fmt::{Debug, Write as _};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use slabjit::cuda::{Current, Device, Driver, TuningStream, Work};
use slabjit::{
    Argument, Autotuner, BufferView, Candidate, CudaError, ElementType, Error, JitEngine, KernelError, KernelSignature,
    Library, LibraryError, MemorySpace, Provider, Removal, Strides,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::common::{self, Checked, call, child_with, compile, compile_bytes, freed, int, link_shared};

/// Tests that are a part of the same name and `_part`, in a process that finds the driver of ours.
macro_rules! with_driver {
    ($($test:ident = $part:ident),* $(,)?) => {
        $(fn $test() {
            let end = child_with(stringify!($part), &[("LD_LIBRARY_PATH", &search_path(&driver(&[])))]);
            assert_eq!(end.code, Some(0), "{end:?}");
        })*
    };
}

with_driver![
    refusals_of_the_driver = refusals_part,
    one_context_for_all_users = one_context_part,
    initialisers_and_finalisers_have_the_context = context_part,
    contexts_may_be_given_up_in_any_order = order_part,
    initialised_once_on_each_device = once_part,
    code_and_modules_stay_until_the_device_is_done = work_part,
    what_cannot_be_waited_for_stays_and_is_reported = sticky_part,
    captures_of_graphs_are_not_disturbed = capture_part,
    children_of_fork_leave_the_driver_alone = fork_part,
    memory_and_time_of_a_device = memory_part,
    tuning_leaves_no_trace_on_a_device = tuning_part,
    handles_that_are_none = handles_part,
];

common::tests![
    no_driver,
    a_driver_that_is_too_old,
    refusals_of_the_driver,
    one_context_for_all_users,
    initialisers_and_finalisers_have_the_context,
    contexts_may_be_given_up_in_any_order,
    initialised_once_on_each_device,
    code_and_modules_stay_until_the_device_is_done,
    what_cannot_be_waited_for_stays_and_is_reported,
    captures_of_graphs_are_not_disturbed,
    children_of_fork_leave_the_driver_alone,
    memory_and_time_of_a_device,
    tuning_leaves_no_trace_on_a_device,
    handles_that_are_none;
    parts: no_driver_part, old_part, refusals_part, one_context_part, context_part, order_part, once_part, work_part, sticky_part, capture_part,
        fork_part, memory_part, tuning_part, handles_part,
];

// ---- the driver ----

/// `libcuda.so.1`, in a folder of its own.
fn driver(flags: &[&str]) -> PathBuf {
    let object = compile("fake.c", include_str!("../cuda/fake.c"), flags);
    link_shared("libcuda.so.1", &[&object], &["-Wl,-soname,libcuda.so.1", "-pthread"])
}

/// Its folder before all others.
fn search_path(driver: &Path) -> String {
    let others = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    format!("{}:{others}", driver.parent().unwrap().display())
}

/// The driver that this process finds.
struct Fake(libloading::Library);

type Handle = *mut c_void;

impl Fake {
    fn open() -> Self {
        // SAFETY: it notes which process this is.
        Self(unsafe { libloading::Library::new("libcuda.so.1").unwrap() })
    }

    /// One of its functions.
    fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the types are those of fake.c, by each test.
        unsafe { *self.0.get::<T>(name).unwrap() }
    }

    /// Has a function fail so many times, or from now on (-1).
    fn fail(&self, function: &str, code: i32, times: i32) {
        let function = CString::new(function).unwrap();
        self.function::<extern "C" fn(*const i8, i32, i32)>("fake_fail")(function.as_ptr().cast(), code, times);
    }

    fn set(&self, what: &str, value: i32) {
        self.function::<extern "C" fn(i32)>(what)(value);
    }

    /// "busy" or "capturing".
    fn stream_is(&self, what: &str, stream: Handle, yes: bool) {
        self.function::<extern "C" fn(Handle, i32)>(&format!("fake_{what}"))(stream, yes.into());
    }

    fn written(&self) -> Vec<String> {
        let written = self.function::<extern "C" fn() -> *const i8>("fake_written")();
        // SAFETY: a string, which nothing is added to now.
        let text = unsafe { CStr::from_ptr(written.cast()) };
        text.to_str().unwrap().lines().map(str::to_owned).collect()
    }

    /// The calls of one function.
    fn calls(&self, function: &str) -> usize {
        self.written().iter().filter(|line| line.split('(').next() == Some(function)).count()
    }

    fn forget(&self) {
        self.function::<extern "C" fn()>("fake_forget")();
    }

    /// The current context of this thread.
    fn current(&self) -> Handle {
        let mut current = ptr::null_mut();
        self.function::<extern "C" fn(&mut Handle) -> i32>("cuCtxGetCurrent")(&mut current);
        current
    }

    fn set_current(&self, context: Handle) {
        assert_eq!(self.function::<extern "C" fn(Handle) -> i32>("cuCtxSetCurrent")(context), 0);
    }

    fn stream(&self, device: &Device) -> Handle {
        let (_current, mut stream) = (device.make_current().unwrap(), ptr::null_mut());
        assert_eq!(self.function::<extern "C" fn(&mut Handle, u32) -> i32>("cuStreamCreate")(&mut stream, 1), 0);
        stream
    }

    /// A module whose kernels run in a stream.
    fn module(&self, device: &Device, stream: Handle) -> Handle {
        let (_current, mut module) = (device.make_current().unwrap(), ptr::null_mut());
        let load = self.function::<extern "C" fn(&mut Handle, *const i8) -> i32>("cuModuleLoadData");
        assert_eq!(load(&mut module, c"ptx".as_ptr().cast()), 0);
        self.function::<extern "C" fn(Handle, Handle)>("fake_runs_in")(module, stream);
        module
    }
}

fn device(ordinal: usize) -> Device {
    Driver::load().unwrap().device(ordinal).unwrap()
}

fn library(engine: &JitEngine, device: &Device, source: &str) -> Library {
    let library = engine.library("for a device").device(device).build().unwrap();
    library.add_object(compile_bytes("device.c", source, &[])).unwrap();
    library
}

const ANSWER: &str = "int answer(void) { return 42; }";

// ---- finding it ----

fn no_driver() {
    let end = child_with("no_driver_part", &[]);
    assert_eq!(end.code, Some(0), "{end:?}");
    print!("{}", end.stdout);
}

fn no_driver_part() {
    // SAFETY: its initialisers, which run in any program that uses it.
    if unsafe { libloading::Library::new("libcuda.so.1") }.is_ok() {
        println!("not run: this machine has a CUDA driver");
        return;
    }
    for _ in 0..2 {
        let error = Driver::load().unwrap_err();
        let Error::Cuda(CudaError::DriverNotFound { messages }) = &error else { panic!("{error}") };
        assert!(messages.len() == 2 && messages[0].contains("libcuda.so.1"), "{messages:?}");
        assert!(error.to_string().contains("install NVIDIA's driver"), "{error}");
    }
    Checked::new().assert_usable();
}

fn a_driver_that_is_too_old() {
    let end = child_with("old_part", &[("LD_LIBRARY_PATH", &search_path(&driver(&["-DOLD"])))]);
    assert_eq!(end.code, Some(0), "{end:?}");
}

fn old_part() {
    let error = Driver::load().unwrap_err();
    let Error::Cuda(CudaError::DriverTooOld { missing, .. }) = error else { panic!("{error}") };
    assert_eq!(missing, "cuDevicePrimaryCtxRelease_v2");
    assert!(Fake::open().written().is_empty(), "nothing was called");
}

fn refusals_part() {
    let fake = Fake::open();
    fake.fail("cuInit", 100, 1);
    assert!(matches!(Driver::load(), Err(Error::Cuda(CudaError::NoDevice))));
    fake.fail("cuInit", 803, 1);
    let error = Driver::load().unwrap_err();
    let text = error.to_string();
    let Error::Cuda(CudaError::Call { function: "cuInit", device: None, code: 803, name, text: meaning }) = error
    else {
        panic!("{text}")
    };
    assert_eq!(
        (&*name, &*meaning),
        ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination")
    );
    assert!(text.contains(&name) && text.contains(&meaning) && text.contains("restart the machine"), "{text}");
    // A code that bindings do not know.
    fake.fail("cuInit", 9999, 1);
    let error = Driver::load().unwrap_err();
    assert!(
        matches!(&error, Error::Cuda(CudaError::Call { code: 9999, name, .. }) if name == "unknown error"),
        "{error}"
    );

    let driver = Driver::load().unwrap();
    assert_eq!((driver.version().unwrap(), driver.device_count().unwrap()), ((12, 4), 2));
    for ordinal in [2, 7, usize::MAX] {
        let error = driver.device(ordinal).unwrap_err();
        assert!(
            matches!(error, Error::Cuda(CudaError::NoSuchDevice { ordinal: asked, count: 2 }) if asked == ordinal),
            "{error}"
        );
    }
    fake.set("fake_devices", 0);
    assert!(matches!(driver.device(0), Err(Error::Cuda(CudaError::NoDevice))));
    fake.set("fake_devices", 2);
    fake.fail("cuDeviceGetCount", 999, 1);
    assert!(matches!(
        driver.device(0),
        Err(Error::Cuda(CudaError::Call { function: "cuDeviceGetCount", code: 999, .. }))
    ));
    fake.fail("cuDevicePrimaryCtxRetain", 2, 1);
    let error = driver.device(1).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Cuda(CudaError::DeviceOutOfMemory { function: "cuDevicePrimaryCtxRetain", device: Some(1) })
        ),
        "{error}"
    );
    assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), 0, "it was not retained");

    // With the device there, its context cannot be made current: nothing is opened, linked or run, and then all is.
    let (device, engine) = (driver.device(1).unwrap(), Checked::new());
    assert_eq!(device.name().unwrap(), "Fake 1");
    fake.fail("cuCtxSetCurrent", 719, 1);
    let error = engine.library("refused").device(&device).build().unwrap_err();
    assert!(
        matches!(&error, Error::Cuda(CudaError::Call { device: Some(1), code: 719, name, .. }) if name == "CUDA_ERROR_LAUNCH_FAILED"),
        "{error}"
    );
    let library = library(&engine, &device, ANSWER);
    fake.fail("cuCtxSetCurrent", 719, 1);
    // SAFETY: as above.
    assert!(matches!(unsafe { library.initialize() }, Err(Error::Cuda(CudaError::Call { code: 719, .. }))));
    assert_eq!(call(&library, "answer"), 42);
    freed(&library);
    engine.finish();
}

// ---- contexts ----

fn one_context_part() {
    let fake = Fake::open();
    let start = Barrier::new(8);
    let devices: Vec<_> = std::thread::scope(|scope| {
        let open = || {
            start.wait();
            device(0)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(devices.windows(2).all(|pair| pair[0] == pair[1]));
    let other = device(1);
    assert_ne!(devices[0], other);
    let engine = Checked::new();
    let libraries: Vec<_> = (0..10).map(|_| library(&engine, &devices[0], ANSWER)).collect();
    for library in &libraries {
        assert_eq!(call(library, "answer"), 42);
        assert_eq!(library.device().as_ref(), Some(&devices[0]));
    }
    let memory = devices[0].allocate(16).unwrap();
    assert_eq!(engine.add_object(compile_bytes("host.c", ANSWER, &[])).unwrap().device(), None);
    let retained: Vec<_> = fake.written().into_iter().filter(|line| line.contains("PrimaryCtx")).collect();
    assert_eq!(retained, ["cuDevicePrimaryCtxRetain(0)", "cuDevicePrimaryCtxRetain(1)"]);
    fake.forget();
    drop((devices, other));
    assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), 1, "device 1 has no user any more");
    // A handle keeps the code, and the code the device.
    let symbol = int(&libraries[0], "answer");
    libraries[1..].iter().for_each(freed);
    assert!(libraries[1].device().is_none());
    assert_eq!(libraries[0].remove(), Removal::Waiting { holders: 1 });
    drop(memory);
    fake.forget();
    drop(symbol);
    assert_eq!(
        fake.written().iter().filter(|line| line.contains("PrimaryCtx")).collect::<Vec<_>>(),
        ["cuDevicePrimaryCtxRelease_v2(0)"]
    );
    engine.finish();
    // And again from the start.
    fake.forget();
    drop(device(0));
    assert_eq!(fake.calls("cuDevicePrimaryCtxRetain") + fake.calls("cuDevicePrimaryCtxRelease_v2"), 2);
}

/// The context that was current each time, noted by linked code.
static NOTED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

extern "C" fn note(context: usize) {
    NOTED.lock().unwrap().push(context);
}

fn noted() -> Vec<usize> {
    std::mem::take(&mut *NOTED.lock().unwrap())
}

fn context_part() {
    let fake = Fake::open();
    let (one, other) = (device(0), device(1));
    // A runtime with an initialiser, and a kernel with both, in the order that libraries have them.
    let runtime = "int cuCtxGetCurrent(void **); void *at_start;
        __attribute__((constructor)) static void init(void) { cuCtxGetCurrent(&at_start); }";
    let runtime = compile("runtime.c", runtime, &[]);
    let fake_path = driver(&[]);
    let runtime = link_shared("libruntime.so", &[&runtime, &fake_path], &[]);
    let source = "#include <stddef.h>
        int cuCtxGetCurrent(void **), cuCtxSetCurrent(void *); void note(void *); extern void *at_start;
        static void now(void) { void *c; cuCtxGetCurrent(&c); note(c); }
        __attribute__((constructor)) static void init(void) { note(at_start); now(); cuCtxSetCurrent(NULL); }
        __attribute__((destructor)) static void fini(void) { now(); }
        int run(void) { return 7; }";
    let engine = Checked::new();
    let build = || {
        // SAFETY: as written above.
        let library = unsafe {
            let builder = engine.library("kernel").symbol("note", note as *const ()).isolated();
            builder.shared_library(&runtime).device(&one).build().unwrap()
        };
        library.add_object_named("kernel.o", compile_bytes("kernel.c", source, &[])).unwrap();
        library
    };
    for before in [ptr::null_mut(), other.as_raw(), one.as_raw()] {
        fake.set_current(before);
        let library = build();
        assert_eq!(fake.current(), before);
        assert_eq!(call(&library, "run"), 7);
        assert_eq!(fake.current(), before, "it is put back, whatever an initialiser sets");
        assert_eq!(noted(), [one.as_raw().addr(); 2]);
        // On another thread, which has none.
        std::thread::spawn(move || freed(&library)).join().unwrap();
        assert_eq!(noted(), [one.as_raw().addr()]);
    }
    // Nothing is given but the device, and the process has no such names.
    let library =
        library(&engine, &one, "int cuCtxGetCurrent(void **); int get(void) { void *c; return cuCtxGetCurrent(&c); }");
    assert_eq!(call(&library, "get"), 0);
    let provider = library.imports().unwrap()[0].provider.clone();
    assert_eq!(provider, Provider::SharedLibrary { path: "libcuda.so.1".into() });
    // What the driver depends on is the process's matter, and symbols that are given come before it.
    let source = "int getpid(void), cuDriverGetVersion(int *); int f(void) { int v = 0; cuDriverGetVersion(&v); return v + getpid(); }";
    extern "C" fn version(version: &mut i32) -> i32 {
        *version = 5;
        0
    }
    // SAFETY: `version` is what the source declares.
    let given = unsafe {
        let builder = engine.library("given").device(&one).symbol("cuDriverGetVersion", version as *const ());
        builder.build().unwrap()
    };
    given.add_object(compile_bytes("given.c", source, &[])).unwrap();
    assert_eq!(call(&given, "f"), 5 + std::process::id() as i32);
    let by = |name: &str| given.imports().unwrap().into_iter().find(|import| import.name == name).unwrap().provider;
    assert_eq!(by("cuDriverGetVersion"), Provider::Given);
    assert!(matches!(by("getpid"), Provider::Process { .. }), "{}", by("getpid"));
    let isolated = engine.library("isolated").device(&one).isolated().build().unwrap();
    isolated.add_object(compile_bytes("given.c", source, &[])).unwrap();
    let missing: Vec<_> = isolated.undefined_symbols().unwrap().into_iter().map(|symbol| symbol.name).collect();
    assert_eq!(missing, ["getpid"]);
    drop((given, isolated));
    freed(&library);

    // Within one another, and on the way out of a panic.
    fake.set_current(ptr::null_mut());
    let outer = one.make_current().unwrap();
    let caught = std::panic::catch_unwind(|| {
        let _inner = other.make_current().unwrap();
        assert_eq!(fake.current(), other.as_raw());
        panic!("meant to");
    });
    assert!(caught.is_err());
    assert_eq!(fake.current(), one.as_raw());
    drop(outer);
    assert!(fake.current().is_null());

    // Finalisers run, whatever has become of the device.
    let library = build();
    assert_eq!(call(&library, "run"), 7);
    noted();
    fake.fail("cuCtxSetCurrent", 719, -1);
    freed(&library);
    assert_eq!(noted(), [0]);
    fake.fail("cuCtxSetCurrent", 719, 0);
    engine.finish();
}

/// Each context is released as soon as nobody has it, and must not be made current after that.
fn order_part() {
    let fake = Fake::open();
    const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in ORDERS {
        for ordinals in [[0, 1, 0], [0, 1, 1], [0, 0, 1]] {
            let devices = ordinals.map(device);
            let contexts = devices.each_ref().map(Device::as_raw);
            let mut guards = devices.each_ref().map(|device| Some(device.make_current().unwrap()));
            drop(devices);
            for which in order {
                drop(guards[which].take());
                let last = guards.iter().rposition(Option::is_some);
                let expected = last.map_or(ptr::null_mut(), |last| contexts[last]);
                assert_eq!(fake.current(), expected, "{order:?} of {ordinals:?}, after {which}");
            }
        }
    }
    let counted = |name: &str| fake.calls(&format!("cuDevicePrimaryCtx{name}"));
    assert_eq!(counted("Retain"), counted("Release_v2"));

    // What the caller sets between them is the caller's, and comes back.
    let (one, other) = (device(0), device(1));
    let outer = one.make_current().unwrap();
    fake.set_current(other.as_raw());
    let inner = one.make_current().unwrap();
    drop(outer);
    assert_eq!(fake.current(), one.as_raw());
    drop(inner);
    assert_eq!(fake.current(), other.as_raw());
    fake.set_current(ptr::null_mut());

    // One that is never given up keeps its device; those around it are put back.
    let outer = one.make_current().unwrap();
    std::mem::forget(other.make_current().unwrap());
    drop(outer);
    drop(one);
    assert_eq!(fake.current(), other.as_raw());
    fake.set_current(ptr::null_mut());
    drop(other);

    // In storage of a thread that ends, which goes in an order of its own.
    thread_local! {
        static KEPT: std::cell::RefCell<Vec<Current>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    for late in [false, true] {
        std::thread::spawn(move || {
            if late {
                drop(device(0).make_current().unwrap());
            }
            KEPT.with_borrow_mut(|kept| kept.extend([0, 1].map(|ordinal| device(ordinal).make_current().unwrap())));
        })
        .join()
        .unwrap();
    }
    fake.forget();
    drop(device(0));
    assert_eq!(counted("Release_v2"), 1, "nobody has the context of device 0");
}

fn once_part() {
    let (fake, engine) = (Fake::open(), Checked::new());
    let devices = [device(0), device(1)];
    let library = library(&engine, &devices[0], ANSWER);
    // Errors and panics first: each is told, and the next tries again.
    for _ in 0..2 {
        let error = library.initialize_on(&devices[0], |_| Err("not today")).unwrap_err();
        let Error::Cuda(CudaError::DeviceInitialization { library: name, device: 0, source }) = error else {
            panic!("{error}")
        };
        assert_eq!((&*name, &*source.to_string()), ("for a device", "not today"));
    }
    let panics = || library.initialize_on::<Error>(&devices[0], |_| panic!("meant to"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    assert!(fake.current().is_null());

    let (runs, done) = ([AtomicUsize::new(0), AtomicUsize::new(0)], AtomicUsize::new(0));
    let start = Barrier::new(16);
    let initialise = |which: usize| {
        start.wait();
        let run = |library: &Library| -> slabjit::Result<()> {
            assert_eq!(fake.current(), devices[which].as_raw());
            assert_eq!(call(library, "answer"), 42);
            std::thread::sleep(Duration::from_millis(50));
            runs[which].fetch_add(1, Ordering::Relaxed);
            // It does not wait for itself.
            library.initialize_on::<Error>(&devices[which], |_| panic!("it is under way"))?;
            done.fetch_add(1, Ordering::Release);
            Ok(())
        };
        library.initialize_on(&devices[which], run).unwrap();
        assert!(runs[which].load(Ordering::Relaxed) == 1, "who asks meanwhile waits");
        assert!(fake.current().is_null());
    };
    std::thread::scope(|scope| {
        for i in 0..16 {
            scope.spawn(move || initialise(i % 2));
        }
    });
    assert_eq!(done.load(Ordering::Acquire), 2);
    library.initialize_on::<Error>(&devices[1], |_| panic!("it is done")).unwrap();
    // The code keeps both devices, and lets go of both.
    fake.forget();
    drop(devices);
    assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), 0);
    freed(&library);
    assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), 2);
    assert!(matches!(
        library.initialize_on::<Error>(&device(0), |_| Ok(())),
        Err(Error::Library(LibraryError::Removed { .. }))
    ));
    engine.finish();
}

// ---- what a library's end waits for ----

fn work_part() {
    let (fake, engine, device) = (Fake::open(), Checked::new(), device(0));
    let library = library(&engine, &device, ANSWER);
    let code = int(&library, "answer").address();
    let (stream, other) = (fake.stream(&device), fake.stream(&device));
    let modules = [fake.module(&device, stream), fake.module(&device, other)];
    let event = device.event().unwrap();
    // SAFETY: all of it is the device's, and stays; the modules are given away.
    let work = unsafe {
        event.record(other).unwrap();
        let work = Work::on(&device).stream(stream).unwrap().event(event.as_raw()).unwrap();
        work.module(modules[0]).unwrap().module(modules[1]).unwrap()
    };
    library.drain(work).unwrap();
    fake.stream_is("busy", stream, true);
    fake.stream_is("busy", other, true);
    let waits = || {
        assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
        assert_eq!(fake.calls("cuModuleUnload"), 0);
        assert_eq!(engine.stats().arena.slabs, 1, "the memory is there");
        // SAFETY: as it is, so is the code, which `answer` is.
        assert_eq!(unsafe { std::mem::transmute::<*const (), extern "C" fn() -> i32>(code)() }, 42);
        assert!(fake.current().is_null());
    };
    waits();
    let error = library.remove_and_wait(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error, Error::Library(LibraryError::RemovalTimedOut { drains: 1, .. })), "{error}");
    // One of two is not all.
    fake.stream_is("busy", stream, false);
    waits();
    fake.stream_is("busy", stream, true);
    fake.stream_is("busy", other, false);
    waits();
    fake.forget();
    fake.stream_is("busy", stream, false);
    assert_eq!(library.remove(), Removal::Freed);
    let calls: Vec<_> = fake.written().iter().map(|line| line.split('(').next().unwrap().to_owned()).collect();
    assert_eq!(fake.calls("cuModuleUnload"), 2);
    assert_eq!(fake.calls("cuStreamSynchronize") + fake.calls("cuEventSynchronize"), 0, "nothing blocks");
    let last_query = calls.iter().rposition(|call| call.ends_with("Query")).unwrap();
    assert!(last_query < calls.iter().position(|call| call == "cuModuleUnload").unwrap(), "{calls:?}");
    engine.assert_unchanged();

    // As long as somebody can call the code, its modules stay, whatever the stream does.
    let held = library_of(&engine);
    let symbol = int(&held, "answer");
    let module = fake.module(&device, stream);
    // SAFETY: as above.
    held.drain(unsafe { Work::on(&device).stream(stream).unwrap().module(module).unwrap() }).unwrap();
    fake.forget();
    assert!(matches!(held.remove(), Removal::Waiting { .. }));
    let error = held.remove_and_wait(Duration::from_millis(30)).unwrap_err();
    assert!(matches!(error, Error::Library(LibraryError::RemovalTimedOut { holders: 1, drains: 1, .. })), "{error}");
    assert_eq!(fake.calls("cuModuleUnload") + fake.calls("cuStreamQuery"), 0);
    // It launches once more.
    fake.stream_is("busy", stream, true);
    drop(symbol);
    assert!(matches!(held.remove(), Removal::Waiting { holders: 1 }));
    assert_eq!(fake.calls("cuModuleUnload"), 0);
    fake.stream_is("busy", stream, false);
    assert_eq!(held.remove(), Removal::Freed);
    assert_eq!(fake.calls("cuModuleUnload"), 1);

    // The last user of a device may be the work itself; and who waits is told when a stream is done.
    let (library, user) = (library_of(&engine), Driver::load().unwrap().device(1).unwrap());
    assert_eq!(call(&library, "answer"), 42);
    let stream = fake.stream(&user);
    fake.stream_is("busy", stream, true);
    // SAFETY: as above.
    library.drain(unsafe { Work::on(&user).stream(stream).unwrap() }).unwrap();
    fake.forget();
    drop(user);
    let number = stream.expose_provenance();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            fake.stream_is("busy", ptr::with_exposed_provenance_mut(number), false);
        });
        library.remove_and_wait(Duration::from_secs(30)).unwrap();
    });
    assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), 1);
    engine.finish();
}

/// One that is for no device.
fn library_of(engine: &JitEngine) -> Library {
    engine.add_object(compile_bytes("device.c", ANSWER, &[])).unwrap()
}

/// Texts of error events.
#[derive(Clone, Default)]
struct Errors(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "slabjit" && *metadata.level() == tracing::Level::ERROR
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn sticky_part() {
    let errors = Errors::default();
    let reported = || std::mem::take(&mut *errors.0.lock().unwrap());
    let _subscribed = tracing::subscriber::set_default(errors.clone());
    let (fake, engine, device) = (Fake::open(), Checked::new(), device(0));
    let library = library(&engine, &device, ANSWER);
    assert_eq!(call(&library, "answer"), 42);
    let stream = fake.stream(&device);
    // SAFETY: the device's, and it stays; the module is given away.
    library
        .drain(unsafe { Work::on(&device).stream(stream).unwrap().module(fake.module(&device, stream)).unwrap() })
        .unwrap();
    fake.fail("cuStreamQuery", 719, -1);
    for _ in 0..3 {
        assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    }
    assert!(matches!(
        library.remove_and_wait(Duration::from_millis(5)),
        Err(Error::Library(LibraryError::RemovalTimedOut { drains: 1, .. }))
    ));
    assert_eq!(engine.stats().arena.slabs, 1);
    let told = reported();
    assert!(
        told.len() == 1 && told[0].contains("CUDA_ERROR_LAUNCH_FAILED") && told[0].contains("cuStreamQuery"),
        "{told:?}"
    );
    // Another error is told, too; and some pass.
    fake.fail("cuStreamQuery", 400, -1);
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    assert_eq!(reported().len(), 1);
    assert_eq!(fake.calls("cuModuleUnload"), 0);
    fake.fail("cuStreamQuery", 400, 0);
    assert_eq!(library.remove(), Removal::Freed);
    assert_eq!(fake.calls("cuModuleUnload"), 1);
    engine.assert_unchanged();

    // What may or may not be unloaded is not unloaded again, and keeps the memory.
    let library = library_of(&engine);
    assert_eq!(call(&library, "answer"), 42);
    // SAFETY: as above.
    library.drain(unsafe { Work::on(&device).module(fake.module(&device, stream)).unwrap() }).unwrap();
    fake.forget();
    fake.fail("cuModuleUnload", 719, 1);
    for _ in 0..3 {
        assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    }
    assert_eq!(fake.calls("cuModuleUnload"), 1);
    assert_eq!(reported().len(), 1);
    assert_eq!(engine.stats().arena.slabs, 1);
    // Everything else goes on.
    engine.assert_usable();
}

fn capture_part() {
    let (fake, engine, device) = (Fake::open(), Checked::new(), device(0));
    let library = library(&engine, &device, ANSWER);
    assert_eq!(call(&library, "answer"), 42);
    let (stream, event) = (fake.stream(&device), device.event().unwrap());
    // SAFETY: the device's, and they stay; the module is given away.
    let work = unsafe {
        Work::on(&device)
            .stream(stream)
            .unwrap()
            .event(event.as_raw())
            .unwrap()
            .module(fake.module(&device, stream))
            .unwrap()
    };
    library.drain(work).unwrap();
    fake.stream_is("capturing", stream, true);
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    assert_eq!(fake.calls("cuStreamQuery"), 0);
    fake.stream_is("capturing", stream, false);
    // Another thread captures another stream, and forbids all threads what may disturb it.
    fake.set("fake_capture", 1);
    assert_eq!(library.remove(), Removal::Freed);
    assert_eq!(fake.function::<extern "C" fn() -> i32>("fake_disturbed")(), 0);
    let exchange = fake.function::<extern "C" fn(&mut i32) -> i32>("cuThreadExchangeStreamCaptureMode");
    let mut mode = 0;
    exchange(&mut mode);
    assert_eq!(mode, 0, "the thread's mode is put back");
    engine.finish();
}

// ---- children ----

/// Runs `body` in a child, which ends with its handlers and finalisers. The driver of ours ends a process that calls it
/// and has not loaded it.
fn in_child(body: impl FnOnce()) {
    // SAFETY: the child goes on as this thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a plain call: a child that hangs ends with a signal.
        unsafe { libc::alarm(100) };
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        std::process::exit(if ended.is_ok() { 0 } else { 1 });
    }
    let mut status = -1;
    // SAFETY: a child of this process, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's end");
}

fn fork_part() {
    let (fake, engine) = (Fake::open(), JitEngine::new().unwrap());
    fake.fail("cuInit", 100, 1);
    assert!(matches!(Driver::load(), Err(Error::Cuda(CudaError::NoDevice))));
    in_child(|| assert!(matches!(Driver::load(), Err(Error::Cuda(CudaError::AfterFork)))));

    let device = device(0);
    let source = "int answer(void) { return 42; } static int ends; __attribute__((destructor)) static void fini(void) { ends++; }";
    let [busy, idle, late] = [(); 3].map(|()| library(&engine, &device, source));
    assert_eq!(call(&busy, "answer") + call(&idle, "answer"), 84);
    let (stream, event, memory) = (fake.stream(&device), device.event().unwrap(), device.allocate(8).unwrap());
    // SAFETY: the device's, and it stays.
    busy.drain(unsafe { Work::on(&device).stream(stream).unwrap() }).unwrap();
    let before = fake.written().len();
    let still_busy = busy.clone();
    in_child(move || {
        assert!(matches!(Driver::load(), Err(Error::Cuda(CudaError::AfterFork))));
        assert!(matches!(device.driver().device(1), Err(Error::Cuda(CudaError::AfterFork))));
        assert!(matches!(device.make_current(), Err(Error::Cuda(CudaError::AfterFork))));
        assert!(matches!(device.allocate(1), Err(Error::Cuda(CudaError::AfterFork))));
        assert!(matches!(device.name(), Err(Error::Cuda(CudaError::AfterFork))));
        assert!(matches!(event.wait(), Err(Error::Cuda(CudaError::AfterFork))));
        assert!(matches!(busy.initialize_on::<Error>(&device, |_| Ok(())), Err(Error::Cuda(CudaError::AfterFork))));
        // SAFETY: it does not get that far.
        assert!(matches!(unsafe { late.initialize() }, Err(Error::Cuda(CudaError::AfterFork))));
        // What the parent's device may use stays; what waits for nothing goes.
        assert_eq!(busy.remove(), Removal::Waiting { holders: 1 });
        assert_eq!(idle.remove(), Removal::Freed);
        let host = library_of(&engine);
        assert_eq!(call(&host, "answer"), 42);
        drop((busy, idle, late, event, memory, device, engine));
    });
    // Here, all has been dropped that was moved.
    let of_parent = fake.written().split_off(before);
    assert!(of_parent.iter().any(|call| call == "cuMemFree_v2()"), "{of_parent:?}");
    assert_eq!(still_busy.remove(), Removal::Freed);
    assert_eq!(fake.written().last().unwrap(), "cuDevicePrimaryCtxRelease_v2(0)");
}

// ---- memory and time ----

fn memory_part() {
    let (fake, device) = (Fake::open(), device(1));
    let (one, other) = (device.allocate(16).unwrap(), device.allocate(16).unwrap());
    assert_eq!((one.len(), one.device().ordinal(), one.is_empty()), (16, 1, false));
    let (written, mut read) = ([7_u8, 1, 2, 3], [0; 4]);
    let stream = fake.stream(&device);
    // SAFETY: the device's; within what was allocated.
    unsafe {
        device.write(one.address() + 4, &written, stream).unwrap();
        device.copy(other.address(), one.address(), 16, stream).unwrap();
        device.read(&mut read, other.address() + 4, stream).unwrap();
        assert_eq!(read, written);
        // What failed in the stream before is told.
        fake.fail("cuStreamSynchronize", 719, 1);
        let error = device.read(&mut read, other.address(), stream).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Cuda(CudaError::Call { function: "cuStreamSynchronize", device: Some(1), code: 719, .. })
            ),
            "{error}"
        );
        fake.fail("cuMemcpyDtoDAsync_v2", 1, 1);
        let error = device.copy(1, 2, 3, stream).unwrap_err();
        assert!(
            matches!(&error, Error::Cuda(CudaError::Call { name, .. }) if name == "CUDA_ERROR_INVALID_VALUE"),
            "{error}"
        );
    }
    fake.forget();
    let none = device.allocate(0).unwrap();
    assert!(none.is_empty() && none.address() == 0 && fake.calls("cuMemAlloc_v2") == 0);
    fake.fail("cuMemAlloc_v2", 2, 1);
    let error = device.allocate(1 << 60).unwrap_err();
    assert!(
        matches!(error, Error::Cuda(CudaError::DeviceOutOfMemory { function: "cuMemAlloc_v2", device: Some(1) })),
        "{error}"
    );
    drop((one, other, none));
    assert_eq!(fake.calls("cuMemFree_v2"), 2);

    let pass = fake.function::<extern "C" fn(i64)>("fake_pass");
    // SAFETY: the stream is the device's.
    let time = |nanoseconds| unsafe {
        device.time(stream, || {
            assert_eq!(fake.current(), device.as_raw());
            pass(nanoseconds);
            Ok("done")
        })
    };
    assert_eq!(time(1_500_000).unwrap(), ("done", Duration::from_micros(1500)));
    assert_eq!(time(0).unwrap().1, Duration::ZERO);
    // SAFETY: as above.
    let failed = unsafe { device.time::<()>(stream, || Err(Error::Cuda(CudaError::NoDevice))) };
    assert!(matches!(failed, Err(Error::Cuda(CudaError::NoDevice))));
    assert_eq!(fake.calls("cuEventCreate"), fake.calls("cuEventDestroy_v2"));
    let (early, late) = (device.event().unwrap(), device.event().unwrap());
    assert!(
        matches!(late.since(&early), Err(Error::Cuda(CudaError::Call { code: 400, .. }))),
        "they were not recorded"
    );
    // SAFETY: as above.
    unsafe {
        late.record(stream).unwrap();
        pass(1000);
        early.record(stream).unwrap();
    }
    assert_eq!(late.since(&early).unwrap(), Duration::ZERO, "not negative");
    assert!(fake.current().is_null());
}

/// Kernels that add to what is there: run twice, or on what another has left, they would show.
fn tuning_part() {
    let (fake, device) = (Fake::open(), device(1));
    let stream = fake.stream(&device);
    let pass = fake.function::<extern "C" fn(i64)>("fake_pass");
    let sums = device.allocate(8 * 4).unwrap();
    let start: [f32; 8] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let bytes = |numbers: [f32; 8]| numbers.map(f32::to_le_bytes).concat();
    let read = || {
        let mut found = [0; 32];
        // SAFETY: the device's, of that size.
        unsafe { device.read(&mut found, sums.address(), stream).unwrap() };
        found.to_vec()
    };
    // SAFETY: as above.
    unsafe { device.write(sums.address(), &bytes(start), stream).unwrap() };

    // Of a matrix of four rows, the first column. The counter is the host's.
    let signature = KernelSignature::builder("add")
        .in_out("column", ElementType::F32, [4])
        .strides("column", Strides::Fixed(vec![2]))
        .in_out("runs", ElementType::U32, [1])
        .build()
        .unwrap();
    let launches = Mutex::new(Vec::new());
    let candidate = |name: &'static str, nanoseconds: i64, added: f32, fails: bool| {
        let (launches, fake, sums, device) = (&launches, &fake, &sums, &device);
        Candidate::closure(name, &signature, move |_| {
            assert_eq!(fake.current(), device.as_raw());
            launches.lock().unwrap().push(name);
            for row in 0..4 {
                let element = ptr::with_exposed_provenance_mut::<f32>(sums.address() as usize + row * 8);
                // SAFETY: the device's memory is the host's here.
                unsafe { *element += added };
            }
            pass(nanoseconds);
            if fails { Err(Error::Cuda(CudaError::NoDevice)) } else { Ok(()) }
        })
    };
    let _current = device.make_current().unwrap();
    let candidates = [
        candidate("slow", 5_000, 10.0, false),
        candidate("broken", 1, 70.0, true),
        candidate("fast", 2_000, 10.0, false),
    ];
    // SAFETY: the stream outlives the tuner.
    let tuner = Autotuner::with_memory(unsafe { TuningStream::new(&device, stream) }).warm_up(1).runs(3);
    let mut runs = [0_u32];
    fn arguments(device: u32, column: u64, runs: &mut [u32]) -> [Argument<'_>; 2] {
        let column = BufferView::on_device(column, device, ElementType::F32, &[4]).strides(&[2]);
        [column.into(), Argument::slice_mut(runs)]
    }
    // SAFETY: the closures do what the signature says.
    let tuning = unsafe { tuner.run("add", &candidates, &arguments(1, sums.address(), &mut runs)).unwrap() };
    assert_eq!(tuning.winner, 2);
    let times: Vec<_> = tuning.trials.iter().map(|trial| trial.outcome.as_ref().ok().copied()).collect();
    assert_eq!(times, [Some(Duration::from_micros(5)), None, Some(Duration::from_micros(2))]);
    // As if the winner alone had run, once; between the rows nothing was touched.
    assert_eq!(read(), bytes([11.0, 2.0, 13.0, 4.0, 15.0, 6.0, 17.0, 8.0]));
    assert_eq!(launches.lock().unwrap().len(), 4 + 1 + 4 + 1);
    // SAFETY: as above.
    unsafe { tuner.run("add", &candidates, &arguments(1, sums.address(), &mut runs)).unwrap() };
    assert_eq!(launches.lock().unwrap().split_off(10), ["fast"]);
    assert_eq!(read(), bytes([21.0, 2.0, 23.0, 4.0, 25.0, 6.0, 27.0, 8.0]));

    // Another device's buffers, and memory that is not there: nothing has run.
    // SAFETY: as above.
    let error = unsafe { tuner.run("elsewhere", &candidates, &arguments(0, 64, &mut runs)).unwrap_err() };
    assert!(
        matches!(&error, Error::Kernel(KernelError::TuningMemory { space: MemorySpace::Device(0), .. })),
        "{error}"
    );
    fake.fail("cuMemAlloc_v2", 2, 1);
    // SAFETY: as above.
    let error = unsafe { tuner.run("no memory", &candidates, &arguments(1, sums.address(), &mut runs)).unwrap_err() };
    assert!(matches!(error, Error::Cuda(CudaError::DeviceOutOfMemory { .. })), "{error}");
    assert_eq!(launches.lock().unwrap().len(), 10);
    assert_eq!(read(), bytes([21.0, 2.0, 23.0, 4.0, 25.0, 6.0, 27.0, 8.0]));
}

fn handles_part() {
    let device = device(0);
    let refused = |work: slabjit::Result<Work>, handle: &str, words: &str| {
        let error = work.unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, Error::Cuda(CudaError::DeviceHandle { handle: h, .. }) if h == handle)
                && text.contains(words),
            "{text}"
        );
    };
    // SAFETY: they are refused.
    unsafe {
        refused(Work::on(&device).module(ptr::null_mut()), "CUmodule", "null");
        refused(Work::on(&device).event(ptr::null_mut()), "CUevent", "null");
        refused(Work::on(&device).stream(ptr::without_provenance_mut(2)), "CU_STREAM_PER_THREAD", "record an event");
        // The legacy default stream is one.
        let (engine, fake) = (Checked::new(), Fake::open());
        let library = library_of(&engine);
        assert_eq!(call(&library, "answer"), 42);
        library.drain(Work::on(&device).stream(ptr::null_mut()).unwrap()).unwrap();
        fake.stream_is("busy", ptr::null_mut(), true);
        assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
        // While others that wait for it are captured, it cannot be asked: no error.
        let errors = Errors::default();
        fake.fail("cuStreamIsCapturing", 906, -1);
        let remove = || library.remove();
        assert_eq!(tracing::subscriber::with_default(errors.clone(), remove), Removal::Waiting { holders: 1 });
        assert!(errors.0.lock().unwrap().is_empty());
        fake.fail("cuStreamIsCapturing", 906, 0);
        fake.stream_is("busy", ptr::null_mut(), false);
        freed(&library);
        engine.finish();
    }
}
