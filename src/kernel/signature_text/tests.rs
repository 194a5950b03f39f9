//! What is written is read again; what is not of the form is refused with its place.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

#[track_caller]
fn read(text: &str) -> KernelSignature {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Reads a text that is to be refused.
#[track_caller]
fn refused(text: &str) -> String {
    match KernelSignature::parse_all(text) {
        Ok(signatures) => panic!("{text}: read as {signatures:?}"),
        Err(error) => error.to_string(),
    }
}

// ---- what is read ----

#[test]
fn each_property_is_read_and_written() {
    let text = "k.1(x: in f32[rows, 128, ?] strides [4096, 32, 1] align 64, w: in f32[rows, ?, columns], \
                y: out f32[rows, 128, columns] strides any alias x alias w, z: inout bf16[], s: scratch u8[?], n: i64, \
                rows: u32 extent, stream: pointer) in_place -> i32 status";
    let built = KernelSignature::builder("k.1")
        .input("x", ElementType::F32, [Extent::from("rows"), Extent::from(128), Extent::Any])
        .strides("x", Strides::Fixed(vec![4096, 32, 1]))
        .aligned("x", 64)
        .input("w", ElementType::F32, [Extent::from("rows"), Extent::Any, Extent::from("columns")])
        .output("y", ElementType::F32, [Extent::from("rows"), Extent::from(128), Extent::from("columns")])
        .strides("y", Strides::Any)
        .alias("y", "w")
        .alias("y", "x")
        .in_out("z", ElementType::BF16, [0; 0])
        .scratch("s", ElementType::U8, [Extent::Any])
        .scalar::<i64>("n")
        .extent_scalar::<u32>("rows")
        .pointer("stream")
        .in_place()
        .status()
        .build()
        .unwrap();
    assert_eq!(built.to_string(), text);
    assert!(read(text) == built);
}

#[test]
fn every_type_has_its_word() {
    for element in ElementType::ALL {
        let text = format!("k(x: in {}[])", element.to_string().to_lowercase());
        assert_eq!(read(&text).to_string(), text);
    }
    for scalar in ScalarType::ALL {
        let text = format!("k(x: {})", scalar.to_string().to_lowercase());
        assert_eq!(read(&text).to_string(), text);
    }
}

#[test]
fn spaces_lines_and_comments_are_free() {
    let expected = "k(x: in f32[n, 2] strides [2, 1], n: i64) -> i32 status";
    let one_line = "k(x:in f32[n,2,]strides[2,1,],n:i64,)->i32 status";
    let lines = "# a kernel\r\n # of two lines\n\nk # (\n(\n\tx\u{a0}: # \"\n in\n \
                 f32\n[\nn\n,\n2 ] strides\n[ 2,\n1] , n :\n\
                 i64 ) -> \n i32\nstatus # end";
    assert_eq!(read(one_line).to_string(), expected);
    assert_eq!(read(lines).to_string(), expected);
}

#[test]
fn properties_come_in_any_order_and_defaults_are_not_written() {
    let text = "k(x: in f32[n], y: out f32[n] alias x strides any alias x align 4)";
    assert_eq!(read(text).to_string(), "k(x: in f32[n], y: out f32[n] strides any alias x)");
}

#[test]
fn several_signatures_follow_each_other() {
    let text = "a() b() -> i32 status c(x: in f32[1], y: out f32[1] alias x) in_place \"in_place\"() # d\n";
    let texts: Vec<_> = KernelSignature::parse_all(text).unwrap().iter().map(ToString::to_string).collect();
    let expected = ["a()", "b() -> i32 status", "c(x: in f32[1], y: out f32[1] alias x) in_place", "\"in_place\"()"];
    assert_eq!(texts, expected);
    assert!(KernelSignature::parse_all(" # none\n").unwrap().is_empty());
}

#[test]
fn words_of_the_form_are_names_too() {
    let text = "in(strides: in f32[align, any], out: out f32[i32, status] align 8 alias strides, align: f32, alias: i64, \
         extent: i8)";
    assert_eq!(read(text).to_string(), text);
}

#[test]
fn other_names_are_quoted() {
    let text = r#""µ \"k\" \\ \n\u{1b}\u{202e}"("a b": in f32["", "7"], "->": i32)"#;
    let signature = read(text);
    assert_eq!(signature.name(), "µ \"k\" \\ \n\u{1b}\u{202e}");
    assert_eq!(signature.to_string(), text);
    assert_eq!(read(r#""\'\r\t\0\u{1F600}"()"#).name(), "'\r\t\0😀");
}

// ---- what is refused ----

/// Texts, and the whole errors.
#[test]
fn errors_say_where_what_and_what_instead() {
    let scalars = "bool, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, pointer";
    let access = format!("expected an access (in, out, inout, scratch) or a scalar type ({scalars})");
    let element = "expected an element type (bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, \
                   complex64, complex128, f8e3m4, f8e4m3, f8e4m3b11fnuz, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, \
                   f8e8m0fnu)";
    let name = "a name begins with a letter or '_' and has letters, digits, '_', '.' and '$'; write others, and \
                in_place, in quotes";
    let example = "write a scalar as in 'n: i64', a buffer as in 'x: in f32[n]'";
    let escapes = r#"escapes are \", \', \\, \n, \r, \t, \0 and \u{1F600}"#;
    let returns = "write '-> i32 status', or nothing for a function that returns nothing";
    let comma = "separate arguments by commas, and end them with ')'";
    let shape = "write a buffer's shape as in f32[rows, 128, ?], and f32[] for a single element";
    let stride = "leave strides out for a buffer without gaps; write any, or one in elements for each dimension, as in \
                  [1024, 1]";
    let cases = [
        ("{}", "1, column 1", format!("expected the name of a kernel, found '{{'; {name}")),
        ("in_place()", "1, column 1", format!("expected the name of a kernel, found 'in_place'; {name}")),
        (
            "k() returns i32",
            "1, column 13",
            "expected '(', found 'i32'; write the kernel's arguments in parentheses; before another kernel, only \
             in_place and '-> i32 status' may follow them"
                .to_owned(),
        ),
        ("k(", "1, column 3", format!("expected the name of an argument, or ')', found the end of the text; {name}")),
        ("# µ\nk(é: i32)", "2, column 3", format!("expected the name of an argument, or ')', found 'é'; {name}")),
        ("\"µ\"(x i32)", "1, column 7", format!("expected ':' and the argument's type, found 'i32'; {example}")),
        ("k(n: size_t)", "1, column 6", format!("{access}, found 'size_t'; write 'u64' for 'size_t'")),
        ("k(n: F64)", "1, column 6", format!("{access}, found 'F64'; write 'f64' for 'F64'")),
        ("k(n: bf16[n])", "1, column 6", format!("{access}, found 'bf16'; {example}")),
        ("k(x: in float[n])", "1, column 9", format!("{element}, found 'float'; write 'f32' for 'float'")),
        ("k(x: in half[n])", "1, column 9", format!("{element}, found 'half'; write 'f16' for 'half'")),
        ("k(x: in pointer)", "1, column 9", format!("{element}, found 'pointer'; {example}")),
        ("k(x: in f32)", "1, column 12", format!("expected '[' and extents, found ')'; {shape}")),
        (
            "k(x: in f32[n m])",
            "1, column 15",
            "expected ',' or ']', found 'm'; separate extents by commas, and end them with ']'".to_owned(),
        ),
        ("k(x: in f32[*])", "1, column 13", format!("expected an extent (a number, a name or ?), found '*'; {name}")),
        (
            "k(x: in f32[-1])",
            "1, column 13",
            "expected a number of elements up to 18446744073709551615, found '-1'; write ? where any number may be"
                .to_owned(),
        ),
        (
            "k(x: f32[n])",
            "1, column 9",
            "expected ',' or ')', found '['; a buffer has an access: write in, out, inout or scratch before its \
             element type"
                .to_owned(),
        ),
        ("k(x: i32 n: i32)", "1, column 10", format!("expected ',' or ')', found 'n'; {comma}")),
        (
            "k(x: in f32[] align 8 align 8)",
            "1, column 23",
            "expected ',' or ')', found 'align'; write it once, behind a buffer's shape".to_owned(),
        ),
        (
            "k(x: in f32[] align x)",
            "1, column 21",
            "expected a number of bytes, found 'x'; write a power of two, as in 'align 64'".to_owned(),
        ),
        (
            "k(x: in f32[] strides contiguous)",
            "1, column 23",
            format!("expected '[' and strides, or any, found 'contiguous'; {stride}"),
        ),
        (
            "k(x: in f32[n] strides [n])",
            "1, column 25",
            "expected a stride, found 'n'; write it as a decimal number of elements".to_owned(),
        ),
        ("k(x: out f32[] alias)", "1, column 21", format!("expected the name of an input, found ')'; {name}")),
        ("k() -> void", "1, column 8", format!("expected 'i32 status', found 'void'; {returns}")),
        ("k() -> i32", "1, column 11", format!("expected 'status', found the end of the text; {returns}")),
        (
            "k() -> i32 status in_place",
            "1, column 19",
            "expected the end of the signature, found 'in_place'; write in_place before '->'".to_owned(),
        ),
        (
            "a()\nb()\n a()",
            "3, column 2",
            "expected the name of another kernel, found 'a' for the second time; keep one signature of each kernel"
                .to_owned(),
        ),
        (
            "\"k\n\"()",
            "1, column 1",
            format!("expected a name that ends with a quote on its line, found '\"k'; {escapes}"),
        ),
        (
            r#""a\x41"()"#,
            "1, column 1",
            format!(r#"expected a name that ends with a quote on its line, found '"a\x41"'; {escapes}"#),
        ),
    ];
    for (text, place, expected) in cases {
        assert_eq!(refused(text), format!("signatures, line {place}: {expected}"), "{text}");
    }
    assert_eq!(
        "a() b()".parse::<KernelSignature>().unwrap_err().to_string(),
        "signatures, line 1, column 5: expected the end of the text, found 'b'; read several signatures with \
         KernelSignature::parse_all"
    );
}

/// The builder's errors have the place of the argument.
#[test]
fn signatures_that_make_no_sense_have_a_place() {
    let cases = [
        ("\n k(x: i32, n: i64,\n  x: i32)", "3, column 3", ", argument 'x': there are two of that name"),
        (
            "k(x: in f32[] align 3)",
            "1, column 3",
            ", argument 'x': its alignment is no power of two, or less than that of its elements",
        ),
        ("k(y: out f32[] alias\nx)", "2, column 1", ", argument 'x': there is no argument of that name"),
        ("k(n: i64,\ny: out f32[] alias n)", "1, column 3", ", argument 'n': it is a scalar, not a buffer"),
        (
            "k(x: in f32[n] strides [-1])",
            "1, column 3",
            ", argument 'x': a stride is negative; let the buffer begin at its lowest address",
        ),
        (
            "a()\n k() in_place",
            "2, column 2",
            ": it may run in place, but no output is declared as an alias of an input",
        ),
    ];
    for (text, place, expected) in cases {
        let expected = format!("signatures, line {place}: the signature of kernel 'k' makes no sense{expected}");
        assert_eq!(refused(text), expected, "{text}");
    }
}

#[test]
fn unquoting_refuses_what_is_no_escape() {
    let wrong =
        ["", "a", r#"\""#, r#"\"#, r#"\q""#, r#"\u41""#, r#"\u{41""#, r#"\u{}""#, r#"\u{d800}""#, r#"\u{110000}""#];
    for quoted in wrong {
        assert_eq!(unquote(quoted), None, "{quoted}");
    }
    assert_eq!(unquote(r#"\\""#).as_deref(), Some("\\"));
}

/// A megabyte of anything is read at once, and an error repeats little of it.
#[test]
fn megabytes_of_junk_are_refused() {
    let start = std::time::Instant::now();
    for piece in ["(", "[", "\"", "\\", "a", "é", "\0", "#", "k(", "a(b:", "-", "k()", "9", "\\u{", "\"\\u{"] {
        let text = piece.repeat((1 << 20) / piece.len());
        if let Err(error) = KernelSignature::parse_all(&text) {
            assert!(error.to_string().len() < 1000, "{piece}: {error}");
        }
    }
    for piece in ["x: i32, ", "\"\": i32, ", "x: out f32[n] alias y"] {
        refused(&format!("k({})", piece.repeat((1 << 20) / piece.len())));
    }
    for piece in ["1, ", "n, ", "?,"] {
        refused(&format!("k(x: in f32[{}])", piece.repeat((1 << 20) / piece.len())));
        refused(&format!("k(x: in f32[] strides [{}])", piece.repeat((1 << 20) / piece.len())));
    }
    let aliases = " alias x".repeat(1 << 17);
    assert_eq!(
        read(&format!("k(x: in f32[], y: out f32[]{aliases})")).to_string(),
        "k(x: in f32[], y: out f32[] alias x)"
    );
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
}

// ---- random signatures and texts ----

/// A signature to be built.
#[derive(Debug, Clone)]
struct Described {
    name: String,
    arguments: Vec<(String, Kinds)>,
    /// Whether to declare an alias, for each two arguments for which that makes sense.
    aliases: Vec<bool>,
    in_place: bool,
    status: bool,
}

#[derive(Debug, Clone)]
enum Kinds {
    /// Its type, and whether it is an extent if there is one of its name.
    Scalar(ScalarType, bool),
    Buffer(Access, ElementType, Vec<(Extent, u16)>, Strided, u32),
}

#[derive(Debug, Clone, Copy)]
enum Strided {
    Contiguous,
    Any,
    Fixed,
}

fn names() -> impl Strategy<Value = String> {
    let words = [
        "in_place", "in", "strides", "align", "alias", "extent", "any", "status", "->", "?", "\"", "#", "\\", "7", "-1",
    ];
    prop_oneof![
        4 => "[a-z_][a-z0-9_.$]{0,3}",
        1 => Just("n".to_owned()),
        1 => select(words.to_vec()).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn extents() -> impl Strategy<Value = Extent> {
    prop_oneof![
        (0..4_usize).prop_map(Extent::Fixed),
        (0..1_usize << 20).prop_map(Extent::Fixed),
        Just(Extent::Any),
        names().prop_map(Extent::Named),
        Just(Extent::from("n")),
    ]
}

fn kinds() -> impl Strategy<Value = Kinds> {
    let element = prop_oneof![select(ElementType::ALL), Just(ElementType::F32)];
    let strided = select(&[Strided::Contiguous, Strided::Any, Strided::Fixed][..]);
    let shape = prop::collection::vec((extents(), any::<u16>()), 0..4);
    prop_oneof![
        1 => (select(ScalarType::ALL), any::<bool>()).prop_map(|(scalar, is_extent)| Kinds::Scalar(scalar, is_extent)),
        3 => (select(Access::ALL), element, shape, strided, 0..8_u32)
            .prop_map(|(access, element, shape, strided, shift)| Kinds::Buffer(access, element, shape, strided, shift)),
    ]
}

fn described() -> impl Strategy<Value = Described> {
    let arguments = prop::collection::hash_map(names(), kinds(), 0..8);
    let arguments = arguments.prop_map(|arguments| arguments.into_iter().collect());
    (names(), arguments, prop::collection::vec(any::<bool>(), 64), any::<bool>(), any::<bool>()).prop_map(
        |(name, arguments, aliases, in_place, status)| Described { name, arguments, aliases, in_place, status },
    )
}

impl Described {
    fn builder(&self, aliases: &[(&str, &str)]) -> KernelSignatureBuilder {
        let mut builder = KernelSignature::builder(self.name.as_str());
        for (name, kind) in &self.arguments {
            builder = match kind {
                Kinds::Scalar(scalar, true) if scalar.is_integer() && self.has_extent(name) => {
                    builder.extent_scalar_of(name, *scalar)
                }
                Kinds::Scalar(scalar, _) => builder.scalar_of(name, *scalar),
                Kinds::Buffer(access, element, shape, strided, shift) => {
                    let strides = match strided {
                        Strided::Contiguous => Strides::Contiguous,
                        Strided::Any => Strides::Any,
                        Strided::Fixed => Strides::Fixed(shape.iter().map(|(_, stride)| *stride as isize).collect()),
                    };
                    builder
                        .buffer(name, *access, *element, shape.iter().map(|(extent, _)| extent.clone()))
                        .strides(name, strides)
                        .aligned(name, element.alignment() << shift)
                }
            };
        }
        let builder = if self.status { builder.status() } else { builder };
        aliases.iter().fold(builder, |builder, (output, input)| builder.alias(*output, *input))
    }

    fn has_extent(&self, name: &str) -> bool {
        self.arguments.iter().any(|(_, kind)| match kind {
            Kinds::Buffer(_, _, shape, ..) => shape.iter().any(|(extent, _)| *extent == Extent::from(name)),
            Kinds::Scalar(..) => false,
        })
    }

    /// Builds it with the aliases that it may have; nothing if it has an argument without a name, or is too large.
    fn build(&self) -> Option<KernelSignature> {
        let names = || self.arguments.iter().map(|(name, _)| name.as_str());
        let pairs = names().flat_map(|output| names().map(move |input| (output, input)));
        let chosen = pairs.zip(&self.aliases).filter(|(_, is_chosen)| **is_chosen).map(|(pair, _)| pair);
        let aliases: Vec<_> = chosen.filter(|pair| self.builder(&[*pair]).build().is_ok()).collect();
        let builder = self.builder(&aliases);
        let in_place = self.in_place && !aliases.is_empty();
        if in_place { builder.in_place() } else { builder }.build().ok()
    }
}

/// Words, marks and parts of quotes, which together are often nearly a signature.
fn nearly() -> impl Strategy<Value = String> {
    let tokens = [
        "k",
        "x",
        "(",
        ")",
        "[",
        "]",
        ",",
        ":",
        "?",
        "->",
        "i32",
        "status",
        "in",
        "out",
        "f32",
        "strides",
        "any",
        "align",
        "alias",
        "extent",
        "n: i64",
        "in_place",
        "8",
        "-1",
        "\"",
        "\"y\"",
        "\\",
        "\\u{",
        "}",
        "# ",
        "\n",
        " ",
        "é",
        "k(x: in f32[n]",
        "y: out f32[n]",
    ];
    prop::collection::vec((select(tokens.to_vec()), select(&["", " "][..])), 0..20)
        .prop_map(|tokens| tokens.into_iter().flat_map(|(token, space)| [token, space]).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(all in prop::collection::vec(described(), 1..4)) {
        let mut signatures: Vec<_> = all.iter().filter_map(Described::build).collect();
        for signature in &signatures {
            let text = signature.to_string();
            prop_assert!(!text.contains('\n'), "{text}");
            let read = text.parse::<KernelSignature>();
            prop_assert!(read.as_ref().is_ok_and(|read| read == signature), "{text}: {read:?}");
        }
        signatures.sort_by(|one, other| one.name().cmp(other.name()));
        signatures.dedup_by(|one, other| one.name() == other.name());
        let text: String = signatures.iter().map(|signature| format!("{signature}\n# and\n")).collect();
        prop_assert!(KernelSignature::parse_all(&text).unwrap() == signatures, "{text}");
    }

    /// Nothing panics, errors are in the text, and what is read is written in the same way for ever.
    #[test]
    fn any_text_is_read_or_refused(text in prop_oneof![nearly(), any::<String>()]) {
        match KernelSignature::parse_all(&text) {
            Ok(signatures) => for signature in signatures {
                prop_assert!(signature.to_string().parse::<KernelSignature>().unwrap() == signature, "{signature}");
            },
            Err(Error::Kernel(
                KernelError::SignatureSyntax { line, column, .. } | KernelError::SignatureInText { line, column, .. },
            )) => {
                let there = text.split('\n').nth(line - 1).map(|line| line.chars().count() + 1);
                prop_assert!(there.is_some_and(|end| (1..=end).contains(&column)), "{text:?}: {line}, {column}");
            }
            Err(error) => prop_assert!(false, "{text:?}: {error}"),
        }
    }
}
