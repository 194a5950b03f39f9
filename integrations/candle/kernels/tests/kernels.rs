//! Each kernel of each variant that this CPU runs, against a scalar loop in double precision.

use half::f16;
use slabjit::{Argument, BufferView, Error, ImageError, JitEngine, Kernel};
use slabjit_candle_kernels::{Kernels, VARIANTS};

/// Runs a test with each variant; at least one runs everywhere.
fn variants(test: impl Fn(&Kernels)) {
    let engine = JitEngine::new().unwrap();
    let mut ran = Vec::new();
    for &variant in VARIANTS {
        match Kernels::load_variant(&engine, variant) {
            Ok(kernels) => {
                test(&kernels);
                ran.push(variant);
            }
            Err(Error::Image(ImageError::Cpu { function, feature, .. })) => {
                assert!(function.ends_with(variant), "{function}");
                println!("not run: {variant} needs {feature}");
            }
            Err(error) => panic!("{variant}: {error}"),
        }
    }
    println!("ran: {ran:?}");
    assert_eq!(ran.last(), VARIANTS.last(), "the last variant runs on every CPU");
    assert_eq!(Kernels::load(&engine).unwrap().variant, ran[0]);
}

fn call(kernel: &Kernel, arguments: &[Argument<'_>]) {
    // SAFETY: the kernels do what their contracts say, with any scalars.
    unsafe { kernel.call(arguments).unwrap() }
}

fn view<'a>(elements: &'a [f32], shape: &'a [usize]) -> Argument<'a> {
    BufferView::of(elements).shape(shape).into()
}

fn view_mut<'a>(elements: &'a mut [f32], shape: &'a [usize]) -> Argument<'a> {
    BufferView::of_mut(elements).shape(shape).into()
}

const EXTENT: fn() -> Argument<'static> = Argument::extent;

/// Numbers from -1 to 1, the same each time.
fn numbers(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

#[track_caller]
fn near(variant: &str, given: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(given.len(), expected.len());
    for (index, (given, expected)) in given.iter().zip(expected).enumerate() {
        let error = (f64::from(*given) - expected).abs();
        assert!(error <= tolerance * expected.abs().max(1.0), "{variant}, {index}: {given} for {expected}");
    }
}

#[test]
fn rmsnorm() {
    variants(|kernels| {
        for columns in [1, 7, 64, 515] {
            let (x, weight, mut y) = (numbers(3 * columns, 1), numbers(columns, 2), vec![0.0; 3 * columns]);
            let eps = 1e-3_f32;
            let shape = [3, columns];
            call(
                &kernels.rmsnorm,
                &[view(&x, &shape), Argument::slice(&weight), view_mut(&mut y, &shape), EXTENT(), EXTENT(), eps.into()],
            );
            let expected = x.chunks(columns).flat_map(|row| {
                let squares: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
                let by = 1.0 / (squares / columns as f64 + f64::from(eps)).sqrt();
                row.iter().zip(&weight).map(move |(x, weight)| f64::from(*x) * by * f64::from(*weight))
            });
            near(kernels.variant, &y, &expected.collect::<Vec<_>>(), 1e-5);
        }
    });
}

#[test]
fn rope_also_in_place() {
    variants(|kernels| {
        let (rows, time, half) = (3, 5, 17);
        let shape = [rows, time, 2, half];
        let x = numbers(rows * time * 2 * half, 3);
        let (cosine, sine) = (numbers(time * half, 4), numbers(time * half, 5));
        let mut expected = vec![0.0_f64; x.len()];
        for (index, expected) in expected.chunks_mut(2 * half).enumerate() {
            let (x, at) = (&x[index * 2 * half..], index % time * half);
            for i in 0..half {
                let (a, b) = (f64::from(x[i]), f64::from(x[half + i]));
                let (c, s) = (f64::from(cosine[at + i]), f64::from(sine[at + i]));
                (expected[i], expected[half + i]) = (a * c - b * s, a * s + b * c);
            }
        }
        let turn = [time, half];
        let turn = || [view(&cosine, &turn), view(&sine, &turn)];
        let [c, s] = turn();
        let mut y = vec![0.0; x.len()];
        call(&kernels.rope, &[view(&x, &shape), c, s, view_mut(&mut y, &shape), EXTENT(), EXTENT(), EXTENT()]);
        near(kernels.variant, &y, &expected, 1e-5);
        let mut both = x.clone();
        let in_place = Argument::from(BufferView::of_mut(&mut both).shape(&shape));
        call(&kernels.rope, &[in_place, c, s, in_place, EXTENT(), EXTENT(), EXTENT()]);
        assert_eq!(both, y);
    });
}

#[test]
fn swiglu_of_small_and_large_numbers() {
    variants(|kernels| {
        let gate: Vec<f32> = (-2000..=2000).map(|x| x as f32 / 10.0).collect();
        let up: Vec<f32> = numbers(gate.len(), 6);
        let mut y = vec![0.0; gate.len()];
        call(&kernels.swiglu, &[Argument::slice(&gate), Argument::slice(&up), Argument::slice_mut(&mut y), EXTENT()]);
        let expected = gate.iter().zip(&up).map(|(x, up)| {
            let x = f64::from(*x);
            x / (1.0 + (-x).exp()) * f64::from(*up)
        });
        near(kernels.variant, &y, &expected.collect::<Vec<_>>(), 1e-5);
    });
}

fn softmax_of(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::MIN, f64::max);
    let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
    row.iter().map(|x| (x - most).exp() / sum).collect()
}

#[test]
fn softmax() {
    variants(|kernels| {
        for columns in [1, 9, 1000] {
            let x: Vec<f32> = numbers(2 * columns, 7).iter().map(|x| 50.0 * x).collect();
            let mut y = vec![0.0; x.len()];
            let shape = [2, columns];
            call(&kernels.softmax, &[view(&x, &shape), view_mut(&mut y, &shape), EXTENT(), EXTENT()]);
            let expected =
                x.chunks(columns).flat_map(|row| softmax_of(&row.iter().map(|x| f64::from(*x)).collect::<Vec<_>>()));
            near(kernels.variant, &y, &expected.collect::<Vec<_>>(), 2e-6);
        }
        call(&kernels.softmax, &[view(&[], &[3, 0]), view_mut(&mut [], &[3, 0]), EXTENT(), EXTENT()]);
    });
}

#[test]
fn numbers_that_are_none() {
    let (no, far) = (f32::NAN, f32::INFINITY);
    variants(|kernels| {
        let row = |x: &[f32]| {
            let mut y = vec![0.0; x.len()];
            let shape = [1, x.len()];
            call(&kernels.softmax, &[view(x, &shape), view_mut(&mut y, &shape), EXTENT(), EXTENT()]);
            y
        };
        let masked = row(&[0.0, -far, -far, 1.0, -100.0]);
        near(kernels.variant, &masked, &softmax_of(&[0.0, f64::NEG_INFINITY, f64::NEG_INFINITY, 1.0, -100.0]), 1e-6);
        assert_eq!([masked[1], masked[2], masked[4]], [0.0; 3]);
        assert!(row(&[-far; 9]).iter().chain(&row(&[1.0, no, 2.0])).all(|y| y.is_nan()));
        let mut y = [0.0; 5];
        let gate = [-far, far, no, -90.0, 90.0];
        call(
            &kernels.swiglu,
            &[Argument::slice(&gate), Argument::slice(&[1.0_f32; 5]), Argument::slice_mut(&mut y), EXTENT()],
        );
        // As x / (1 + e^-x) is in single precision, where e^90 is infinite.
        let silu = gate.map(|x| x / (1.0 + (-x).exp()));
        assert!(y.iter().zip(silu).all(|(y, x)| *y == x || y.is_nan() && x.is_nan()), "{y:?} for {silu:?}");
        // As candle does it: the largest of what are numbers, and 0 for what is none.
        for (special, at) in [(no, 0), (no, 1), (no, 31), (far, 3), (-far, 31)] {
            let mut x = [1.0; 32];
            (x[5], x[at]) = (100.0, special);
            let most = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            let (scale, mut q) = (most / 127.0, [0; 34]);
            let (shape, packed) = ([1, 32], [1, 34]);
            call(&kernels.quantize_q8, &[view(&x, &shape), BufferView::of_mut(&mut q).shape(&packed).into(), EXTENT()]);
            let (given, numbers) = block(&q);
            assert_eq!(given, f16::from_f32(scale), "{}: {special} at {at}", kernels.variant);
            let expected: Vec<_> = x.iter().map(|x| (x * (1.0 / scale)).round() as i8).collect();
            assert_eq!(numbers, expected, "{}: {special} at {at}", kernels.variant);
        }
    });
}

#[test]
fn attention() {
    variants(|kernels| {
        let (time, heads, group, size) = (37, 3, 2, 20);
        let q = numbers(heads * group * size, 8);
        let (k, v) = (numbers(time * heads * size, 9), numbers(time * heads * size, 10));
        let scale = 1.7_f32;
        let (mut y, mut scores) = (vec![0.0; q.len()], vec![0.0_f32; time]);
        let (queries, keys) = ([heads, group, size], [time, heads, size]);
        let arguments = [
            view(&q, &queries),
            view(&k, &keys),
            view(&v, &keys),
            view_mut(&mut y, &queries),
            Argument::slice_mut(&mut scores),
        ];
        let [q_view, k_view, v_view, y_view, scores_view] = arguments;
        let extents = [EXTENT(), EXTENT(), EXTENT(), EXTENT(), scale.into()];
        call(&kernels.attention, &[&[q_view, k_view, v_view, y_view, scores_view][..], &extents].concat());
        let mut expected = Vec::new();
        for (index, q) in q.chunks(size).enumerate() {
            let head = index / group;
            let at = |of: &[f32], time: usize, i: usize| f64::from(of[(time * heads + head) * size + i]);
            let score = |t: usize| (0..size).map(|i| f64::from(q[i]) * at(&k, t, i)).sum::<f64>() * f64::from(scale);
            let weights = softmax_of(&(0..time).map(score).collect::<Vec<_>>());
            expected.extend((0..size).map(|i| (0..time).map(|t| weights[t] * at(&v, t, i)).sum::<f64>()));
        }
        near(kernels.variant, &y, &expected, 1e-5);
    });
}

/// A block's scale and numbers, as GGUF has them.
fn block(q: &[u8]) -> (f16, Vec<i8>) {
    (f16::from_le_bytes([q[0], q[1]]), q[2..].iter().map(|byte| *byte as i8).collect())
}

#[test]
fn quantize_q8() {
    variants(|kernels| {
        // Of each size that a scale can have: none, less than any, subnormal, ordinary, too large.
        let mut x = numbers(32 * 8, 11);
        for (part, by) in x.chunks_mut(32).zip([0.0, 1e-38, 1e-6, 1e-3, 1.0, 7e4, 8.3e6, 1e9]) {
            part.iter_mut().for_each(|x| *x *= by);
        }
        let mut q = vec![0; 34 * 8];
        let (shape, packed) = ([8, 32], [8, 34]);
        call(&kernels.quantize_q8, &[view(&x, &shape), BufferView::of_mut(&mut q).shape(&packed).into(), EXTENT()]);
        for (x, q) in x.chunks(32).zip(q.chunks(34)) {
            let scale = x.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / 127.0;
            let (given, numbers) = block(q);
            assert_eq!(given, f16::from_f32(scale), "{}: {scale}", kernels.variant);
            for (x, number) in x.iter().zip(numbers) {
                let exact = if scale < f32::MIN_POSITIVE { 0.0 } else { f64::from(*x) / f64::from(scale) };
                assert!((exact - f64::from(number)).abs() <= 0.5001, "{}: {number} for {exact}", kernels.variant);
            }
        }
    });
}

#[test]
fn products_of_quantised_rows() {
    variants(|kernels| {
        for (rows, blocks) in [(1, 1), (5, 3), (11, 16)] {
            // Every byte there is, and the scales of subnormal, small and large numbers.
            let scales = [0x0001_u16, 0x03ff, 0x0400, 0x2e66, 0x3c00, 0xb800, 0x8000];
            let weights = |bytes: usize| -> Vec<u8> {
                let noise = numbers(rows * blocks * bytes, 12);
                let mut weights: Vec<_> = noise.iter().map(|x| (x * 128.0) as i8 as u8).collect();
                for (index, block) in weights.chunks_mut(bytes).enumerate() {
                    block[..2].copy_from_slice(&scales[index % scales.len()].to_le_bytes());
                }
                weights
            };
            let x = numbers(32 * blocks, 13);
            let mut q = vec![0; 34 * blocks];
            let (shape, packed) = ([blocks, 32], [blocks, 34]);
            call(&kernels.quantize_q8, &[view(&x, &shape), BufferView::of_mut(&mut q).shape(&packed).into(), EXTENT()]);
            for (tilings, bytes) in [(&kernels.matvec_q4, 18), (&kernels.matvec_q8, 34)] {
                let weights = weights(bytes);
                let expected = weights.chunks(bytes * blocks).map(|row| {
                    let products = row.chunks(bytes).zip(q.chunks(34)).map(|(weight, x)| {
                        let (x_scale, x) = block(x);
                        let (scale, mut numbers) = block(weight);
                        if bytes == 18 {
                            let halves = [|both: i8| both as u8 & 15, |both: i8| both as u8 >> 4];
                            numbers = halves
                                .iter()
                                .flat_map(|half| numbers.iter().map(|both| half(*both) as i8 - 8))
                                .collect();
                        }
                        let sum: i32 = x.iter().zip(numbers).map(|(x, weight)| i32::from(*x) * i32::from(weight)).sum();
                        f64::from(sum) * f64::from(f32::from(x_scale)) * f64::from(f32::from(scale))
                    });
                    products.sum::<f64>()
                });
                let expected: Vec<_> = expected.collect();
                for (tiling, kernel) in tilings {
                    let mut y = vec![0.0; rows];
                    let shape = [rows, blocks, bytes];
                    let arguments = [
                        BufferView::of(&weights).shape(&shape).into(),
                        BufferView::of(&q).shape(&packed).into(),
                        Argument::slice_mut(&mut y),
                        EXTENT(),
                        EXTENT(),
                    ];
                    call(kernel, &arguments);
                    near(&format!("{} {tiling}", kernels.variant), &y, &expected, 1e-5);
                }
            }
        }
    });
}
