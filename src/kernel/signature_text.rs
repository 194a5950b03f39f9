//! Kernel signatures as text, which people write into files and images carry.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use super::element::{ElementType, ScalarType};
use super::signature::{
    Access, Dimension, Extent, Inner, KernelSignature, KernelSignatureBuilder, Kind, Returns, Strides,
};
use crate::{Error, KernelError, Result};

// ---- words ----

/// A type whose values have words in the text.
trait Word: Copy + 'static {
    const ALL: &'static [Self];

    fn word(self) -> &'static str;

    fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.word() == word)
    }

    /// Lists the words, for errors.
    fn list() -> String {
        Self::ALL.iter().map(|value| value.word()).collect::<Vec<_>>().join(", ")
    }
}

macro_rules! words {
    ($type:ident: $($variant:ident $word:literal),* $(,)?) => {
        impl Word for $type {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }
        }
    };
}

words! { Access: In "in", Out "out", InOut "inout", Scratch "scratch" }

words! { ScalarType:
    Bool "bool", I8 "i8", I16 "i16", I32 "i32", I64 "i64", U8 "u8", U16 "u16", U32 "u32", U64 "u64",
    F32 "f32", F64 "f64", Pointer "pointer",
}

words! { ElementType:
    Bool "bool", I8 "i8", I16 "i16", I32 "i32", I64 "i64", U8 "u8", U16 "u16", U32 "u32", U64 "u64",
    F16 "f16", BF16 "bf16", F32 "f32", F64 "f64", Complex64 "complex64", Complex128 "complex128",
    F8E3M4 "f8e3m4", F8E4M3 "f8e4m3", F8E4M3B11Fnuz "f8e4m3b11fnuz", F8E4M3Fn "f8e4m3fn", F8E4M3Fnuz "f8e4m3fnuz",
    F8E5M2 "f8e5m2", F8E5M2Fnuz "f8e5m2fnuz", F8E8M0Fnu "f8e8m0fnu",
}

/// Returns the word for a type by its name in C, Rust or NumPy.
fn other_name(name: &str) -> &str {
    match name {
        "half" | "float16" => "f16",
        "bfloat16" => "bf16",
        "float" | "float32" => "f32",
        "double" | "float64" => "f64",
        "int" | "int32" | "int32_t" => "i32",
        "long" | "int64" | "int64_t" | "isize" | "ptrdiff_t" => "i64",
        "size_t" | "uint64" | "uint64_t" | "usize" => "u64",
        "void" => "pointer",
        _ => name,
    }
}

fn is_in_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '$')
}

/// Returns whether a name is written without quotes.
fn is_bare(name: &str) -> bool {
    let first = |first: char| first.is_ascii_alphabetic() || first == '_';
    name.starts_with(first) && name.chars().all(is_in_name) && name != "in_place"
}

// ---- the writer ----

struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_bare(self.0) { f.write_str(self.0) } else { write!(f, "\"{}\"", self.0.escape_debug()) }
    }
}

impl Inner {
    fn extent_text(&self, dimension: Dimension) -> String {
        match dimension {
            Dimension::Fixed(extent) => extent.to_string(),
            Dimension::Any => "?".to_owned(),
            Dimension::Named(name) => Name(&self.extents[name]).to_string(),
        }
    }
}

/// Writes the signature on one line, as [`parse_all`](KernelSignature::parse_all) reads it.
impl fmt::Display for KernelSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.inner;
        write!(f, "{}(", Name(&inner.name))?;
        for (index, parameter) in inner.parameters.iter().enumerate() {
            write!(f, "{}{}: ", if index == 0 { "" } else { ", " }, Name(&parameter.name))?;
            let buffer = match &parameter.kind {
                Kind::Buffer(buffer) => buffer,
                Kind::Scalar(scalar) => {
                    f.write_str(scalar.word())?;
                    if inner.is_extent_scalar(index) {
                        f.write_str(" extent")?;
                    }
                    continue;
                }
            };
            let shape: Vec<_> = buffer.shape.iter().map(|dimension| inner.extent_text(*dimension)).collect();
            write!(f, "{} {}[{}]", buffer.access.word(), buffer.element.word(), shape.join(", "))?;
            match &buffer.strides {
                Strides::Contiguous => {}
                Strides::Any => f.write_str(" strides any")?,
                Strides::Fixed(strides) => write!(f, " strides {strides:?}")?,
            }
            if buffer.alignment != buffer.element.alignment() {
                write!(f, " align {}", buffer.alignment)?;
            }
            for (_, input) in inner.aliases.iter().filter(|(output, _)| *output == index) {
                write!(f, " alias {}", Name(&inner.parameters[*input].name))?;
            }
        }
        f.write_str(if inner.in_place { ") in_place" } else { ")" })?;
        match inner.returns {
            Returns::Nothing => Ok(()),
            Returns::Status => f.write_str(" -> i32 status"),
        }
    }
}

// ---- the reader ----

/// Reads exactly one signature, in the text form of [`KernelSignature::parse_all`].
impl FromStr for KernelSignature {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut reader = Reader::new(text);
        let signature = reader.signature()?;
        if reader.token.is_empty() {
            return Ok(signature);
        }
        Err(reader.unexpected("the end of the text", "read several signatures with KernelSignature::parse_all"))
    }
}

impl KernelSignature {
    /// Reads all signatures of a text, one for each kernel. `Display` writes a signature in this form, and reading it
    /// again gives an equal one.
    ///
    /// ```
    /// use slabjit::{ElementType, KernelSignature};
    ///
    /// # fn main() -> slabjit::Result<()> {
    /// let signatures = KernelSignature::parse_all(
    ///     "
    ///     ## y = x / rms(x) * weight, row by row. Rows of x may have gaps; y is written by vector stores.
    ///     rmsnorm(
    ///         x: in f32[rows, columns] strides [1024, 1],
    ///         weight: in f32[columns],
    ///         y: out f32[rows, columns] align 64,
    ///         rows: i64 extent, columns: i64 extent, eps: f32,
    ///     ) -> i32 status
    ///
    ///     ## Each element is written after it was read, so y may be x.
    ///     scale(x: in bf16[n], y: out bf16[n] alias x, n: i64 extent, by: f32) in_place
    ///     ",
    /// )?;
    /// assert_eq!(signatures.len(), 2);
    ///
    /// let built = KernelSignature::builder("scale")
    ///     .input("x", ElementType::BF16, ["n"])
    ///     .output("y", ElementType::BF16, ["n"])
    ///     .extent_scalar::<i64>("n")
    ///     .scalar::<f32>("by")
    ///     .alias("y", "x")
    ///     .in_place()
    ///     .build()?;
    /// assert_eq!(signatures[1], built);
    /// assert_eq!(built.to_string().parse::<KernelSignature>()?, built);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Grammar
    /// ```text
    /// text      = { signature }
    /// signature = name "(" [ argument { "," argument } [ "," ] ] ")" [ "in_place" ] [ "->" "i32" "status" ]
    /// argument  = name ":" ( scalar [ "extent" ] | buffer )
    /// scalar    = "bool" | "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "f32" | "f64" | "pointer"
    /// buffer    = access element "[" [ extent { "," extent } [ "," ] ] "]" { property }
    /// access    = "in" | "out" | "inout" | "scratch"
    /// element   = "bool" | "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64"
    ///           | "f16" | "bf16" | "f32" | "f64" | "complex64" | "complex128"
    ///           | "f8e3m4" | "f8e4m3" | "f8e4m3b11fnuz" | "f8e4m3fn" | "f8e4m3fnuz"
    ///           | "f8e5m2" | "f8e5m2fnuz" | "f8e8m0fnu"
    /// extent    = number | name | "?"
    /// property  = "strides" ( "any" | "[" [ number { "," number } [ "," ] ] "]" )
    ///           | "align" number
    ///           | "alias" name
    /// ```
    ///
    /// - An extent is a number ([`Extent::Fixed`]), a name that has one value in the whole signature
    ///   ([`Extent::Named`]), or `?` ([`Extent::Any`]). `f32[]` is a single element.
    /// - `extent` behind a scalar says that it is [the extent of its name](KernelSignatureBuilder::extent_scalar).
    /// - A buffer without `strides` is contiguous. `strides` and `align` appear at most once.
    /// - `alias` names an input whose view the output may be ([`alias`](KernelSignatureBuilder::alias)), if the kernel
    ///   is [`in_place`](KernelSignatureBuilder::in_place).
    /// - Without `->` the function returns nothing; with it, [a status](KernelSignatureBuilder::status).
    /// - A name begins with an ASCII letter or `_`, and continues with letters, digits, `_`, `.` and `$`. Other names,
    ///   and `in_place`, are quoted: `"µ kernel"`, on one line, with Rust's escapes `\"`, `\'`, `\\`, `\n`, `\r`,
    ///   `\t`, `\0` and `\u{1F600}`.
    /// - Numbers are decimal. Spaces and line ends may be between any two words. A comment begins with `#` and ends
    ///   with its line.
    ///
    /// # Errors
    /// [`KernelError::SignatureSyntax`](crate::KernelError::SignatureSyntax) for a text that is not of this form or has
    /// two signatures for one kernel; [`KernelError::SignatureInText`](crate::KernelError::SignatureInText) for a
    /// signature that [`build`](KernelSignatureBuilder::build) refuses.
    pub fn parse_all(text: &str) -> Result<Vec<Self>> {
        let mut reader = Reader::new(text);
        let (mut signatures, mut names) = (Vec::new(), HashSet::new());
        while !reader.token.is_empty() {
            let (at, token) = (reader.at(), reader.token);
            let signature = reader.signature()?;
            if !names.insert(signature.name().to_owned()) {
                let found = format!("{} for the second time", shown(token));
                return Err(reader.error(at, found, "the name of another kernel", "keep one signature of each kernel"));
            }
            signatures.push(signature);
        }
        Ok(signatures)
    }

    /// Finds the signature of a kernel among lines in the order of bytes, each a signature as it is displayed.
    pub(crate) fn find(lines: &str, kernel: &str) -> Option<Result<Self>> {
        let start = format!("{}(", Name(kernel));
        let line_at = |at: usize| {
            let before = lines.as_bytes().get(..at)?.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            lines.get(before..)?.lines().next().map(|line| (before, line))
        };
        let (mut from, mut to) = (0, lines.len());
        while from < to {
            let (at, line) = line_at(from + (to - from) / 2)?;
            if line.starts_with(&start) {
                return Some(line.parse());
            }
            if line < start.as_str() {
                from = at + line.len() + 1;
            } else {
                to = at;
            }
        }
        None
    }
}

/// Reads a text from its beginning to its end, one token ahead. Nothing recurses, and what it keeps is no more than a
/// small multiple of the text.
struct Reader<'a> {
    text: &'a str,
    /// The next token as it is written, quotes included; empty at the end.
    token: &'a str,
    /// The text behind the token.
    rest: &'a str,
    /// Names of this signature's arguments, and where they are.
    arguments: Vec<(String, usize)>,
    /// Names behind `alias`, likewise.
    aliases: Vec<(String, usize)>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        let mut reader = Self { text, token: "", rest: text, arguments: Vec::new(), aliases: Vec::new() };
        reader.advance();
        reader
    }

    // ---- tokens ----

    fn advance(&mut self) {
        let mut rest = self.rest.trim_start();
        while rest.starts_with('#') {
            rest = rest.find('\n').map_or("", |end| rest.split_at(end).1).trim_start();
        }
        (self.token, self.rest) = rest.split_at(token_length(rest));
    }

    /// Returns the position of the token.
    fn at(&self) -> usize {
        self.text.len() - self.rest.len() - self.token.len()
    }

    /// Skips the token if it is this one.
    fn take(&mut self, token: &str) -> bool {
        let is_there = self.token == token;
        if is_there {
            self.advance();
        }
        is_there
    }

    fn expect(&mut self, token: &str, expected: &str, instead: &str) -> Result<()> {
        if self.take(token) { Ok(()) } else { Err(self.unexpected(expected, instead)) }
    }

    /// Reads a word that stands for a value.
    fn word<T: Word>(&mut self) -> Option<T> {
        let value = T::of(self.token)?;
        self.advance();
        Some(value)
    }

    fn name(&mut self, expected: &str) -> Result<String> {
        let name = match self.token.strip_prefix('"') {
            Some(quoted) => unquote(quoted).ok_or_else(|| {
                let instead = r#"escapes are \", \', \\, \n, \r, \t, \0 and \u{1F600}"#;
                self.unexpected("a name that ends with a quote on its line", instead)
            })?,
            None if is_bare(self.token) => self.token.to_owned(),
            None => {
                let instead = "a name begins with a letter or '_' and has letters, digits, '_', '.' and '$'; write \
                               others, and in_place, in quotes";
                return Err(self.unexpected(expected, instead));
            }
        };
        self.advance();
        Ok(name)
    }

    fn number<T: FromStr>(&mut self, expected: &str, instead: &str) -> Result<T> {
        let number = self.token.parse().map_err(|_| self.unexpected(expected, instead))?;
        self.advance();
        Ok(number)
    }

    /// Reads a list in brackets.
    fn list<T>(&mut self, of: &str, instead: &str, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect("[", &format!("'[' and {of}"), instead)?;
        let mut items = Vec::new();
        while self.token != "]" {
            items.push(item(self)?);
            if !self.take(",") {
                break;
            }
        }
        self.expect("]", "',' or ']'", &format!("separate {of} by commas, and end them with ']'"))?;
        Ok(items)
    }

    // ---- signatures ----

    fn signature(&mut self) -> Result<KernelSignature> {
        let start = self.at();
        self.arguments.clear();
        self.aliases.clear();
        let mut builder = KernelSignature::builder(self.name("the name of a kernel")?);
        let instead = "write the kernel's arguments in parentheses; before another kernel, only in_place and \
                       '-> i32 status' may follow them";
        self.expect("(", "'('", instead)?;
        while self.token != ")" {
            builder = self.argument(builder)?;
            if !self.take(",") {
                break;
            }
        }
        let instead = match self.token {
            "[" => "a buffer has an access: write in, out, inout or scratch before its element type",
            "strides" | "align" => "write it once, behind a buffer's shape",
            _ => "separate arguments by commas, and end them with ')'",
        };
        self.expect(")", "',' or ')'", instead)?;
        if self.take("in_place") {
            builder = builder.in_place();
        }
        if self.take("->") {
            let instead = "write '-> i32 status', or nothing for a function that returns nothing";
            self.expect("i32", "'i32 status'", instead)?;
            self.expect("status", "'status'", instead)?;
            builder = builder.status();
            if self.token == "in_place" {
                return Err(self.unexpected("the end of the signature", "write in_place before '->'"));
            }
        }
        builder.build().map_err(|error| self.placed(error, start))
    }

    fn argument(&mut self, builder: KernelSignatureBuilder) -> Result<KernelSignatureBuilder> {
        let at = self.at();
        let name = self.name("the name of an argument, or ')'")?;
        self.arguments.push((name.clone(), at));
        let example = "write a scalar as in 'n: i64', a buffer as in 'x: in f32[n]'";
        self.expect(":", "':' and the argument's type", example)?;
        if let Some(scalar) = self.word() {
            return Ok(match self.take("extent") {
                true => builder.extent_scalar_of(name, scalar),
                false => builder.scalar_of(name, scalar),
            });
        }
        let Some(access) = self.word::<Access>() else {
            let expected = format!("an access ({}) or a scalar type ({})", Access::list(), ScalarType::list());
            return Err(self.unexpected(&expected, &self.type_instead::<ScalarType>(example)));
        };
        let Some(element) = self.word::<ElementType>() else {
            let expected = format!("an element type ({})", ElementType::list());
            return Err(self.unexpected(&expected, &self.type_instead::<ElementType>(example)));
        };
        let instead = "write a buffer's shape as in f32[rows, 128, ?], and f32[] for a single element";
        let shape = self.list("extents", instead, Self::extent)?;
        self.properties(builder.buffer(name.as_str(), access, element, shape), &name)
    }

    fn extent(&mut self) -> Result<Extent> {
        if self.take("?") {
            return Ok(Extent::Any);
        }
        if self.token.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            let expected = format!("a number of elements up to {}", usize::MAX);
            return self.number(&expected, "write ? where any number may be").map(Extent::Fixed);
        }
        self.name("an extent (a number, a name or ?)").map(Extent::Named)
    }

    fn properties(&mut self, mut builder: KernelSignatureBuilder, name: &str) -> Result<KernelSignatureBuilder> {
        let (mut has_strides, mut has_alignment) = (false, false);
        loop {
            if !has_strides && self.take("strides") {
                let instead = "leave strides out for a buffer without gaps; write any, or one in elements for each \
                               dimension, as in [1024, 1]";
                let stride = |reader: &mut Self| reader.number("a stride", "write it as a decimal number of elements");
                let strides = match self.take("any") {
                    true => Strides::Any,
                    false => Strides::Fixed(self.list("strides, or any", instead, stride)?),
                };
                (builder, has_strides) = (builder.strides(name, strides), true);
            } else if !has_alignment && self.take("align") {
                let bytes = self.number("a number of bytes", "write a power of two, as in 'align 64'")?;
                (builder, has_alignment) = (builder.aligned(name, bytes), true);
            } else if self.take("alias") {
                let at = self.at();
                let input = self.name("the name of an input")?;
                self.aliases.push((input.clone(), at));
                builder = builder.alias(name, input);
            } else {
                return Ok(builder);
            }
        }
    }

    // ---- errors ----

    /// Returns what to write instead of a type: its word, or an example.
    fn type_instead<T: Word>(&self, example: &str) -> String {
        let lower = self.token.to_ascii_lowercase();
        let known = T::of(other_name(&lower)).map(|value| format!("write '{}' for '{}'", value.word(), self.token));
        known.unwrap_or_else(|| example.to_owned())
    }

    fn unexpected(&self, expected: &str, instead: &str) -> Error {
        let found = if self.token.is_empty() { "the end of the text".to_owned() } else { shown(self.token) };
        self.error(self.at(), found, expected, instead)
    }

    fn error(&self, at: usize, found: String, expected: &str, instead: &str) -> Error {
        let (line, column) = self.place(at);
        let (expected, instead) = (expected.to_owned(), instead.to_owned());
        Error::Kernel(KernelError::SignatureSyntax { line, column, found, expected, instead })
    }

    /// Adds the place to an error of the builder: that of the argument it names, or of the signature.
    fn placed(&self, error: Error, start: usize) -> Error {
        let Error::Kernel(source) = error else { return error };
        let argument =
            if let KernelError::InvalidSignature { argument, .. } = &source { argument.as_ref() } else { None };
        // Of two arguments of one name, the second.
        let mut names = self.arguments.iter().rev().chain(&self.aliases);
        let at = names.find(|(name, _)| Some(name) == argument).map_or(start, |(_, at)| *at);
        let (line, column) = self.place(at);
        Error::Kernel(KernelError::SignatureInText { line, column, source: Box::new(source) })
    }

    /// Returns the line and column of a position, in characters, from 1.
    fn place(&self, at: usize) -> (usize, usize) {
        let before = self.text.split_at(at).0;
        let last = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() + 1, last.chars().count() + 1)
    }
}

/// Returns the length of the token at the beginning of a text: a quoted name, a word or number, `->`, or one character.
fn token_length(text: &str) -> usize {
    let word = |text: &str| text.find(|c| !is_in_name(c)).unwrap_or(text.len());
    match text.chars().next() {
        None => 0,
        Some('"') => quoted_length(text),
        Some('-') if text.starts_with("->") => 2,
        Some('-') => 1 + word(text.split_at(1).1),
        Some(first) => word(text).max(first.len_utf8()),
    }
}

/// Returns the length of a quoted name, or of its first line if that lacks the second quote.
fn quoted_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            '\n' => return at,
            '"' if !is_escaped => return at + 1,
            _ => is_escaped = character == '\\' && !is_escaped,
        }
    }
    text.len()
}

/// Reads a quoted name behind its first quote; `None` if it lacks the second one or has an unknown escape.
fn unquote(quoted: &str) -> Option<String> {
    let mut name = String::new();
    let mut characters = quoted.strip_suffix('"')?.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            name.push(character);
            continue;
        }
        name.push(match characters.next()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '0' => '\0',
            'u' => {
                let (digits, rest) = characters.as_str().strip_prefix('{')?.split_once('}')?;
                characters = rest.chars();
                char::from_u32(u32::from_str_radix(digits, 16).ok()?)?
            }
            character @ ('"' | '\'' | '\\') => character,
            _ => return None,
        });
    }
    Some(name)
}

/// Formats a token for an error: its first 40 characters, without those that do something to a terminal.
fn shown(token: &str) -> String {
    let mut shown = String::from("'");
    for (index, character) in token.chars().enumerate() {
        match character {
            _ if index == 40 => {
                shown.push('…');
                break;
            }
            '"' | '\'' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown + "'"
}

#[cfg(test)]
mod tests;
