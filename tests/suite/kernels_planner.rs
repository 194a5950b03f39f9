//! NVIDIA/TransformerEngine#2730, on the CPU.
//!
//! There, gradients were wrong: half of their elements, each time when all tests ran in one process, never when the
//! test ran alone. Three things met. The compiler (XLA) planned one buffer for the input and the output of a custom
//! call, as they have one shape and the input is dead afterwards. The kernel, a permutation of rows, reads one row and
//! writes another, so it cannot run in place. And the autotuner ran each configuration on what the one before it had
//! left, as no alias was declared and so nothing was saved.
//!
//! Here a planner hands out slots of memory, and gives an output the slot of its dead input when no other is free. So a
//! process that has memory to spare is right by luck, and one that is full is wrong each time.

use std::time::Instant;

use crate::common::{self, Checked, Random, compile_bytes};
use crate::kernels::{Scale, scale_builder};
use slabjit::{
    Argument, Autotuner, BufferView, Candidate, ElementType, Error, Kernel, KernelError, KernelSignature, Result,
    Symbol,
};

common::tests![
    raw_calls_are_right_alone_and_wrong_in_a_full_run,
    a_permutation_in_place_is_wrong_without_a_tuner,
    a_contract_refuses_what_the_planner_shares,
    a_planner_that_asks_is_right_alone_and_in_a_full_run,
];

const ROWS: usize = 64;
const COLUMNS: usize = 24;
const SIZE: usize = ROWS * COLUMNS;

/// `dst[r] = src[map[r]]`, row by row: forwards, backwards, or some columns at a time.
const PERMUTE: &str = "
    void permute_rows(const float *src, const int *map, float *dst, long rows, long columns) {
        for (long first = 0; first < columns; first += WIDTH(columns))
            for (long i = 0; i < rows; i++) {
                long r = ROW(i);
                for (long c = first; c < first + WIDTH(columns) && c < columns; c++)
                    dst[r * columns + c] = src[map[r] * columns + c];
            }
    }";
const PERMUTE_CONFIGURATIONS: [&[&str]; 3] =
    [&["-DWIDTH(c)=c", "-DROW(i)=i"], &["-DWIDTH(c)=c", "-DROW(i)=rows-1-i"], &["-DWIDTH(c)=16", "-DROW(i)=i"]];
type Permute = unsafe extern "C" fn(*const f32, *const i32, *mut f32, i64, i64);

const SCALE: &str = "
    void scale(const float *x, float *y, long n, float by) { for (long i = 0; i < n; i++) y[ELEMENT(i)] = by * x[ELEMENT(i)]; }";
const SCALE_CONFIGURATIONS: [&[&str]; 2] = [&["-DELEMENT(i)=i"], &["-DELEMENT(i)=n-1-i"]];

/// A layer of a model.
#[derive(Debug, Clone)]
enum Layer {
    Scale(f32),
    Permute(Vec<i32>),
}

/// What the layers make of a matrix, element by element.
fn oracle(layers: &[Layer], input: &[f32]) -> Vec<f32> {
    layers.iter().fold(input.to_vec(), |x, layer| match layer {
        Layer::Scale(by) => x.iter().map(|x| by * x).collect(),
        Layer::Permute(map) => map.iter().flat_map(|row| x[*row as usize * COLUMNS..][..COLUMNS].to_vec()).collect(),
    })
}

/// Forward and backward: scaled, permuted, scaled, and permuted back as often.
fn model(random: &mut Random, permutations: usize) -> Vec<Layer> {
    (0..permutations)
        .flat_map(|_| {
            let mut map: Vec<i32> = (0..ROWS as i32).collect();
            random.shuffle(&mut map);
            [Layer::Scale(0.5), Layer::Permute(map), Layer::Scale(4.0)]
        })
        .collect()
}

fn input(random: &mut Random) -> Vec<f32> {
    (0..SIZE).map(|_| random.below(1 << 20) as f32).collect()
}

/// Slots for matrices, some of which hold values that are needed.
struct Planner {
    memory: Vec<f32>,
    free: Vec<usize>,
}

impl Planner {
    fn new(slots: usize) -> Self {
        Self { memory: vec![0.0; slots * SIZE], free: (0..slots).collect() }
    }

    /// A slot for what is not dead soon.
    fn hold(&mut self, value: &[f32]) -> usize {
        let slot = self.free.pop().expect("a slot is free");
        self.memory[slot * SIZE..][..SIZE].copy_from_slice(value);
        slot
    }

    fn value(&self, slot: usize) -> &[f32] {
        &self.memory[slot * SIZE..][..SIZE]
    }

    fn pointer(&mut self, slot: usize) -> *mut f32 {
        assert!((slot + 1) * SIZE <= self.memory.len());
        self.memory.as_mut_ptr().wrapping_add(slot * SIZE)
    }

    /// A slot for the output of a layer after which its input is dead. If none is free, it is the input's, if it may
    /// be; else there will be one more.
    fn output(&mut self, input: usize, may_share: bool) -> usize {
        self.free.pop().unwrap_or_else(|| {
            if may_share {
                return input;
            }
            self.memory.resize(self.memory.len() + SIZE, 0.0);
            self.memory.len() / SIZE - 1
        })
    }
}

/// Who runs layers, at pointers.
trait Runs {
    /// Whether the output may have the place of the input.
    fn may_share(&self, layer: &Layer) -> bool;
    fn run(&self, layer: &Layer, from: *mut f32, to: *mut f32) -> Result<()>;
}

/// All layers, one after the other. Where one is refused, what was in memory before it is there still.
fn run_model(planner: &mut Planner, runs: &impl Runs, layers: &[Layer], input: &[f32]) -> Result<Vec<f32>> {
    let mut value = planner.hold(input);
    for layer in layers {
        let output = planner.output(value, runs.may_share(layer));
        let before = planner.memory.clone();
        let (from, to) = (planner.pointer(value), planner.pointer(output));
        if let Err(error) = runs.run(layer, from, to) {
            assert_eq!(planner.memory, before, "something was lost");
            return Err(error);
        }
        if output != value {
            planner.free.push(value);
            value = output;
        }
    }
    planner.free.push(value);
    Ok(planner.value(value).to_vec())
}

fn configurations<T: Copy + 'static>(engine: &Checked, source: &str, name: &str, all: &[&[&str]]) -> Vec<Symbol<T>> {
    let one = |flags: &&[&str]| {
        let library = engine.add_object(compile_bytes("kernel.c", source, flags)).unwrap();
        // SAFETY: the type is that of the source.
        unsafe { library.get(name).unwrap() }
    };
    all.iter().map(one).collect()
}

/// Without us: functions at addresses, a tuner that runs them all and then the fastest, and a planner that shares what
/// is dead.
struct Raw {
    permute: Vec<Symbol<Permute>>,
    scale: Vec<Symbol<Scale>>,
    tunes: bool,
}

impl Raw {
    fn new(engine: &Checked, tunes: bool) -> Self {
        let permute = configurations(engine, PERMUTE, "permute_rows", &PERMUTE_CONFIGURATIONS);
        Self { permute, scale: configurations(engine, SCALE, "scale", &SCALE_CONFIGURATIONS), tunes }
    }

    fn fastest(&self, count: usize, run: impl Fn(usize)) {
        let time = |configuration| {
            let start = Instant::now();
            run(configuration);
            start.elapsed()
        };
        let winner = if self.tunes { (0..count).min_by_key(|configuration| time(*configuration)).unwrap() } else { 0 };
        run(winner);
    }
}

impl Runs for Raw {
    fn may_share(&self, _: &Layer) -> bool {
        true
    }

    fn run(&self, layer: &Layer, from: *mut f32, to: *mut f32) -> Result<()> {
        let (rows, columns) = (ROWS as i64, COLUMNS as i64);
        match layer {
            Layer::Scale(by) => {
                // SAFETY: both are slots.
                self.fastest(self.scale.len(), |i| unsafe { self.scale[i](from, to, SIZE as i64, *by) });
            }
            Layer::Permute(map) => {
                let map = map.as_ptr();
                // SAFETY: both are slots, and rows are in range.
                self.fastest(self.permute.len(), |i| unsafe { self.permute[i](from, map, to, rows, columns) });
            }
        }
        Ok(())
    }
}

/// With us: the same functions, through their contracts. The planner asks, or it does not.
struct Ours {
    permute: Vec<Kernel>,
    scale: Vec<Kernel>,
    tuner: Option<Autotuner>,
    asks: bool,
}

impl Ours {
    fn new(engine: &Checked, tuner: Option<Autotuner>, asks: bool) -> Self {
        let permute = KernelSignature::builder("permute_rows")
            .input("src", ElementType::F32, ["rows", "columns"])
            .input("map", ElementType::I32, ["rows"])
            .output("dst", ElementType::F32, ["rows", "columns"])
            .scalar::<i64>("rows")
            .scalar::<i64>("columns")
            .build()
            .unwrap();
        let scale = scale_builder().alias("y", "x").in_place().build().unwrap();
        let permutes = configurations::<Permute>(engine, PERMUTE, "permute_rows", &PERMUTE_CONFIGURATIONS);
        let scales = configurations::<Scale>(engine, SCALE, "scale", &SCALE_CONFIGURATIONS);
        Self {
            permute: permutes.into_iter().map(|symbol| permute.bind(symbol).unwrap()).collect(),
            scale: scales.into_iter().map(|symbol| scale.bind(symbol).unwrap()).collect(),
            tuner,
            asks,
        }
    }

    fn fastest(&self, key: &str, kernels: &[Kernel], arguments: &[Argument<'_>]) -> Result<()> {
        let Some(tuner) = &self.tuner else {
            // SAFETY: buffers are slots, and rows are in range.
            return unsafe { kernels[0].call(arguments) };
        };
        let candidates: Vec<_> =
            kernels.iter().enumerate().map(|(i, kernel)| Candidate::kernel(format!("{key} {i}"), kernel)).collect();
        // SAFETY: as above.
        unsafe { tuner.run(key, &candidates, arguments) }.map(drop)
    }
}

impl Runs for Ours {
    fn may_share(&self, layer: &Layer) -> bool {
        !self.asks
            || match layer {
                Layer::Scale(_) => self.scale[0].signature().may_share("y", "x"),
                Layer::Permute(_) => self.permute[0].signature().may_share("dst", "src"),
            }
    }

    fn run(&self, layer: &Layer, from: *mut f32, to: *mut f32) -> Result<()> {
        let flat = |pointer: *mut f32| BufferView::raw(pointer.cast(), ElementType::F32, &[SIZE]);
        let (x, y) = (flat(from), flat(to));
        match layer {
            Layer::Scale(by) => {
                let arguments = [x.into(), y.into(), (SIZE as i64).into(), (*by).into()];
                self.fastest("scale", &self.scale, &arguments)
            }
            Layer::Permute(map) => {
                let shape = &[ROWS, COLUMNS];
                let (x, map, y) = (x.shape(shape).into(), Argument::slice(map), y.shape(shape).into());
                let arguments = [x, map, y, (ROWS as i64).into(), (COLUMNS as i64).into()];
                self.fastest("permute", &self.permute, &arguments)
            }
        }
    }
}

/// How many elements of a result are not what they should be, in percent.
fn wrong(result: &[f32], layers: &[Layer], input: &[f32]) -> usize {
    let expected = oracle(layers, input);
    result.iter().zip(&expected).filter(|(one, other)| one != other).count() * 100 / expected.len()
}

/// What one process does in which model after model runs: some of what they make is kept, until the planner's slots are
/// used up. Each model that was run is followed by the number of elements that are wrong; an error ends it.
fn full_run(runs: &impl Runs, seed: u64) -> Result<Vec<usize>> {
    const SLOTS: usize = 6;
    let mut random = Random::new(seed);
    let mut planner = Planner::new(SLOTS);
    let (mut all, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..SLOTS {
        let (layers, input) = (model(&mut random, 3), input(&mut random));
        let result = run_model(&mut planner, runs, &layers, &input)?;
        all.push(wrong(&result, &layers, &input));
        if planner.free.len() > 1 {
            kept.push((planner.hold(&result), result));
        }
    }
    for (slot, result) in kept {
        assert_eq!(planner.value(slot), result, "what was kept has changed");
    }
    Ok(all)
}

/// One model in a process that has memory to spare.
fn alone(runs: &impl Runs, seed: u64) -> Result<usize> {
    let mut random = Random::new(seed);
    let (layers, input) = (model(&mut random, 3), input(&mut random));
    Ok(wrong(&run_model(&mut Planner::new(2), runs, &layers, &input)?, &layers, &input))
}

fn raw_calls_are_right_alone_and_wrong_in_a_full_run() {
    let engine = Checked::new();
    let raw = Raw::new(&engine, true);
    for seed in 0..10 {
        assert_eq!(alone(&raw, seed).unwrap(), 0);
        let full = full_run(&raw, seed).unwrap();
        println!("without contracts, percent of elements wrong, model by model: {full:?}");
        // As long as there are free slots, all is well.
        assert_eq!(full[..5], [0; 5]);
        assert!(full[5] > 25, "{full:?}");
    }
    drop(raw);
    engine.finish();
}

fn a_permutation_in_place_is_wrong_without_a_tuner() {
    let engine = Checked::new();
    let raw = Raw::new(&engine, false);
    let mut random = Random::new(1);
    // Nothing but the permutation, in the one slot there is; and an elementwise layer, which bears it as long as nobody
    // tunes it.
    let (permute, input) = (model(&mut random, 1)[1..2].to_vec(), input(&mut random));
    let result = run_model(&mut Planner::new(1), &raw, &permute, &input).unwrap();
    assert!(wrong(&result, &permute, &input) > 25);
    let scale = [Layer::Scale(0.5)];
    let result = run_model(&mut Planner::new(1), &raw, &scale, &input).unwrap();
    assert_eq!(wrong(&result, &scale, &input), 0);
    let result = run_model(&mut Planner::new(1), &Raw { tunes: true, ..raw }, &scale, &input).unwrap();
    assert_eq!(wrong(&result, &scale, &input), 100);
    engine.finish();
}

fn a_contract_refuses_what_the_planner_shares() {
    let engine = Checked::new();
    for tuner in [None, Some(Autotuner::new())] {
        let tunes = tuner.is_some();
        let ours = Ours::new(&engine, tuner, false);
        for seed in 0..10 {
            assert_eq!(alone(&ours, seed).unwrap(), 0);
            // The kernel is refused, by itself or as each of the tuner's candidates. (The tuner knows its key from the
            // models before, and then the winner is refused.)
            match full_run(&ours, seed) {
                Err(Error::Kernel(KernelError::BuffersOverlap { kernel, first, second, .. })) => {
                    assert_eq!((&*kernel, &*first, &*second), ("permute_rows", "src", "dst"));
                }
                other => panic!("{other:?}, tuned: {tunes}"),
            }
        }
    }
    let ours = Ours::new(&engine, Some(Autotuner::new()), false);
    let mut random = Random::new(1);
    let (permute, input) = (model(&mut random, 1)[1..2].to_vec(), input(&mut random));
    match run_model(&mut Planner::new(1), &ours, &permute, &input) {
        Err(Error::NoCandidate { candidates, .. }) => {
            assert!(
                candidates.iter().all(|(_, error)| matches!(error, Error::Kernel(KernelError::BuffersOverlap { .. })))
            );
        }
        other => panic!("{other:?}"),
    }
    drop(ours);
    engine.finish();
}

fn a_planner_that_asks_is_right_alone_and_in_a_full_run() {
    let engine = Checked::new();
    for tuner in [None, Some(Autotuner::new())] {
        let ours = Ours::new(&engine, tuner, true);
        for seed in 0..10 {
            assert_eq!(alone(&ours, seed).unwrap(), 0);
            assert_eq!(full_run(&ours, seed).unwrap(), [0; 6]);
        }
        // An elementwise layer has the slot of its input, and no more memory is used.
        let mut planner = Planner::new(1);
        let input = vec![3.0; SIZE];
        let scale = [Layer::Scale(0.5), Layer::Scale(8.0)];
        let result = run_model(&mut planner, &ours, &scale, &input).unwrap();
        assert_eq!((wrong(&result, &scale, &input), planner.memory.len()), (0, SIZE));
    }
    engine.finish();
}
