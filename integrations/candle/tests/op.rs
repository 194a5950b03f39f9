//! Operators beside candle's own, and what their contracts refuse.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{D, DType, Device, IndexOp as _, Module as _, Result, Tensor};
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use slabjit::{JitEngine, Kernel, KernelFunction, KernelSignature};
use slabjit_candle::{KernelOp, KernelOpBuilder};
use slabjit_candle_kernels::Kernels;

fn kernels() -> Kernels {
    Kernels::load(&JitEngine::new().unwrap()).unwrap()
}

fn build(builder: KernelOpBuilder) -> KernelOp {
    // SAFETY: the kernels do what their contracts say, with any scalars.
    unsafe { builder.build() }.unwrap()
}

fn build_in_place(builder: KernelOpBuilder) -> KernelOp {
    // SAFETY: as above.
    unsafe { builder.build_in_place() }.unwrap()
}

fn rmsnorm(kernel: &Kernel) -> KernelOp {
    build(KernelOp::builder(kernel).scalar("eps", 1e-5_f32))
}

fn uniform(shape: &[usize]) -> Tensor {
    Tensor::rand(-1.0_f32, 1.0, shape, &Device::Cpu).unwrap()
}

#[track_caller]
fn near(given: &Tensor, expected: &Tensor) {
    assert_eq!(given.dims(), expected.dims());
    let difference = (given - expected).unwrap().abs().unwrap().flatten_all().unwrap().max(D::Minus1).unwrap();
    assert!(difference.to_scalar::<f32>().unwrap() < 1e-5, "{given}\n{expected}");
}

#[track_caller]
fn refused<T>(result: Result<T>, expected: &[&str]) {
    let error = result.err().expect("it ran").to_string();
    assert!(expected.iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn operators_give_what_those_of_candle_give() {
    let kernels = kernels();
    let (x, weight) = (uniform(&[5, 66]), uniform(&[66]));
    near(
        &rmsnorm(&kernels.rmsnorm).apply(&[&x, &weight]).unwrap(),
        &candle_nn::ops::rms_norm(&x, &weight, 1e-5).unwrap(),
    );
    let softmax = build(KernelOp::builder(&kernels.softmax));
    near(&softmax.apply(&[&x]).unwrap(), &candle_nn::ops::softmax_last_dim(&x).unwrap());
    let swiglu = build(KernelOp::builder(&kernels.swiglu));
    let (gate, up) = (uniform(&[99]), uniform(&[99]));
    near(&swiglu.apply(&[&gate, &up]).unwrap(), &(gate.silu().unwrap() * &up).unwrap());
    let (heads, turn) = (uniform(&[1, 3, 5, 16]), uniform(&[2, 5, 8]));
    let (cosine, sine) = (turn.i(0).unwrap(), turn.i(1).unwrap());
    let rope = build(KernelOp::builder(&kernels.rope));
    let given = rope.apply(&[&heads.reshape((3, 5, 2, 8)).unwrap(), &cosine, &sine]).unwrap();
    near(&given.reshape((1, 3, 5, 16)).unwrap(), &candle_nn::rotary_emb::rope(&heads, &cosine, &sine).unwrap());
}

#[test]
fn views_begin_where_candle_has_them() {
    let op = rmsnorm(&kernels().rmsnorm);
    let (all, weight) = (uniform(&[9, 16]), uniform(&[40]).narrow(0, 7, 16).unwrap());
    let x = all.narrow(0, 3, 4).unwrap();
    near(
        &op.apply(&[&x, &weight]).unwrap(),
        &candle_nn::ops::rms_norm(&x.copy().unwrap(), &weight.copy().unwrap(), 1e-5).unwrap(),
    );
    let none = op.apply(&[&all.narrow(0, 3, 0).unwrap(), &weight]).unwrap();
    assert_eq!(none.dims(), [0, 16]);
}

#[test]
fn what_the_contract_refuses_names_kernel_and_buffer() {
    let kernels = kernels();
    let name = kernels.rmsnorm.signature().name();
    let op = rmsnorm(&kernels.rmsnorm);
    let (x, weight) = (uniform(&[4, 16]), uniform(&[16]));
    let columns = uniform(&[16, 4]);
    refused(op.apply(&[&columns.t().unwrap(), &weight]), &[name, "'x'", "strides", "given [1, 4]"]);
    refused(op.apply(&[&x.narrow(1, 0, 8).unwrap(), &uniform(&[8])]), &[name, "'x'", "strides"]);
    refused(op.apply(&[&x, &weight.i(..1).unwrap().broadcast_as(16).unwrap()]), &[name, "'weight'", "strides", "[0]"]);
    refused(op.apply(&[&x, &uniform(&[8])]), &[name, "'weight'", "[columns = 16 (as of 'x')]", "given [8]"]);
    refused(op.apply(&[&weight, &weight]), &[name, "'x'", "[rows, columns]", "given [16]"]);
    refused(op.apply(&[&x.to_dtype(DType::BF16).unwrap(), &weight]), &[name, "'x'", "F32", "given BF16"]);
    refused(op.apply(&[&x, &weight.to_dtype(DType::F64).unwrap()]), &[name, "'weight'", "F32", "given F64"]);
    refused(op.apply(&[&x]), &[name, "takes 2 (x, weight)", "given 1 tensors"]);
    refused(op.apply(&[&x, &weight, &weight]), &[name, "given 3 tensors"]);
    refused(op.apply(&[]), &[name, "given 0 tensors"]);
    refused(op.apply_in_place(&[&x, &weight]), &[name, "build_in_place"]);
    // SAFETY: it runs nothing.
    let result = unsafe { op.replace(&kernels.softmax) };
    refused(result.map_err(Into::into), &[name, kernels.softmax.signature().name(), "other parameters"]);
}

#[test]
fn operators_that_cannot_be_made() {
    let kernels = kernels();
    // SAFETY: they run nothing.
    let made = |builder: KernelOpBuilder| unsafe { builder.build() }.map_err(Into::into);
    // SAFETY: as above.
    let in_place = |builder: KernelOpBuilder| unsafe { builder.build_in_place() }.map_err(Into::into);
    let rmsnorm = || KernelOp::builder(&kernels.rmsnorm);
    refused(made(rmsnorm()), &["scalar 'eps' has no value", "KernelOpBuilder::scalar"]);
    refused(made(rmsnorm().scalar("eps", 1_f32).scalar("rows", 1_i64)), &["'rows'", "none of that name"]);
    refused(made(rmsnorm().scalar("eps", 1_f32).split("lines", 1)), &["no extent 'lines'"]);
    refused(made(rmsnorm().scalar("eps", 1_f32).extent("lines", 1)), &["no extent 'lines'"]);
    refused(made(rmsnorm().scalar("eps", 1_f32).scalar("eps", 2_f32)), &["'eps'", "twice"]);
    refused(made(rmsnorm().scalar("eps", 1_f32).split("columns", 1)), &["'columns'", "outermost", "'x'"]);
    refused(in_place(rmsnorm().scalar("eps", 1_f32)), &["alias and in_place"]);
    // `time` is the outermost extent of keys and values, and none of the result's.
    refused(made(KernelOp::builder(&kernels.attention).scalar("scale", 1_f32).split("time", 1)), &["'time'", "'y'"]);
    // A scalar of another type reaches the contract.
    let (x, weight) = (uniform(&[1, 2]), uniform(&[2]));
    let op = build(rmsnorm().scalar("eps", 1e-5_f64));
    refused(op.apply(&[&x, &weight]), &["'eps'", "F32", "F64"]);
}

#[test]
fn operators_in_place() {
    let kernels = kernels();
    let swiglu = build_in_place(KernelOp::builder(&kernels.swiglu));
    let (both, up) = (uniform(&[2, 50]), uniform(&[50]));
    let (first, second) = (both.i(0).unwrap(), both.i(1).unwrap());
    let (expected, untouched) = ((second.silu().unwrap() * &up).unwrap(), first.copy().unwrap());
    swiglu.apply_in_place(&[&second, &up]).unwrap();
    near(&second, &expected);
    near(&first, &untouched);
    // candle locks a storage for each tensor: it would wait for itself.
    refused(swiglu.apply_in_place(&[&first, &second]), &["'gate'", "'up'", "one storage"]);
    refused(swiglu.apply_in_place(&[&up, &up]), &["'gate'", "'up'", "one storage"]);
    refused(
        swiglu.apply_in_place(&[&up.i(..1).unwrap().broadcast_as(50).unwrap(), &first]),
        &["'gate'", "one address"],
    );
    refused(swiglu.apply(&[&first, &up]), &["apply_in_place"]);
    let rope = build_in_place(KernelOp::builder(&kernels.rope));
    let (heads, turn) = (uniform(&[3, 5, 2, 8]), uniform(&[2, 5, 8]));
    let (cosine, sine) = (turn.i(0).unwrap(), turn.i(1).unwrap());
    let expected = build(KernelOp::builder(&kernels.rope)).apply(&[&heads, &cosine, &sine]).unwrap();
    rope.apply_in_place(&[&heads, &cosine, &sine]).unwrap();
    near(&heads, &expected);
}

#[test]
fn threads_share_rows() {
    let kernels = kernels();
    let builder = || KernelOp::builder(&kernels.rmsnorm).scalar("eps", 1e-5_f32);
    let (whole, weight) = (build(builder()), uniform(&[33]));
    for (rows, least) in [(1, 1), (2, 1), (1000, 7), (1001, 16), (5, 100)] {
        let split = build(builder().split("rows", least));
        let x = uniform(&[rows, 33]);
        let [given, expected] = [&split, &whole].map(|op| op.apply(&[&x, &weight]).unwrap().to_vec2::<f32>().unwrap());
        assert_eq!(given, expected, "{rows} rows");
        // What is refused in a part is refused.
        refused(split.apply(&[&x, &uniform(&[32])]), &["'weight'"]);
    }
    let in_place = build_in_place(KernelOp::builder(&kernels.swiglu).split("n", 16));
    let (gate, up) = (uniform(&[4096]), uniform(&[4096]));
    let expected = (gate.silu().unwrap() * &up).unwrap();
    in_place.apply_in_place(&[&gate, &up]).unwrap();
    near(&gate, &expected);
}

#[test]
fn a_kernel_is_replaced_while_threads_call_it() {
    let op = rmsnorm(&kernels().rmsnorm);
    let (x, weight) = (uniform(&[64, 64]), uniform(&[64]));
    let expected = candle_nn::ops::rms_norm(&x, &weight, 1e-5).unwrap();
    let (done, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    near(&op.apply(&[&x, &weight]).unwrap(), &expected);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let engine = JitEngine::new().unwrap();
        for _ in 0..100 {
            let before = calls.load(Ordering::Relaxed);
            let next = Kernels::load(&engine).unwrap();
            // SAFETY: it is the same kernel, loaded once more; the last one is unloaded once nobody runs it.
            unsafe { op.replace(&next.rmsnorm) }.unwrap();
            let start = Instant::now();
            while calls.load(Ordering::Relaxed) < before + 8 && start.elapsed() < Duration::from_secs(60) {
                std::thread::yield_now();
            }
        }
        done.store(true, Ordering::Relaxed);
        assert!(calls.load(Ordering::Relaxed) >= 800);
        assert!(engine.stats().libraries <= 5, "{:?}", engine.stats());
    });
}

#[test]
fn the_fastest_tiling_is_put_in() {
    let kernels = kernels();
    let (rows, blocks) = (96, 16);
    let quantize = build(KernelOp::builder(&kernels.quantize_q8));
    let w = quantize.apply(&[&uniform(&[rows * blocks, 32])]).unwrap().reshape((rows, blocks, 34)).unwrap();
    let x = quantize.apply(&[&uniform(&[blocks, 32])]).unwrap();
    let op = build(KernelOp::builder(&kernels.matvec_q8[0].1));
    let expected = op.apply(&[&w, &x]).unwrap();
    // SAFETY: the tilings do what their contract says.
    let (given, tuning) = unsafe { op.tune(&kernels.matvec_q8, &[&w, &x]) }.unwrap();
    assert_eq!(tuning.trials.len(), 3);
    assert!(tuning.trials.iter().all(|trial| trial.outcome.is_ok()), "{tuning}");
    near(&given, &expected);
    assert!(format!("{op:?}").contains(kernels.matvec_q8[tuning.winner].1.signature().name()), "{op:?}");
    near(&op.apply(&[&w, &x]).unwrap(), &expected);
    // SAFETY: it is refused.
    refused(unsafe { op.tune(&[("other", kernels.softmax.clone())], &[&w, &x]) }, &["other parameters"]);
}

#[test]
fn quantised_products_are_those_of_candle() {
    let kernels = kernels();
    let quantize = build(KernelOp::builder(&kernels.quantize_q8));
    let cases = [(GgmlDType::Q4_0, &kernels.matvec_q4), (GgmlDType::Q8_0, &kernels.matvec_q8)];
    for (blocks, tilings) in cases {
        let (weights, x) = (uniform(&[75, 512]), uniform(&[1, 512]));
        let quantized = QTensor::quantize(&weights, blocks).unwrap();
        let shape = (75, 16, blocks.type_size());
        let packed = Tensor::from_slice(&quantized.data().unwrap(), shape, &Device::Cpu).unwrap();
        let expected = QMatMul::from_qtensor(quantized).unwrap().forward(&x).unwrap();
        let x = quantize.apply(&[&x.reshape((16, 32)).unwrap()]).unwrap();
        for (_, kernel) in tilings {
            let op = build(KernelOp::builder(kernel).split("rows", 8));
            near(&op.apply(&[&packed, &x]).unwrap().unsqueeze(0).unwrap(), &expected);
        }
    }
}

/// A kernel of the image with another contract, whose name is `k`.
fn bound<F: KernelFunction>(function: &str, contract: &str) -> Kernel {
    let library = JitEngine::new().unwrap().add_image(slabjit_candle_kernels::IMAGE).unwrap();
    let name = format!("{function}_{}", kernels().variant);
    // SAFETY: the tests give its type.
    contract.parse::<KernelSignature>().unwrap().bind(unsafe { library.get::<F>(&name) }.unwrap()).unwrap()
}

type SwiGlu = unsafe extern "C" fn(*const f32, *const f32, *mut f32, i64);
type Softmax = unsafe extern "C" fn(*const f32, *mut f32, i64, i64);

#[test]
fn parts_are_checked_as_a_whole() {
    let swiglu = "k(gate: in f32[n], up: in f32[n], y: out f32[n] alias gate, n: i64 extent) in_place";
    let swiglu = bound::<SwiGlu>("swiglu", swiglu);
    let (long, short) = (uniform(&[4096]), uniform(&[16]));
    let in_place = build_in_place(KernelOp::builder(&swiglu).split("n", 16));
    // Each part of one would be as long as the other.
    refused(in_place.apply_in_place(&[&long, &short]), &["'up'", "[n = 4096 (as of 'gate')]", "given [16]"]);
    refused(in_place.apply_in_place(&[&short, &long]), &["'up'", "[n = 16 (as of 'gate')]", "given [4096]"]);
    let op = build(KernelOp::builder(&swiglu).split("n", 16));
    refused(op.apply(&[&long, &short]), &["'up'", "given [16]"]);
    let op = build(KernelOp::builder(&swiglu).extent("n", 100_000).split("n", 16));
    refused(op.apply(&[&long, &long]), &["[n = 4096 (as of 'gate')]", "given [100000]"]);
    // Scratch memory is a part's, too: the kernel is softmax, and writes to its scratch buffer.
    let contract = "k(x: in f32[rows, columns], s: scratch f32[rows, columns], rows: i64 extent, columns: i64 extent, \
                    y: out f32[rows])";
    type Scratch = unsafe extern "C" fn(*const f32, *mut f32, i64, i64, *mut f32);
    let op = build(KernelOp::builder(&bound::<Scratch>("softmax", contract)).split("rows", 1));
    assert_eq!(op.apply(&[&uniform(&[1000, 4])]).unwrap().to_vec1::<f32>().unwrap(), [0.0; 1000]);
}

#[test]
fn alignments_that_candle_has_not_got() {
    // SAFETY: it runs nothing.
    let made = |kernel: &Kernel, split: bool| unsafe {
        let builder = KernelOp::builder(kernel);
        if split { builder.split("rows", 1).build() } else { builder.build() }.map_err(Into::into)
    };
    let extents = "rows: i64 extent, columns: i64 extent";
    let output = format!("k(x: in f32[rows, columns], y: out f32[rows, columns] align 64, {extents})");
    refused(made(&bound::<Softmax>("softmax", &output), false), &["'k'", "'y'", "64 bytes", "16"]);
    let input =
        bound::<Softmax>("softmax", &output.replace(" align 64", "").replace("columns], y", "columns] align 32, y"));
    made(&input, false).unwrap();
    refused(made(&input, true), &["'x'", "32 bytes", "threads cannot share"]);
}

#[test]
fn written_tensors_that_overlap_themselves() {
    let contract = "k(x: in f32[rows, columns] strides any, y: out f32[rows, columns] strides any alias x, \
                    rows: i64 extent, columns: i64 extent) in_place";
    let op = build_in_place(KernelOp::builder(&bound::<Softmax>("softmax", contract)));
    let x = uniform(&[64]);
    refused(op.apply_in_place(&[&x.unfold(0, 16, 8).unwrap()]), &["'x'", "one address", "Tensor::contiguous"]);
    // Side by side, as rows without a gap.
    op.apply_in_place(&[&x.unfold(0, 8, 8).unwrap()]).unwrap();
}

#[test]
fn split_operators_on_threads_of_the_pool() {
    let kernels = kernels();
    let op = build_in_place(KernelOp::builder(&kernels.swiglu).split("n", 16));
    let (storages, up) = ([(); 4].map(|()| uniform(&[64, 4096])), uniform(&[4096]));
    let expected = storages.each_ref().map(|all| all.silu().unwrap().broadcast_mul(&up).unwrap());
    // A thread that waits for parts must not take on another row of the storage that it has locked.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(8).build().unwrap();
    pool.install(|| {
        (0..256).into_par_iter().for_each(|row| {
            op.apply_in_place(&[&storages[row % 4].i(row / 4).unwrap(), &up]).unwrap();
        });
    });
    storages.iter().zip(&expected).for_each(|(given, expected)| near(given, expected));
}

#[test]
fn results_without_memory() {
    let op = rmsnorm(&kernels().rmsnorm);
    let (x, weight) = (uniform(&[1, 512]), uniform(&[512]));
    refused(op.apply(&[&x.broadcast_as((1 << 40, 512)).unwrap(), &weight]), &["'y'", "no memory"]);
}

#[test]
fn what_changes_its_tensor_is_not_tuned_and_stays_so() {
    let kernels = kernels();
    let op = build_in_place(KernelOp::builder(&kernels.swiglu));
    let x = uniform(&[8]);
    // SAFETY: it is refused.
    refused(unsafe { op.tune(&[("same", kernels.swiglu.clone())], &[&x, &x]) }, &["replace"]);
    let apart = bound::<SwiGlu>("swiglu", "k(gate: in f32[n], up: in f32[n], y: out f32[n], n: i64 extent)");
    // SAFETY: as above.
    refused(unsafe { op.replace(&apart) }.map_err(Into::into), &["alias and in_place"]);
}

#[test]
fn extents_that_no_tensor_has() {
    let bind = |contract: &str| bound::<Softmax>("softmax", contract);
    // Its result has as many elements as x, in another shape.
    let kernel = bind("k(x: in f32[rows, columns], y: out f32[all], rows: i64 extent, columns: i64 extent)");
    // SAFETY: it runs nothing.
    let made = unsafe { KernelOp::builder(&kernel).build() };
    refused(made.map_err(Into::into), &["'k'", "'y'", "extent 'all'", "KernelOpBuilder::extent"]);
    let x = uniform(&[3, 7]);
    let given = build(KernelOp::builder(&kernel).extent("all", 21)).apply(&[&x]).unwrap();
    near(&given.reshape((3, 7)).unwrap(), &candle_nn::ops::softmax_last_dim(&x).unwrap());
    let any = bind("k(x: in f32[rows, columns], y: out f32[rows, ?], rows: i64 extent, columns: i64 extent)");
    // SAFETY: as above.
    refused(unsafe { KernelOp::builder(&any).build() }.map_err(Into::into), &["'y'", "without a name"]);
    let unsigned =
        bind("k(x: in f32[rows, columns], y: out f32[rows, columns], rows: i64 extent, columns: i64 extent)");
    // SAFETY: as above.
    let tuned = unsafe { build(KernelOp::builder(&unsigned)).tune(&[], &[&x]) };
    refused(tuned, &["candidate"]);
}
