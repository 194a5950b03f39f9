//! The autotuner: what was in memory before it began, and what is there when it is done.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use crate::common::{self, Checked};
use crate::kernels::{SCALE, Scale, bind, scale_builder};
use slabjit::{
    Argument, Autotuner, BufferView, Candidate, ElementType, Error, KernelError, KernelSignature, MemorySpace, Region,
    Result, Strides, TuningMemory,
};

common::tests![
    the_fastest_wins_and_is_run_once_more,
    what_is_updated_is_updated_once,
    in_place_once,
    nothing_of_losers_is_seen,
    what_lies_between_elements_is_left_alone,
    candidates_that_fail_are_out,
    candidates_that_the_contract_refuses_are_out,
    none_is_left,
    a_panic_restores,
    a_winner_that_fails_restores,
    a_key_is_found_out_once,
    threads_find_out_once,
    candidates_that_are_not_those_of_the_key,
    memory_of_a_device,
    what_can_be_restored_is,
    what_was_saved_elsewhere_is_refused,
    warm_up_is_not_measured,
];

fn buffer_of(element: ElementType, access: slabjit::Access) -> KernelSignature {
    KernelSignature::builder("k").buffer("y", access, element, ["n"]).build().unwrap()
}

fn updated() -> KernelSignature {
    buffer_of(ElementType::F32, slabjit::Access::InOut)
}

/// The memory of a buffer, shared by closures that stand for kernels and get at it by their own pointer.
struct Memory(Vec<Cell<f32>>);

impl Memory {
    fn new(values: impl IntoIterator<Item = f32>) -> Self {
        Self(values.into_iter().map(Cell::new).collect())
    }

    fn view<'a>(&'a self, shape: &'a [usize]) -> BufferView<'a> {
        BufferView::raw(self.0.as_ptr().cast_mut().cast(), ElementType::F32, shape)
    }

    fn values(&self) -> Vec<f32> {
        self.0.iter().map(Cell::get).collect()
    }

    /// What a candidate does that never fails.
    fn add(&self, amount: f32) -> Result<()> {
        self.0.iter().for_each(|cell| cell.set(cell.get() + amount));
        Ok(())
    }
}

fn run<M: TuningMemory>(
    tuner: &Autotuner<M>,
    key: &str,
    candidates: &[Candidate<'_>],
    arguments: &[Argument<'_>],
) -> Result<std::sync::Arc<slabjit::Tuning>> {
    // SAFETY: the buffers are the test's, and the candidates stay in them.
    unsafe { tuner.run(key, candidates, arguments) }
}

fn slow() {
    std::thread::sleep(Duration::from_millis(40));
}

fn the_fastest_wins_and_is_run_once_more() {
    let (memory, signature) = (Memory::new([1.0; 4]), updated());
    let seen = RefCell::new(HashMap::<&str, Vec<f32>>::new());
    let step = |name: &'static str, amount, pause: fn()| {
        let (memory, seen) = (&memory, &seen);
        Candidate::closure(name, &signature, move |_| {
            seen.borrow_mut().entry(name).or_default().push(memory.0[0].get());
            pause();
            memory.add(amount)
        })
    };
    let candidates = [step("slow", 10.0, slow), step("fast", 20.0, || ()), step("slow too", 30.0, slow)];
    let tuner = Autotuner::new().warm_up(1).runs(3);
    let tuning = run(&tuner, "key", &candidates, &[memory.view(&[4]).into()]).unwrap();
    assert_eq!(tuning.winner, 1, "{tuning}");
    let names: Vec<_> = tuning.trials.iter().map(|trial| &*trial.candidate).collect();
    assert_eq!(names, ["slow", "fast", "slow too"]);
    assert!(tuning.to_string().contains("the fastest"));
    let times: Vec<_> = tuning.trials.iter().map(|trial| *trial.outcome.as_ref().unwrap()).collect();
    assert!(times[0] >= Duration::from_millis(40) && times[1] < times[0] && times[1] < times[2], "{times:?}");
    // Each has seen, each time, what was there at first.
    assert_eq!(seen.borrow()["slow"], [1.0; 4]);
    assert_eq!(seen.borrow()["fast"], [1.0; 5]);
    assert_eq!(seen.borrow()["slow too"], [1.0; 4]);
    assert_eq!(memory.values(), [21.0; 4]);
}

fn what_is_updated_is_updated_once() {
    type Add = unsafe extern "C" fn(*const f32, *mut f32, i64);
    let engine = Checked::new();
    let signature = KernelSignature::builder("add").input("x", ElementType::F32, ["n"]);
    let signature = signature.in_out("sum", ElementType::F32, ["n"]).scalar::<i64>("n").build().unwrap();
    let add = |order: &str| {
        let source = format!("void add(const float *x, float *sum, long n) {{ {order} sum[i] += x[i]; }}");
        bind::<Add>(&engine, &signature, &source, "add")
    };
    let (up, down) = (add("for (long i = 0; i < n; i++)"), add("for (long i = n - 1; i >= 0; i--)"));
    let candidates = [Candidate::kernel("up", &up), Candidate::kernel("down", &down)];
    let (x, mut sum) = ([1.0f32; 100], [0.5f32; 100]);
    let tuner = Autotuner::default();
    for round in 1..4 {
        run(&tuner, "add", &candidates, &[Argument::slice(&x), Argument::slice_mut(&mut sum), 100i64.into()]).unwrap();
        assert_eq!(sum, [0.5 + round as f32; 100]);
    }
    drop((candidates, up, down));
    engine.finish();
}

fn in_place_once() {
    let engine = Checked::new();
    let kernel = bind::<Scale>(&engine, &scale_builder().alias("y", "x").in_place().build().unwrap(), SCALE, "scale");
    let memory = Memory::new([3.0; 64]);
    let candidates = [Candidate::kernel("one", &kernel), Candidate::kernel("other", &kernel)];
    let view = memory.view(&[64]).into();
    run(&Autotuner::new(), "scale", &candidates, &[view, view, 64i64.into(), 2.0f32.into()]).unwrap();
    assert_eq!(memory.values(), [6.0; 64]);
    drop((candidates, kernel));
    engine.finish();
}

/// triton#9230: what one candidate writes and the other does not is not to be seen with the other's result.
fn nothing_of_losers_is_seen() {
    for access in [slabjit::Access::Out, slabjit::Access::InOut, slabjit::Access::Scratch] {
        let (memory, signature) = (Memory::new([7.0; 8]), buffer_of(ElementType::F32, access));
        let half = |name: &str, start: usize, pause: fn()| {
            let memory = &memory;
            Candidate::closure(name, &signature, move |_| {
                pause();
                memory.0[start..start + 4].iter().for_each(|cell| cell.set(1.0));
                Ok(())
            })
        };
        let candidates = [half("slow", 0, slow), half("fast", 4, || ())];
        run(&Autotuner::new().runs(1), "key", &candidates, &[memory.view(&[8]).into()]).unwrap();
        assert_eq!(memory.values(), [7.0, 7.0, 7.0, 7.0, 1.0, 1.0, 1.0, 1.0], "{access:?}");
    }
}

/// Others may be at work there.
fn what_lies_between_elements_is_left_alone() {
    let memory = Memory::new([0.0; 16]);
    let signature = KernelSignature::builder("k").in_out("y", ElementType::F32, ["rows", "columns"]);
    let signature = signature.strides("y", Strides::Any).build().unwrap();
    let candidate = Candidate::closure("all", &signature, |_| memory.add(1.0));
    let view = memory.view(&[2, 3]).strides(&[8, 2]);
    run(&Autotuner::new().warm_up(2).runs(7), "key", &[candidate], &[view.into()]).unwrap();
    let of_the_view = [0, 2, 4, 8, 10, 12];
    let expected: Vec<f32> = (0..16).map(|i| if of_the_view.contains(&i) { 1.0 } else { 10.0 }).collect();
    assert_eq!(memory.values(), expected);
}

fn failed(status: i64) -> Error {
    Error::Kernel(KernelError::Failed { kernel: "closure".into(), status })
}

fn candidates_that_fail_are_out() {
    let (memory, signature) = (Memory::new([1.0; 4]), updated());
    let at_last = Cell::new(0);
    let candidates = [
        Candidate::closure("at once", &signature, |_| {
            memory.add(100.0)?;
            Err(failed(1))
        }),
        Candidate::closure("works", &signature, |_| {
            slow();
            memory.add(1.0)
        }),
        Candidate::closure("at last", &signature, |_| {
            memory.add(50.0)?;
            at_last.set(at_last.get() + 1);
            if at_last.get() == 4 { Err(failed(2)) } else { Ok(()) }
        }),
    ];
    let tuning = run(&Autotuner::new().warm_up(1).runs(3), "key", &candidates, &[memory.view(&[4]).into()]).unwrap();
    assert_eq!(tuning.winner, 1);
    assert!(matches!(tuning.trials[0].outcome, Err(Error::Kernel(KernelError::Failed { status: 1, .. }))));
    assert!(matches!(tuning.trials[2].outcome, Err(Error::Kernel(KernelError::Failed { status: 2, .. }))));
    assert_eq!(memory.values(), [2.0; 4]);
}

fn candidates_that_the_contract_refuses_are_out() {
    let engine = Checked::new();
    let not_in_place = bind::<Scale>(&engine, &scale_builder().build().unwrap(), SCALE, "scale");
    let in_place = bind::<Scale>(&engine, &scale_builder().alias("y", "x").in_place().build().unwrap(), SCALE, "scale");
    let memory = Memory::new([3.0; 64]);
    let view = memory.view(&[64]).into();
    let arguments = [view, view, 64i64.into(), 2.0f32.into()];
    let candidates = [Candidate::kernel("not in place", &not_in_place), Candidate::kernel("in place", &in_place)];
    let tuner = Autotuner::new();
    let tuning = run(&tuner, "scale", &candidates, &arguments).unwrap();
    assert_eq!(tuning.winner, 1);
    assert!(matches!(tuning.trials[0].outcome, Err(Error::Kernel(KernelError::BuffersOverlap { .. }))));
    assert_eq!(memory.values(), [6.0; 64]);
    // Nor does the winner run where the contract refuses it.
    let shifted = memory.view(&[63]).into();
    let error = run(&tuner, "scale", &candidates, &[shifted, view, 64i64.into(), 2.0f32.into()]).unwrap_err();
    assert!(matches!(error, Error::Kernel(KernelError::ShapeMismatch { .. })), "{error}");
    assert_eq!(memory.values(), [6.0; 64]);
    drop((candidates, not_in_place, in_place));
    engine.finish();
}

fn none_is_left() {
    let (memory, signature) = (Memory::new([1.0; 4]), updated());
    let candidate = |name: &str, status| {
        let memory = &memory;
        Candidate::closure(name, &signature, move |_| {
            memory.add(100.0)?;
            Err(failed(status))
        })
    };
    let tuner = Autotuner::new();
    let view = memory.view(&[4]);
    let error = run(&tuner, "key", &[candidate("one", 1), candidate("other", 2)], &[view.into()]).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("one: ") && text.contains("status 1") && text.contains("other: ") && text.contains("status 2")
    );
    assert!(
        matches!(&error, Error::NoCandidate { key, candidates } if key == "key" && candidates.len() == 2),
        "{error}"
    );
    assert_eq!(memory.values(), [1.0; 4]);
    assert!(tuner.tuning("key").is_none());
    let error = run(&tuner, "key", &[], &[view.into()]).unwrap_err();
    assert!(matches!(&error, Error::NoCandidate { candidates, .. } if candidates.is_empty()), "{error}");
    // The key is free for those that work.
    let works = Candidate::closure("works", &signature, |_| memory.add(1.0));
    run(&tuner, "key", &[works], &[view.into()]).unwrap();
    assert_eq!(memory.values(), [2.0; 4]);
}

fn a_panic_restores() {
    let (memory, signature) = (Memory::new([1.0; 4]), updated());
    let runs = Cell::new(0);
    let candidate = |last| {
        let (memory, runs) = (&memory, &runs);
        Candidate::closure("panics", &signature, move |_| {
            memory.add(100.0)?;
            runs.set(runs.get() + 1);
            if runs.get() == last {
                std::panic::resume_unwind(Box::new("meant"));
            }
            Ok(())
        })
    };
    // When it is measured, and when it is run as the winner.
    let tuner = Autotuner::new().warm_up(1).runs(2);
    for last in [1, 3, 4] {
        runs.set(0);
        let key = format!("{last}");
        let arguments = [memory.view(&[4]).into()];
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&tuner, &key, &[candidate(last)], &arguments)));
        assert_eq!(*outcome.unwrap_err().downcast::<&str>().unwrap(), "meant");
        assert_eq!(memory.values(), [1.0; 4], "{last}");
    }
    // The tuner goes on, with the same keys.
    let before = memory.values();
    run(&tuner, "1", &[candidate(usize::MAX as i32)], &[memory.view(&[4]).into()]).unwrap();
    assert_eq!(memory.values(), before.iter().map(|value| value + 100.0).collect::<Vec<_>>());
}

fn a_winner_that_fails_restores() {
    let (memory, signature) = (Memory::new([1.0; 4]), updated());
    let runs = Cell::new(0);
    let candidate = Candidate::closure("fails at last", &signature, |_| {
        memory.add(100.0)?;
        runs.set(runs.get() + 1);
        if runs.get() > 3 { Err(failed(9)) } else { Ok(()) }
    });
    let error =
        run(&Autotuner::new().warm_up(1).runs(2), "key", &[candidate], &[memory.view(&[4]).into()]).unwrap_err();
    assert!(matches!(error, Error::Kernel(KernelError::Failed { status: 9, .. })), "{error}");
    assert_eq!(memory.values(), [1.0; 4]);
}

fn a_key_is_found_out_once() {
    let (memory, signature) = (Memory::new([0.0; 4]), updated());
    let runs = [Cell::new(0), Cell::new(0)];
    let candidate = |index: usize, pause: fn()| {
        let (memory, runs) = (&memory, &runs);
        Candidate::closure(format!("{index}"), &signature, move |_| {
            runs[index].set(runs[index].get() + 1);
            pause();
            memory.add(1.0)
        })
    };
    let candidates = [candidate(0, slow), candidate(1, || ())];
    let tuner = Autotuner::new().warm_up(0).runs(2);
    let once = |key| run(&tuner, key, &candidates, &[memory.view(&[4]).into()]).unwrap();
    assert!(tuner.tuning("a").is_none());
    let first = once("a");
    assert_eq!(runs.each_ref().map(Cell::get), [2, 3]);
    let second = once("a");
    assert!(std::sync::Arc::ptr_eq(&first, &second) && std::sync::Arc::ptr_eq(&first, &tuner.tuning("a").unwrap()));
    assert_eq!(runs.each_ref().map(Cell::get), [2, 4]);
    once("b");
    assert_eq!(runs.each_ref().map(Cell::get), [4, 7]);
    tuner.forget("a");
    once("a");
    assert_eq!(runs.each_ref().map(Cell::get), [6, 10]);
    assert_eq!(memory.values(), [4.0; 4]);
}

fn threads_find_out_once() {
    const THREADS: usize = 8;
    let (tuner, signature) = (Autotuner::new().warm_up(0).runs(1), updated());
    let (slow_runs, barrier) = (AtomicUsize::new(0), Barrier::new(THREADS));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let memory = Memory::new([1.0; 4]);
                let candidates = [
                    Candidate::closure("slow", &signature, |_| {
                        slow_runs.fetch_add(1, Ordering::Relaxed);
                        slow();
                        memory.add(100.0)
                    }),
                    Candidate::closure("fast", &signature, |_| memory.add(1.0)),
                ];
                barrier.wait();
                let tuning = run(&tuner, "key", &candidates, &[memory.view(&[4]).into()]).unwrap();
                assert_eq!(tuning.winner, 1);
                assert_eq!(memory.values(), [2.0; 4]);
            });
        }
    });
    assert_eq!(slow_runs.into_inner(), 1);
}

/// The host's memory; restoring one region fails.
struct Failing(usize);

impl TuningMemory for Failing {
    type Saved = slabjit::HostSaved;

    fn save(&self, region: &Region) -> Result<Self::Saved> {
        slabjit::HostMemory.save(region)
    }

    fn restore(&self, region: &Region, saved: &Self::Saved) -> Result<()> {
        if region.bytes() == self.0 {
            return Err(Error::Kernel(KernelError::TuningMemory {
                space: region.space(),
                bytes: self.0,
                problem: "broken".to_owned(),
            }));
        }
        slabjit::HostMemory.restore(region, saved)
    }

    fn time(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
        slabjit::HostMemory.time(run)
    }
}

fn what_can_be_restored_is() {
    let signature = KernelSignature::builder("two")
        .in_out("one", ElementType::F32, [2])
        .in_out("other", ElementType::F32, [4])
        .build()
        .unwrap();
    let (one, other) = (Memory::new([1.0; 2]), Memory::new([1.0; 4]));
    let runs = Cell::new(0);
    let candidate = Candidate::closure("only", &signature, |_| {
        runs.set(runs.get() + 1);
        one.add(1.0)?;
        other.add(1.0)?;
        Err(Error::NoCandidate { key: String::new(), candidates: Vec::new() })
    });
    // Nothing has run when the first restore fails.
    let tuner = Autotuner::with_memory(Failing(8));
    let arguments = [one.view(&[2]).into(), other.view(&[4]).into()];
    let error = run(&tuner, "key", &[candidate], &arguments).unwrap_err();
    assert!(matches!(&error, Error::Kernel(KernelError::TuningMemory { bytes: 8, .. })), "{error}");
    assert_eq!(runs.get(), 0);

    // A winner that fails after it was tuned: the second is restored, and what could not be is told.
    let broken = std::rc::Rc::new(Cell::new(false));
    struct Later(std::rc::Rc<Cell<bool>>);
    // SAFETY: this test has one thread.
    unsafe impl Send for Later {}
    // SAFETY: as above.
    unsafe impl Sync for Later {}
    impl TuningMemory for Later {
        type Saved = slabjit::HostSaved;
        fn save(&self, region: &Region) -> Result<Self::Saved> {
            slabjit::HostMemory.save(region)
        }
        fn restore(&self, region: &Region, saved: &Self::Saved) -> Result<()> {
            if self.0.get() { Failing(8).restore(region, saved) } else { slabjit::HostMemory.restore(region, saved) }
        }
        fn time(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
            slabjit::HostMemory.time(run)
        }
    }
    let tuner = Autotuner::with_memory(Later(broken.clone())).warm_up(0).runs(1);
    let candidate = Candidate::closure("fails later", &signature, |_| {
        runs.set(runs.get() + 1);
        one.add(1.0)?;
        other.add(1.0)?;
        if runs.get() == 2 {
            broken.set(true);
            return Err(Error::NoCandidate { key: String::new(), candidates: Vec::new() });
        }
        Ok(())
    });
    let error = run(&tuner, "later", &[candidate], &arguments).unwrap_err();
    assert!(matches!(&error, Error::Kernel(KernelError::TuningMemory { bytes: 8, .. })), "{error}");
    assert_eq!((one.values(), other.values()), (vec![2.0; 2], vec![1.0; 4]));
}

/// Restores each region from what was saved of another.
struct Swapping(Mutex<Vec<slabjit::HostSaved>>);

impl TuningMemory for Swapping {
    type Saved = usize;

    fn save(&self, region: &Region) -> Result<usize> {
        let mut all = self.0.lock().unwrap();
        all.push(slabjit::HostMemory.save(region)?);
        Ok(all.len() - 1)
    }

    fn restore(&self, region: &Region, saved: &usize) -> Result<()> {
        slabjit::HostMemory.restore(region, &self.0.lock().unwrap()[1 - saved])
    }

    fn time(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
        slabjit::HostMemory.time(run)
    }
}

fn what_was_saved_elsewhere_is_refused() {
    let signature = KernelSignature::builder("two")
        .in_out("one", ElementType::F32, [4])
        .in_out("other", ElementType::F32, [4])
        .build()
        .unwrap();
    let (one, other) = (Memory::new([1.0; 4]), Memory::new([2.0; 4]));
    let candidate = Candidate::closure("only", &signature, |_| Ok(()));
    let tuner = Autotuner::with_memory(Swapping(Mutex::default()));
    let error = run(&tuner, "key", &[candidate], &[one.view(&[4]).into(), other.view(&[4]).into()]).unwrap_err();
    assert!(
        matches!(&error, Error::Kernel(KernelError::TuningMemory { problem, .. }) if problem.contains("another region")),
        "{error}"
    );
    assert_eq!((one.values(), other.values()), (vec![1.0; 4], vec![2.0; 4]));
}

fn candidates_that_are_not_those_of_the_key() {
    let (memory, signature) = (Memory::new([0.0; 4]), updated());
    let candidate = |name: &str| Candidate::closure(name, &signature, |_| memory.add(1.0));
    let tuner = Autotuner::new();
    let arguments = [memory.view(&[4]).into()];
    run(&tuner, "key", &[candidate("one")], &arguments).unwrap();
    for others in [vec![], vec![candidate("other")], vec![candidate("other"), candidate("one")]] {
        let error = run(&tuner, "key", &others, &arguments).unwrap_err();
        assert!(
            matches!(&error, Error::Kernel(KernelError::TunedCandidateMissing { candidate, place: 0, .. }) if candidate == "one"),
            "{error}"
        );
    }
    assert_eq!(memory.values(), [1.0; 4]);
}

/// A device whose memory is bytes under addresses that are nothing to the host, and whose clock is counted.
#[derive(Default)]
struct Device {
    memory: Mutex<HashMap<usize, u8>>,
    clock: AtomicUsize,
}

impl Device {
    fn read(&self, address: usize) -> u8 {
        self.memory.lock().unwrap().get(&address).copied().unwrap_or_default()
    }
}

impl TuningMemory for &Device {
    type Saved = Vec<u8>;

    fn save(&self, region: &Region) -> Result<Vec<u8>> {
        assert_eq!(region.space(), MemorySpace::Device(3));
        let bytes = region.blocks().flat_map(|block| (0..region.block_bytes()).map(move |byte| block.addr() + byte));
        Ok(bytes.map(|address| self.read(address)).collect())
    }

    fn restore(&self, region: &Region, saved: &Vec<u8>) -> Result<()> {
        let bytes = region.blocks().flat_map(|block| (0..region.block_bytes()).map(move |byte| block.addr() + byte));
        self.memory.lock().unwrap().extend(bytes.zip(saved.iter().copied()));
        Ok(())
    }

    fn time(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
        self.clock.store(0, Ordering::Relaxed);
        run()?;
        Ok(Duration::from_nanos(self.clock.load(Ordering::Relaxed) as u64))
    }
}

fn memory_of_a_device() {
    const ADDRESS: u64 = 0x7f00_dead_0000;
    let device = Device::default();
    let signature = buffer_of(ElementType::U8, slabjit::Access::InOut);
    let candidate = |name: &str, cost, amount| {
        let device = &device;
        Candidate::closure(name, &signature, move |_| {
            device.clock.fetch_add(cost, Ordering::Relaxed);
            let mut memory = device.memory.lock().unwrap();
            (0..4).for_each(|byte| *memory.entry(ADDRESS as usize + byte).or_default() += amount);
            Ok(())
        })
    };
    let candidates = [candidate("slow", 90, 10), candidate("fast", 80, 1)];
    let arguments = [BufferView::on_device(ADDRESS, 3, ElementType::U8, &[4]).into()];
    // The host cannot save it, and does not try.
    let error = run(&Autotuner::new(), "key", &candidates, &arguments).unwrap_err();
    assert!(
        matches!(error, Error::Kernel(KernelError::TuningMemory { space: MemorySpace::Device(3), bytes: 4, .. })),
        "{error}"
    );
    assert_eq!(device.read(ADDRESS as usize), 0);
    let tuning = run(&Autotuner::with_memory(&device), "key", &candidates, &arguments).unwrap();
    assert_eq!(*tuning.trials[tuning.winner].outcome.as_ref().unwrap(), Duration::from_nanos(80));
    assert_eq!((0..5).map(|byte| device.read(ADDRESS as usize + byte)).collect::<Vec<_>>(), [1, 1, 1, 1, 0]);
}

fn warm_up_is_not_measured() {
    let (device, signature) = (Device::default(), buffer_of(ElementType::U8, slabjit::Access::InOut));
    let runs = Cell::new(0);
    let candidate = Candidate::closure("slow at first", &signature, |_| {
        runs.set(runs.get() + 1);
        device.clock.fetch_add([1000, 2000, 30, 10, 20][(runs.get() - 1) % 5], Ordering::Relaxed);
        Ok(())
    });
    let tuner = Autotuner::with_memory(&device).warm_up(2).runs(3);
    let tuning =
        run(&tuner, "key", &[candidate], &[BufferView::on_device(64, 3, ElementType::U8, &[4]).into()]).unwrap();
    assert_eq!(*tuning.trials[0].outcome.as_ref().unwrap(), Duration::from_nanos(20));
}
