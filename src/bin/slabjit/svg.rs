//! The subset of SVG 1.1 that a map uses. All text is escaped.

use std::fmt::{Display, Write};

/// An element: name, attributes, and contents.
pub(crate) struct Element {
    name: &'static str,
    attributes: String,
    content: String,
}

impl Element {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, attributes: String::new(), content: String::new() }
    }

    /// Makes a text at a point: its left end, or the end that `text-anchor` selects.
    pub(crate) fn text(x: f64, y: f64, text: &str) -> Self {
        Self::new("text").number("x", x).number("y", y).content(text)
    }

    pub(crate) fn rect(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self::new("rect").number("x", x).number("y", y).number("width", width).number("height", height)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Display) -> Self {
        let mut text = String::new();
        escape(&value.to_string(), &mut text);
        let _ = write!(self.attributes, " {name}=\"{text}\"");
        self
    }

    pub(crate) fn number(self, name: &str, value: f64) -> Self {
        self.with(name, Number(value))
    }

    /// Adds text.
    pub(crate) fn content(mut self, text: &str) -> Self {
        escape(text, &mut self.content);
        self
    }

    /// Sets the text that a viewer shows for the element under the pointer.
    pub(crate) fn title(mut self, text: &str) -> Self {
        let mut content = String::new();
        Self::new("title").content(text).write(&mut content);
        content.push_str(&self.content);
        self.content = content;
        self
    }

    /// Adds an element, on a line of its own.
    pub(crate) fn push(&mut self, child: Self) {
        child.write(&mut self.content);
        self.content.push('\n');
    }

    fn write(&self, out: &mut String) {
        let Self { name, attributes, content } = self;
        let _ = match content.is_empty() {
            true => write!(out, "<{name}{attributes}/>"),
            false => write!(out, "<{name}{attributes}>{content}</{name}>"),
        };
    }

    /// Returns a file with this root.
    pub(crate) fn document(self) -> String {
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        self.write(&mut out);
        out.push('\n');
        out
    }
}

/// A number with at most one decimal, so that equal drawings are equal files.
pub(crate) struct Number(pub(crate) f64);

impl Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round() as i64;
        match tenths % 10 {
            0 => write!(f, "{}", tenths / 10),
            _ => write!(f, "{:.1}", tenths as f64 / 10.0),
        }
    }
}

/// Writes XML's own characters as references, and characters that XML 1.0 does not allow (section 2.2) as U+FFFD.
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'.. => out.push(c),
            _ => out.push('\u{fffd}'),
        }
    }
}
