//! Kernels through their contracts: what is bound, what is called, what is refused before anything runs.

use std::ffi::c_void;

use crate::common::{self, Checked, compile_bytes};
use slabjit::{
    Argument, BufferView, ElementType, Error, Extent, Kernel, KernelError, KernelFunction, KernelParameter,
    KernelSignature, KernelSignatureBuilder, MemorySpace, Overlap, Removal, Strides,
};

common::tests![
    a_kernel_runs_and_keeps_its_code,
    scalars_arrive_as_they_are,
    as_many_arguments_as_there_may_be,
    a_status_is_an_error,
    a_function_must_be_what_the_signature_says,
    signatures_that_make_no_sense,
    the_number_of_arguments,
    the_order_of_arguments,
    the_kind_of_arguments,
    the_element_type_of_a_buffer,
    the_shape_of_a_buffer,
    extents_as_scalars,
    a_signature_describes_its_parameters,
    the_strides_of_a_buffer,
    negative_strides,
    buffers_that_fit_nowhere,
    null_and_misaligned_buffers,
    buffers_beyond_their_slices,
    buffers_without_elements,
    what_overlaps_is_refused_and_does_not_run,
    every_pair_of_which_one_is_written,
    interleaved_columns_pass,
    aliases,
    spaces,
    tags_are_no_part_of_an_address,
    who_plans_memory_can_ask,
];

const F32: ElementType = ElementType::F32;

pub type Scale = unsafe extern "C" fn(*const f32, *mut f32, i64, f32);

/// `y[i] = by * x[i]`
pub const SCALE: &str =
    "void scale(const float *x, float *y, long n, float by) { for (long i = 0; i < n; i++) y[i] = by * x[i]; }";

/// Of [`SCALE`], without its end.
pub fn scale_builder() -> KernelSignatureBuilder {
    KernelSignature::builder("scale")
        .input("x", F32, ["n"])
        .output("y", F32, ["n"])
        .scalar::<i64>("n")
        .scalar::<f32>("by")
}

/// A function of some C source, bound. Nothing else keeps its code.
pub fn bind<F: KernelFunction>(engine: &Checked, signature: &KernelSignature, source: &str, name: &str) -> Kernel {
    let library = engine.add_object(compile_bytes("kernel.c", source, &["-O2"])).unwrap();
    // SAFETY: by the test, whose source it is.
    signature.bind(unsafe { library.get::<F>(name).unwrap() }).unwrap()
}

/// A call of a kernel of this file.
pub fn call(kernel: &Kernel, arguments: &[Argument<'_>]) -> slabjit::Result<()> {
    // SAFETY: the kernels do what their signatures say, and the tests own the buffers.
    unsafe { kernel.call(arguments) }
}

fn a_kernel_runs_and_keeps_its_code() {
    let engine = Checked::new();
    let library = engine.add_object(compile_bytes("kernel.c", SCALE, &["-O2"])).unwrap();
    // SAFETY: that is its type.
    let kernel = scale_builder().build().unwrap().bind(unsafe { library.get::<Scale>("scale").unwrap() }).unwrap();
    assert!(matches!(library.remove(), Removal::Waiting { .. }));
    drop(library);
    let (x, mut y) = ([1.0f32, 2.0, 3.0], [0.0f32; 3]);
    let clone = kernel.clone();
    drop(kernel);
    let run =
        move |y: &mut [f32]| call(&clone, &[Argument::slice(&x), Argument::slice_mut(y), 3i64.into(), 2.0f32.into()]);
    std::thread::scope(|scope| scope.spawn(|| run(&mut y)).join().unwrap()).unwrap();
    assert_eq!(y, [2.0, 4.0, 6.0]);
    drop(run);
    engine.finish();
}

fn scalars_arrive_as_they_are() {
    type Function = unsafe extern "C" fn(
        bool,
        i8,
        i16,
        i32,
        i64,
        u8,
        u16,
        u32,
        u64,
        f32,
        f64,
        isize,
        usize,
        *const c_void,
        *mut f64,
    );
    let engine = Checked::new();
    let source = "void f(_Bool a, signed char b, short c, int d, long e, unsigned char f, unsigned short g, unsigned h,
        unsigned long i, float j, double k, long l, unsigned long m, const void *n, double *out) {
        out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f; out[6] = g; out[7] = h;
        out[8] = i; out[9] = j; out[10] = k; out[11] = l; out[12] = m; out[13] = *(const int *)n;
    }";
    let signature = KernelSignature::builder("f")
        .scalar::<bool>("a")
        .scalar::<i8>("b")
        .scalar::<i16>("c")
        .scalar::<i32>("d")
        .scalar::<i64>("e")
        .scalar::<u8>("f")
        .scalar::<u16>("g")
        .scalar::<u32>("h")
        .scalar::<u64>("i")
        .scalar::<f32>("j")
        .scalar::<f64>("k")
        .scalar::<isize>("l")
        .scalar::<usize>("m")
        .pointer("n")
        .output("out", ElementType::F64, [14]);
    let kernel = bind::<Function>(&engine, &signature.build().unwrap(), source, "f");
    let (mut out, n) = ([0.0f64; 14], 77i32);
    call(
        &kernel,
        &[
            true.into(),
            (-8i8).into(),
            (-16i16).into(),
            (-32i32).into(),
            (-64i64).into(),
            200u8.into(),
            60_000u16.into(),
            4_000_000_000u32.into(),
            (1u64 << 63).into(),
            0.5f32.into(),
            (-0.25f64).into(),
            (-5isize).into(),
            6usize.into(),
            Argument::pointer((&raw const n).cast()),
            Argument::slice_mut(&mut out),
        ],
    )
    .unwrap();
    let expected = [
        1.0,
        -8.0,
        -16.0,
        -32.0,
        -64.0,
        200.0,
        60_000.0,
        4e9,
        9_223_372_036_854_775_808.0,
        0.5,
        -0.25,
        -5.0,
        6.0,
        77.0,
    ];
    assert_eq!(out, expected);
    drop(kernel);
    engine.finish();
}

/// 31 numbers and a place for their sum.
fn as_many_arguments_as_there_may_be() {
    macro_rules! function {
        ($($number:ident)*) => { unsafe extern "C" fn($(function!(@ $number),)* *mut i64) };
        (@ $number:ident) => { i64 };
    }
    type Function = function!(a b c d e f g h i j k l m n o p q r s t u v w x y z aa bb cc dd ee);
    let engine = Checked::new();
    let parameters: String = (0..31).map(|i| format!("long a{i}, ")).collect();
    let sum: Vec<String> = (0..31).map(|i| format!("{} * a{i}", i + 1)).collect();
    let source = format!("void f({parameters} long *sum) {{ *sum = {}; }}", sum.join(" + "));
    let builder = (0..31).fold(KernelSignature::builder("f"), |builder, i| builder.scalar::<i64>(format!("a{i}")));
    let signature = builder.output("sum", ElementType::I64, [1]).build().unwrap();
    let kernel = bind::<Function>(&engine, &signature, &source, "f");
    let mut sum = [0i64];
    let mut arguments: Vec<Argument<'_>> = (0..31).map(|i| Argument::from(100 - i as i64)).collect();
    arguments.push(Argument::slice_mut(&mut sum));
    call(&kernel, &arguments).unwrap();
    drop(arguments);
    assert_eq!(sum[0], (0..31).map(|i| (i + 1) * (100 - i)).sum::<i64>());
    drop(kernel);
    engine.finish();
}

fn a_status_is_an_error() {
    let engine = Checked::new();
    let source =
        "int f(int *y, int status) { *y = status; return status; } unsigned g(int *y, int status) { return status; }";
    let signature = KernelSignature::builder("with status")
        .output("y", ElementType::I32, [1])
        .scalar::<i32>("status")
        .status()
        .build();
    let signature = signature.unwrap();
    let mut y = [0i32];
    let kernel = bind::<unsafe extern "C" fn(*mut i32, i32) -> i32>(&engine, &signature, source, "f");
    call(&kernel, &[Argument::slice_mut(&mut y), 0i32.into()]).unwrap();
    let error = call(&kernel, &[Argument::slice_mut(&mut y), (-7i32).into()]).unwrap_err();
    assert!(
        matches!(&error, Error::Kernel(KernelError::Failed { kernel, status: -7 }) if kernel == "with status"),
        "{error}"
    );
    assert_eq!(y, [-7]);
    drop(kernel);
    let kernel = bind::<unsafe extern "C" fn(*mut i32, i32) -> u32>(&engine, &signature, source, "g");
    let error = call(&kernel, &[Argument::slice_mut(&mut y), (-1i32).into()]).unwrap_err();
    assert!(matches!(&error, Error::Kernel(KernelError::Failed { status: 0xffff_ffff, .. })), "{error}");
    drop(kernel);
    engine.finish();
}

fn a_function_must_be_what_the_signature_says() {
    let engine = Checked::new();
    let library = engine.add_object(compile_bytes("kernel.c", SCALE, &[])).unwrap();
    let signature = scale_builder().build().unwrap();
    fn refused<F: KernelFunction>(
        library: &slabjit::Library,
        signature: &KernelSignature,
        of: Option<&str>,
        text: &str,
    ) {
        // SAFETY: it is not called.
        match signature.bind(unsafe { library.get::<F>("scale").unwrap() }) {
            Err(error @ Error::Kernel(KernelError::FunctionMismatch { .. })) => {
                let Error::Kernel(KernelError::FunctionMismatch { argument, .. }) = &error else { unreachable!() };
                assert_eq!(argument.as_deref(), of, "{error}");
                assert!(error.to_string().contains(text), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    type Pointer = *const f32;
    refused::<unsafe extern "C" fn(Pointer, *mut f32, i64)>(&library, &signature, None, "takes 3 arguments");
    refused::<unsafe extern "C" fn(Pointer, *mut f32, i32, f32)>(&library, &signature, Some("n"), "I32");
    refused::<unsafe extern "C" fn(Pointer, *mut f32, i64, f64)>(&library, &signature, Some("by"), "F64");
    refused::<unsafe extern "C" fn(Pointer, Pointer, i64, f32)>(&library, &signature, Some("y"), "*const f32");
    refused::<unsafe extern "C" fn(*const f64, *mut f32, i64, f32)>(&library, &signature, Some("x"), "*const f64");
    refused::<unsafe extern "C" fn(u64, *mut f32, i64, f32)>(&library, &signature, Some("x"), "U64");
    refused::<unsafe extern "C" fn(Pointer, *mut f32, *const i64, f32)>(&library, &signature, Some("n"), "*const i64");
    refused::<unsafe extern "C" fn(Pointer, *mut f32, i64, f32) -> i32>(&library, &signature, None, "status");
    let status = scale_builder().status().build().unwrap();
    refused::<Scale>(&library, &status, None, "returns nothing");
    // SAFETY: they are not called.
    unsafe {
        signature.bind(library.get::<Scale>("scale").unwrap()).unwrap();
        signature.bind(library.get::<extern "C" fn(*const c_void, *mut c_void, isize, f32)>("scale").unwrap()).unwrap();
    }
    common::freed(&library);
    engine.finish();
}

fn signatures_that_make_no_sense() {
    let begin = || KernelSignature::builder("k").input("x", F32, ["n"]).output("y", F32, ["n"]).scalar::<i64>("n");
    let many = (0..33).fold(KernelSignature::builder("k"), |builder, i| builder.scalar::<i64>(format!("a{i}")));
    let names = (0..33).map(|i| Extent::Named(format!("n{i}")));
    let names: Vec<_> = names.collect();
    let cases = [
        (begin().input("x", F32, [1]), Some("x"), "two of that name"),
        (begin().scalar::<i32>("n"), Some("n"), "two of that name"),
        (begin().scalar::<i32>(""), None, "no name"),
        (many, None, "32 arguments"),
        (begin().input("z", F32, [2; 17]), Some("z"), "16 dimensions"),
        (
            begin().input("z", F32, names[..16].to_vec()).input("w", F32, names[16..32].to_vec()).input(
                "v",
                F32,
                names[32..].to_vec(),
            ),
            None,
            "32 extents",
        ),
        (begin().alias("x", "y"), Some("x"), "is no output"),
        (begin().alias("y", "z"), Some("z"), "no argument of that name"),
        (begin().alias("y", "n"), Some("n"), "a scalar"),
        (begin().output("z", F32, ["n"]).alias("z", "y"), Some("y"), "is no input"),
        (begin().in_out("z", F32, ["n"]).alias("z", "x"), Some("z"), "is no output"),
        (begin().output("z", ElementType::F64, ["n"]).alias("z", "x"), Some("z"), "can never be"),
        (begin().output("z", F32, ["n", "n"]).alias("z", "x"), Some("z"), "can never be"),
        (begin().input("a", F32, [4]).output("z", F32, [8]).alias("z", "a"), Some("z"), "can never be"),
        (begin().in_place(), None, "no output is declared"),
        (begin().strides("n", Strides::Any), Some("n"), "a scalar"),
        (begin().strides("z", Strides::Any), Some("z"), "no argument of that name"),
        (begin().strides("x", Strides::Fixed(vec![1, 1])), Some("x"), "one for each dimension"),
        (begin().strides("x", Strides::Fixed(vec![-1])), Some("x"), "negative"),
        (begin().aligned("x", 24), Some("x"), "power of two"),
        (begin().aligned("x", 2), Some("x"), "less than that of its elements"),
        (begin().extent_scalar::<i64>("m"), Some("m"), "no buffer's shape has that name"),
        (begin().input("z", F32, ["m"]).extent_scalar::<f32>("m"), Some("m"), "an integer"),
        (begin().input("z", F32, ["m"]).extent_scalar::<bool>("m"), Some("m"), "an integer"),
        (begin().input("z", F32, [1 << 40, 1 << 40]), Some("z"), "address space"),
        (begin().input("z", F32, [1 << 55]), Some("z"), "address space"),
        (begin().input("z", F32, [2]).strides("z", Strides::Fixed(vec![isize::MAX])), Some("z"), "address space"),
    ];
    for (builder, of, text) in cases {
        match builder.build() {
            Err(Error::Kernel(KernelError::InvalidSignature { kernel, argument, problem })) => {
                assert_eq!((kernel.as_str(), argument.as_deref()), ("k", of), "{problem}");
                assert!(problem.contains(text), "{problem}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    begin().alias("y", "x").in_place().aligned("x", 64).build().unwrap();
}

/// A call of `scale` that is refused before it writes to `y`.
#[track_caller]
fn refused(kernel: &Kernel, arguments: &[Argument<'_>]) -> Error {
    call(kernel, arguments).expect_err("it ran")
}

fn the_number_of_arguments() {
    let engine = Checked::new();
    let kernel = bind::<Scale>(&engine, &scale_builder().build().unwrap(), SCALE, "scale");
    let (x, mut y) = ([1.0f32; 2], [0.0f32; 2]);
    let all = [Argument::slice(&x), Argument::slice_mut(&mut y), 2i64.into(), 1.0f32.into(), 1.0f32.into()];
    for given in [0, 3, 5] {
        let error = refused(&kernel, &all[..given]);
        assert!(
            matches!(&error, Error::Kernel(KernelError::ArgumentCount { expected, given: there, .. }) if expected == &["x", "y", "n", "by"] && *there == given),
            "{error}"
        );
    }
    drop(kernel);
    engine.finish();
}

fn the_order_of_arguments() {
    let engine = Checked::new();
    let kernel = bind::<Scale>(&engine, &scale_builder().build().unwrap(), SCALE, "scale");
    let (x, mut y) = ([1.0f32; 2], [0.0f32; 2]);
    let [x, y, n, by] = [Argument::slice(&x), Argument::slice_mut(&mut y), 2i64.into(), 1.0f32.into()];
    for (arguments, first) in [([y, x, n, by], "y"), ([x, y, by, n], "n"), ([n, x, y, by], "x"), ([by, y, n, x], "x")] {
        let error = refused(&kernel, &arguments);
        assert!(
            matches!(&error, Error::Kernel(KernelError::ArgumentOrder { argument, .. }) if argument == first),
            "{error}"
        );
    }
    drop(kernel);
    engine.finish();
}

fn the_kind_of_arguments() {
    let engine = Checked::new();
    let kernel = bind::<Scale>(&engine, &scale_builder().build().unwrap(), SCALE, "scale");
    let (a, b, mut c) = ([1.0f32; 2], [0.0f32; 2], [0.0f32; 2]);
    let [x, y, n, by] = [Argument::slice(&a), Argument::slice_mut(&mut c), 2i64.into(), 1.0f32.into()];
    let cases = [
        ([2i64.into(), y, n, by], "x", 0, "F32, to read", "scalar, I64"),
        ([x, y, x, by], "n", 2, "scalar, I64", "F32, to read"),
        ([x, y, 2i32.into(), by], "n", 2, "I64", "I32"),
        ([x, y, n, 1.0f64.into()], "by", 3, "F32", "F64"),
        ([x, y, Argument::pointer((&raw const a).cast()), by], "n", 2, "I64", "Pointer"),
        // To be written to, and only lent to be read.
        ([x, Argument::slice(&b), n, by], "y", 1, "to write to", "to read"),
    ];
    for (arguments, of, place, wanted, there) in cases {
        match refused(&kernel, &arguments) {
            Error::Kernel(KernelError::ArgumentKind { kernel, argument, position, expected, given }) => {
                assert_eq!((kernel.as_str(), argument.as_str(), position), ("scale", of, place));
                assert!(expected.contains(wanted) && given.contains(there), "{expected}, {given}");
            }
            other => panic!("{other}"),
        }
    }
    // What may be written may be read.
    let mut d = a;
    call(&kernel, &[Argument::slice_mut(&mut d), y, n, by]).unwrap();
    assert_eq!(c, a);
    drop(kernel);
    engine.finish();
}

/// What is said of arguments that a signature is given; nothing is called.
#[track_caller]
fn wrong(signature: &KernelSignature, arguments: &[Argument<'_>]) -> Error {
    signature.check(arguments).expect_err("it passes")
}

fn the_element_type_of_a_buffer() {
    let signature = KernelSignature::builder("k").input("x", ElementType::BF16, [2]).build().unwrap();
    let x = [0u16; 2];
    let error = wrong(&signature, &[Argument::slice(&x)]);
    assert!(
        matches!(&error, Error::Kernel(KernelError::ElementMismatch { argument, expected: ElementType::BF16, given: ElementType::U16, .. }) if argument == "x"),
        "{error}"
    );
    signature.check(&[BufferView::of(&x).element(ElementType::BF16).into()]).unwrap();
}

fn the_shape_of_a_buffer() {
    let signature = KernelSignature::builder("k")
        .input("x", F32, ["rows", "columns"])
        .input("weight", F32, ["columns"])
        .input("fixed", F32, [Extent::Fixed(3), Extent::Any])
        .build()
        .unwrap();
    let memory = [0.0f32; 64];
    let check = |x: &[usize], weight: &[usize], fixed: &[usize]| {
        signature.check(&[x, weight, fixed].map(|shape| BufferView::of(&memory).shape(shape).into()))
    };
    check(&[2, 8], &[8], &[3, 5]).unwrap();
    check(&[8, 2], &[2], &[3, 0]).unwrap();
    let cases: [([&[usize]; 3], _, _); 5] = [
        ([&[16], &[8], &[3, 5]], "x", "[rows, columns]"),
        ([&[2, 8, 1], &[8], &[3, 5]], "x", "[rows, columns]"),
        ([&[2, 8], &[4], &[3, 5]], "weight", "[columns = 8 (as of 'x')]"),
        ([&[2, 8], &[8], &[4, 5]], "fixed", "[3, any]"),
        ([&[2, 8], &[8], &[3]], "fixed", "[3, any]"),
    ];
    for ([x, weight, fixed], of, wanted) in cases {
        match check(x, weight, fixed) {
            Err(Error::Kernel(KernelError::ShapeMismatch { argument, expected, given, .. })) => {
                assert_eq!((argument.as_str(), expected.as_str()), (of, wanted));
                assert!([x, weight, fixed].contains(&given.as_slice()));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn extents_as_scalars() {
    let engine = Checked::new();
    // Before its buffers, and in fewer bits than they may have elements.
    let source = "void f(int n, const float *x, float *y, unsigned char m) {
        for (int i = 0; i < n; i++) y[i] = x[i] + m;
    }";
    let signature = KernelSignature::builder("f")
        .extent_scalar::<i32>("n")
        .input("x", F32, ["n", "m"])
        .output("y", F32, ["n"])
        .extent_scalar::<u8>("m")
        .build()
        .unwrap();
    let kernel = bind::<unsafe extern "C" fn(i32, *const f32, *mut f32, u8)>(&engine, &signature, source, "f");
    let memory = [1.0f32; 512];
    let run = |n: Argument<'_>, x: &[usize], y: &mut [f32], m: Argument<'_>| {
        call(&kernel, &[n, BufferView::of(&memory).shape(x).into(), Argument::slice_mut(y), m])
    };
    let mut y = [0.0f32; 4];
    run(4i32.into(), &[4, 2], &mut y, 2u8.into()).unwrap();
    assert_eq!(y, [3.0; 4]);
    run(Argument::extent(), &[4, 100], &mut y, Argument::extent()).unwrap();
    assert_eq!(y, [101.0; 4]);
    run(Argument::extent(), &[0, 3], &mut [], 3u8.into()).unwrap();
    let cases: [(Argument<'_>, Argument<'_>, _); 5] = [
        (8i32.into(), 2u8.into(), ("n", "x", 4, "8")),
        ((-4i32).into(), 2u8.into(), ("n", "x", 4, "-4")),
        (i32::MIN.into(), 2u8.into(), ("n", "x", 4, "-2147483648")),
        (Argument::extent(), 0u8.into(), ("m", "x", 2, "0")),
        (4i32.into(), 255u8.into(), ("m", "x", 2, "255")),
    ];
    for (n, m, expected) in cases {
        match run(n, &[4, 2], &mut y, m) {
            Err(Error::Kernel(KernelError::ExtentMismatch { argument, buffer, expected: extent, given, .. })) => {
                assert_eq!((argument.as_str(), buffer.as_str(), extent, given.as_str()), expected);
            }
            other => panic!("{expected:?}: {other:?}"),
        }
    }
    // 256 cannot be passed, and must not become 0.
    for m in [Argument::extent(), 0u8.into()] {
        let error = run(Argument::extent(), &[1, 256], &mut y[..1], m).unwrap_err();
        let is_expected = match &error {
            Error::Kernel(KernelError::ExtentTooLarge { argument, extent: 256, .. }) => argument == "m",
            Error::Kernel(KernelError::ExtentMismatch { argument, expected: 256, given, .. }) => {
                argument == "m" && given == "0"
            }
            _ => false,
        };
        assert!(is_expected, "{error}");
    }
    assert_eq!(y, [101.0; 4]);
    // A scalar of another type, and a value from the call where a scalar is no extent.
    let error = run(4i64.into(), &[4, 2], &mut y, 2u8.into()).unwrap_err();
    assert!(matches!(error, Error::Kernel(KernelError::ArgumentKind { .. })), "{error}");
    let x = BufferView::of(&memory).shape(&[4, 2]).into();
    let error = call(&kernel, &[x, Argument::extent(), Argument::slice_mut(&mut y), Argument::extent()]).unwrap_err();
    assert!(matches!(&error, Error::Kernel(KernelError::ArgumentOrder { argument, .. }) if argument == "n"), "{error}");
    let free = KernelSignature::builder("k").input("x", F32, ["n"]).scalar::<i64>("n").build().unwrap();
    let error = free.check(&[Argument::slice(&memory), Argument::extent()]).unwrap_err();
    assert!(
        matches!(&error, Error::Kernel(KernelError::ArgumentKind { given, .. }) if given == "an extent"),
        "{error}"
    );
    drop(kernel);
    engine.finish();
}

fn a_signature_describes_its_parameters() {
    let text = "k(x: in bf16[rows, 2, ?] strides any align 32, s: scratch u8[], rows: i32 extent, by: f32)";
    let signature: KernelSignature = text.parse().unwrap();
    let described: Vec<_> = signature
        .parameters()
        .map(|parameter| match parameter {
            KernelParameter::Buffer { name, access, element, shape, strides, alignment, .. } => {
                format!("{name} {access:?} {element} {shape:?} {strides:?} {alignment}")
            }
            KernelParameter::Scalar { name, scalar, is_extent, .. } => format!("{name} {scalar} {is_extent}"),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        "x In BF16 [Named(\"rows\"), Fixed(2), Any] Any 32",
        "s Scratch U8 [] Contiguous 1",
        "rows I32 true",
        "by F32 false",
    ];
    assert_eq!(described, expected);
    assert!(signature.parameters().map(|parameter| parameter.name()).eq(["x", "s", "rows", "by"]));
}

fn the_strides_of_a_buffer() {
    let memory = [0.0f32; 64];
    let check = |declared: Option<Strides>, shape: &[usize], strides: Option<&[isize]>| {
        let builder = KernelSignature::builder("k").input("x", F32, [Extent::Any, Extent::Any]);
        let builder = match declared {
            Some(declared) => builder.strides("x", declared),
            None => builder,
        };
        let view = BufferView::of(&memory).shape(shape);
        builder.build().unwrap().check(&[strides.map_or(view, |strides| view.strides(strides)).into()])
    };
    let fixed = || Some(Strides::Fixed(vec![8, 2]));
    check(None, &[4, 4], None).unwrap();
    check(None, &[4, 4], Some(&[4, 1])).unwrap();
    // Of one element, none is a neighbour.
    check(None, &[1, 4], Some(&[77, 1])).unwrap();
    check(None, &[4, 1], Some(&[1, 77])).unwrap();
    check(Some(Strides::Any), &[4, 4], Some(&[1, 4])).unwrap();
    check(Some(Strides::Any), &[4, 4], Some(&[0, 0])).unwrap();
    check(fixed(), &[4, 4], Some(&[8, 2])).unwrap();
    check(fixed(), &[1, 1], None).unwrap();
    for (declared, strides, wanted) in [
        (None, Some(&[8, 1][..]), "[4, 1] (contiguous)"),
        (None, Some(&[1, 4]), "[4, 1] (contiguous)"),
        (None, Some(&[1]), "2 of them"),
        (Some(Strides::Any), Some(&[4, 1, 1]), "2 of them"),
        (fixed(), Some(&[8, 1]), "[8, 2]"),
        (fixed(), None, "[8, 2]"),
    ] {
        match check(declared, &[4, 4], strides) {
            Err(Error::Kernel(KernelError::StridesMismatch { argument, expected, given, .. })) => {
                assert_eq!((argument.as_str(), expected.as_str()), ("x", wanted));
                assert_eq!(given, strides.unwrap_or(&[4, 1]));
            }
            other => panic!("{other:?}"),
        }
    }
}

fn negative_strides() {
    let signature =
        KernelSignature::builder("k").input("x", F32, ["a", "b"]).strides("x", Strides::Any).build().unwrap();
    let memory = [0.0f32; 64];
    let error = wrong(&signature, &[BufferView::of(&memory).shape(&[4, 4]).strides(&[4, -1]).into()]);
    assert!(matches!(error, Error::Kernel(KernelError::NegativeStride { dimension: 1, stride: -1, .. })), "{error}");
}

fn buffers_that_fit_nowhere() {
    let signature =
        KernelSignature::builder("k").input("x", F32, ["a", "b"]).strides("x", Strides::Any).build().unwrap();
    let raw = |address: usize, shape, strides: Option<&'static [isize]>| {
        let view = BufferView::raw(std::ptr::without_provenance_mut(address), F32, shape);
        signature.check(&[strides.map_or(view, |strides| view.strides(strides)).into()])
    };
    raw(4096, &[1 << 26, 1 << 26], None).unwrap();
    type Case<'a> = (usize, &'a [usize], Option<&'static [isize]>);
    let cases: [Case<'_>; 7] = [
        (4096, &[1 << 32, 1 << 32], None),
        (4096, &[usize::MAX, 2], None),
        (4096, &[1 << 27, 1 << 27], None),
        (4096, &[3, 1], Some(&[isize::MAX, 1])),
        (4096, &[2, 2], Some(&[isize::MAX, isize::MAX])),
        (4096, &[2, 1], Some(&[1 << 60, 1])),
        // Small, but at the end of all addresses.
        ((1 << 56) - 8, &[1, 3], None),
    ];
    for (address, shape, strides) in cases {
        let error = raw(address, shape, strides).unwrap_err();
        assert!(
            matches!(&error, Error::Kernel(KernelError::BufferTooLarge { argument, .. }) if argument == "x"),
            "{error}"
        );
    }
}

fn null_and_misaligned_buffers() {
    let signature =
        KernelSignature::builder("k").input("x", ElementType::Complex128, [2]).output("y", F32, ["n"]).aligned("y", 32);
    let signature = signature.build().unwrap();
    let at = |x: usize, y: usize| {
        let [x, y] = [x, y].map(std::ptr::without_provenance_mut);
        signature
            .check(&[BufferView::raw(x, ElementType::Complex128, &[2]).into(), BufferView::raw(y, F32, &[8]).into()])
    };
    at(4096 + 8, 8192 + 32).unwrap();
    assert!(matches!(at(0, 8192), Err(Error::Kernel(KernelError::NullBuffer { argument, .. })) if argument == "x"));
    assert!(matches!(at(4096, 0), Err(Error::Kernel(KernelError::NullBuffer { argument, .. })) if argument == "y"));
    assert!(matches!(
        at(4100, 8192),
        Err(Error::Kernel(KernelError::MisalignedBuffer { address: 4100, alignment: 8, .. }))
    ));
    assert!(matches!(
        at(4096, 8208),
        Err(Error::Kernel(KernelError::MisalignedBuffer { address: 8208, alignment: 32, .. }))
    ));
}

fn buffers_beyond_their_slices() {
    let signature =
        KernelSignature::builder("k").input("x", F32, ["a", "b"]).strides("x", Strides::Any).build().unwrap();
    let memory = [0.0f32; 16];
    signature.check(&[BufferView::of(&memory).shape(&[4, 4]).into()]).unwrap();
    signature.check(&[BufferView::of(&memory[1..]).shape(&[4, 2]).strides(&[4, 2]).into()]).unwrap();
    let error = wrong(&signature, &[BufferView::of(&memory).shape(&[4, 5]).into()]);
    assert!(matches!(error, Error::Kernel(KernelError::BufferTooSmall { needed: 80, given: 64, .. })), "{error}");
    let error = wrong(&signature, &[BufferView::of(&memory[2..]).shape(&[4, 2]).strides(&[4, 2]).into()]);
    assert!(matches!(error, Error::Kernel(KernelError::BufferTooSmall { needed: 60, given: 56, .. })), "{error}");
}

fn buffers_without_elements() {
    let engine = Checked::new();
    let kernel = bind::<Scale>(&engine, &scale_builder().build().unwrap(), SCALE, "scale");
    let null = || BufferView::raw(std::ptr::null_mut(), F32, &[0]);
    call(&kernel, &[null().into(), null().into(), 0i64.into(), 1.0f32.into()]).unwrap();
    // In the midst of the other one, at an odd address.
    let signature = KernelSignature::builder("k").input("x", F32, ["a"]).output("y", F32, ["b"]).build().unwrap();
    let mut y = [0.0f32; 8];
    let inside = y.as_mut_ptr().cast::<u8>().wrapping_add(13).cast();
    signature.check(&[BufferView::raw(inside, F32, &[0]).into(), Argument::slice_mut(&mut y)]).unwrap();
    // Where there must be some, none are too few.
    let fixed = KernelSignature::builder("k").input("x", F32, [4]).build().unwrap();
    assert!(matches!(fixed.check(&[null().into()]), Err(Error::Kernel(KernelError::ShapeMismatch { .. }))));
    drop(kernel);
    engine.finish();
}

fn what_overlaps_is_refused_and_does_not_run() {
    let engine = Checked::new();
    let kernel = bind::<Scale>(&engine, &scale_builder().build().unwrap(), SCALE, "scale");
    let before: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let mut memory = before.clone();
    let base = memory.as_mut_ptr();
    let at = |start: usize| BufferView::raw(base.wrapping_add(start).cast(), F32, &[16]);
    let address = |element: usize| base.wrapping_add(element).addr() as u64;
    for (x, y, shared) in [(0, 0, 0..16), (0, 15, 15..16), (15, 0, 15..16), (8, 16, 16..24)] {
        match refused(&kernel, &[at(x).into(), at(y).into(), 16i64.into(), 2.0f32.into()]) {
            error @ Error::Kernel(KernelError::BuffersOverlap { .. }) => {
                let text = error.to_string();
                let Error::Kernel(KernelError::BuffersOverlap { kernel, first, second, bytes, overlap }) = error else {
                    unreachable!()
                };
                assert_eq!((kernel.as_str(), first.as_str(), second.as_str()), ("scale", "x", "y"));
                assert_eq!((bytes, overlap), (address(shared.start)..address(shared.end), Overlap::Undeclared));
                assert!(text.contains(&format!("{:#x}..{:#x}", address(shared.start), address(shared.end))), "{text}");
            }
            other => panic!("{other}"),
        }
        assert_eq!(memory, before, "it ran");
    }
    call(&kernel, &[at(0).into(), at(16).into(), 16i64.into(), 2.0f32.into()]).unwrap();
    assert_eq!(memory[31], 30.0);
    // One within the other.
    let signature = KernelSignature::builder("k").input("a", F32, ["n"]).output("b", F32, ["m"]).build().unwrap();
    let of = |start: usize, shape| BufferView::raw(base.wrapping_add(start).cast(), F32, shape).into();
    for arguments in [[of(0, &[64]), of(8, &[4])], [of(8, &[4]), of(0, &[64])]] {
        match wrong(&signature, &arguments) {
            Error::Kernel(KernelError::BuffersOverlap { bytes, .. }) => assert_eq!(bytes, address(8)..address(12)),
            other => panic!("{other}"),
        }
    }
    drop(kernel);
    engine.finish();
}

fn every_pair_of_which_one_is_written() {
    use slabjit::Access::{In, InOut, Out, Scratch};
    let mut memory = [0.0f32; 8];
    let base = memory.as_mut_ptr();
    for first in [In, Out, InOut, Scratch] {
        for second in [In, Out, InOut, Scratch] {
            let builder = KernelSignature::builder("k").buffer("a", first, F32, [4]).input("between", F32, [1]);
            let signature = builder.buffer("b", second, F32, [4]).build().unwrap();
            let at = |start: usize, shape| BufferView::raw(base.wrapping_add(start).cast(), F32, shape).into();
            let outcome = signature.check(&[at(0, &[4]), at(7, &[1]), at(3, &[4])]);
            match (first, second) {
                (In, In) => outcome.unwrap(),
                _ => assert!(
                    matches!(&outcome, Err(Error::Kernel(KernelError::BuffersOverlap { first, second, .. })) if first == "a" && second == "b"),
                    "{outcome:?}"
                ),
            }
            signature.check(&[at(0, &[4]), at(4, &[1]), at(4, &[4])]).map_or_else(
                |error| {
                    assert!(
                        matches!(error, Error::Kernel(KernelError::BuffersOverlap { .. })) && second != In,
                        "{error}"
                    )
                },
                |()| assert_eq!(second, In),
            );
        }
    }
}

fn interleaved_columns_pass() {
    type Function = unsafe extern "C" fn(*const f32, *mut f32);
    let engine = Checked::new();
    let source = "void copy(const float *x, float *y) {
        for (int r = 0; r < 4; r++) for (int c = 0; c < 4; c++) y[8 * r + 2 * c] = x[8 * r + 2 * c]; }";
    let columns = || Strides::Fixed(vec![8, 2]);
    let builder = KernelSignature::builder("copy").input("x", F32, [4, 4]).output("y", F32, [4, 4]);
    let signature = builder.strides("x", columns()).strides("y", columns()).build().unwrap();
    let kernel = bind::<Function>(&engine, &signature, source, "copy");
    let mut matrix: Vec<f32> = (0..40).map(|i| i as f32).collect();
    let base = matrix.as_mut_ptr();
    let view =
        |start: usize| Argument::from(BufferView::raw(base.wrapping_add(start).cast(), F32, &[4, 4]).strides(&[8, 2]));
    call(&kernel, &[view(0), view(1)]).unwrap();
    let expected: Vec<f32> = (0..40).map(|i| if i < 32 { (i & !1) as f32 } else { i as f32 }).collect();
    assert_eq!(matrix, expected);
    // A row, or a column, further down they are the same elements.
    for start in [0, 2, 8] {
        let error = refused(&kernel, &[view(0), view(start)]);
        assert!(matches!(error, Error::Kernel(KernelError::BuffersOverlap { .. })), "{error}");
    }
    drop(kernel);
    engine.finish();
}

fn aliases() {
    let engine = Checked::new();
    let mut memory = [1.0f32; 64];
    let base = memory.as_mut_ptr();
    let at = |start: usize| Argument::from(BufferView::raw(base.wrapping_add(start).cast(), F32, &[16]));
    let overlap = |signature: &KernelSignature, x, y| match signature.check(&[x, y, 16i64.into(), 2.0f32.into()]) {
        Ok(()) => None,
        Err(Error::Kernel(KernelError::BuffersOverlap { overlap, .. })) => Some(overlap),
        Err(error) => panic!("{error}"),
    };
    let declared = scale_builder().alias("y", "x").build().unwrap();
    assert_eq!(overlap(&declared, at(0), at(0)), Some(Overlap::NotInPlace));
    let in_place = scale_builder().alias("y", "x").in_place().build().unwrap();
    assert_eq!(overlap(&in_place, at(0), at(0)), None);
    assert_eq!(overlap(&in_place, at(0), at(1)), Some(Overlap::Partial));
    assert_eq!(overlap(&in_place, at(1), at(0)), Some(Overlap::Partial));

    let kernel = bind::<Scale>(&engine, &in_place, SCALE, "scale");
    call(&kernel, &[at(8), at(8), 16i64.into(), 2.0f32.into()]).unwrap();
    assert_eq!(memory.map(|value| value == 2.0), std::array::from_fn(|i| (8..24).contains(&i)));

    // The same range in another order is another view.
    let square = KernelSignature::builder("k").input("x", F32, ["n", "n"]).output("y", F32, ["n", "n"]);
    let square = square.strides("x", Strides::Any).strides("y", Strides::Any).input("z", F32, ["n", "n"]);
    let square = square.alias("y", "x").in_place().build().unwrap();
    let view = |start: usize, strides: &'static [isize]| {
        Argument::from(BufferView::raw(base.wrapping_add(start).cast(), F32, &[4, 4]).strides(strides))
    };
    square.check(&[view(0, &[4, 1]), view(0, &[4, 1]), view(16, &[4, 1])]).unwrap();
    let error = wrong(&square, &[view(0, &[4, 1]), view(0, &[1, 4]), view(16, &[4, 1])]);
    assert!(matches!(error, Error::Kernel(KernelError::BuffersOverlap { overlap: Overlap::Partial, .. })), "{error}");
    // What is declared of one input is not declared of another.
    let error = wrong(&square, &[view(0, &[4, 1]), view(0, &[4, 1]), view(0, &[4, 1])]);
    assert!(
        matches!(&error, Error::Kernel(KernelError::BuffersOverlap { first, second, overlap: Overlap::Undeclared, .. }) if first == "y" && second == "z"),
        "{error}"
    );
    drop(kernel);
    engine.finish();
}

fn spaces() {
    let signature = KernelSignature::builder("k").input("x", F32, [4]).output("y", F32, [4]).build().unwrap();
    let address = 0x7000_0000_1000;
    let view = |space| BufferView::on_device(address, 0, F32, &[4]).space(space);
    let spaces = [MemorySpace::Host, MemorySpace::Device(0), MemorySpace::Device(1), MemorySpace::Managed];
    for (one, x) in spaces.into_iter().enumerate() {
        for (other, y) in spaces.into_iter().enumerate() {
            let outcome = signature.check(&[view(x).into(), view(y).into()]);
            match one == other || one == 3 || other == 3 {
                true => assert!(
                    matches!(&outcome, Err(Error::Kernel(KernelError::BuffersOverlap { .. }))),
                    "{x}, {y}: {outcome:?}"
                ),
                false => outcome.unwrap(),
            }
        }
    }
    let device = |start, ordinal| BufferView::on_device(address + start, ordinal, F32, &[4]).into();
    assert!(matches!(
        signature.check(&[device(0, 1), device(12, 1)]),
        Err(Error::Kernel(KernelError::BuffersOverlap { .. }))
    ));
    signature.check(&[device(0, 1), device(12, 0)]).unwrap();
    signature.check(&[device(0, 1), device(16, 1)]).unwrap();
    assert!(matches!(
        signature.check(&[device(2, 1), device(16, 1)]),
        Err(Error::Kernel(KernelError::MisalignedBuffer { .. }))
    ));
}

fn tags_are_no_part_of_an_address() {
    let signature = KernelSignature::builder("k").input("x", F32, [4]).output("y", F32, [4]).build().unwrap();
    let view = |address: usize| Argument::from(BufferView::raw(std::ptr::without_provenance_mut(address), F32, &[4]));
    let (one, other) = (0x0100_7000_0000_1000, 0x0200_7000_0000_1000);
    assert!(matches!(
        signature.check(&[view(one), view(other)]),
        Err(Error::Kernel(KernelError::BuffersOverlap { .. }))
    ));
    signature.check(&[view(one), view(other + 16)]).unwrap();
}

fn who_plans_memory_can_ask() {
    let builder =
        || KernelSignature::builder("k").input("x", F32, ["n"]).input("z", F32, ["n"]).output("y", F32, ["n"]);
    let signature = builder().scalar::<i64>("n").alias("y", "x").in_place().build().unwrap();
    assert!(signature.may_share("y", "x") && signature.may_share("x", "y") && signature.may_share("x", "z"));
    assert!(!signature.may_share("y", "z") && !signature.may_share("y", "n") && !signature.may_share("x", "nothing"));
    assert!(!builder().alias("y", "x").build().unwrap().may_share("y", "x"));
}
