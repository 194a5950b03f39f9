//! Objects that are measured.
#![allow(dead_code, reason = "each of those that include it uses some of it")]

use std::fmt::Write;
use std::process::Command;

const RELOCATIONS: usize = 5;

/// An object that comes under many names: in its own, eight digits are replaced.
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Template {
    prefix: String,
    bytes: Vec<u8>,
    /// Where the digits are.
    places: Vec<usize>,
}

impl Template {
    /// Of an object in which `PREFIX_00000000` is defined. What is named after that gets another name, too.
    pub fn new(prefix: &str, bytes: Vec<u8>) -> Self {
        let name = format!("{prefix}_00000000");
        let at = |(at, window): (usize, &[u8])| (window == name.as_bytes()).then_some(at + prefix.len() + 1);
        let places: Vec<usize> = bytes.windows(name.len()).enumerate().filter_map(at).collect();
        assert!(!places.is_empty(), "nothing is named {name}");
        Self { prefix: prefix.into(), bytes, places }
    }

    /// Of an object that keeps its names.
    pub fn fixed(bytes: Vec<u8>) -> Self {
        Self { prefix: String::new(), bytes, places: Vec::new() }
    }

    /// One function, `kernel_NNNNNNNN(x) == x + 42`.
    pub fn small() -> Self {
        Self::new("kernel", compile("int kernel_00000000(int x) { return x + 42; }", "c", &["-c", "-O2", "-fPIC"]))
    }

    /// How many bytes each has.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// A name.
    pub fn name(&self, i: usize) -> String {
        format!("{}_{i:08}", self.prefix)
    }

    /// The object of that name.
    pub fn with_name(&self, i: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let digits = format!("{i:08}");
        for at in &self.places {
            bytes[*at..at + digits.len()].copy_from_slice(digits.as_bytes());
        }
        bytes
    }
}

/// Functions that would call four others and read data, and return their number.
pub fn sections(sections: usize) -> Vec<u8> {
    let mut text = String::from(".data\n.globl data\ndata: .quad 0\n");
    for i in 0..sections {
        let (code, call, load, answer) = if cfg!(target_arch = "x86_64") {
            ("jmp 1f", "call", "movl data(%rip), %eax", "movl $")
        } else {
            ("b 1f", "bl", "adrp x0, data", "mov w0, #")
        };
        let register = if cfg!(target_arch = "x86_64") { ", %eax" } else { "" };
        write!(
            text,
            ".section .text.f{i},\"ax\",%progbits\n.globl f{i}\n.type f{i},%function\nf{i}:\n {code}\n {load}\n"
        )
        .unwrap();
        for k in 1..RELOCATIONS {
            writeln!(text, " {call} f{}", (i * 7 + k * 13) % sections).unwrap();
        }
        writeln!(text, "1: {answer}{i}{register}\n ret\n .fill 260, 1, 0\n .size f{i}, .-f{i}").unwrap();
    }
    compile(&text, "s", &["-c"])
}

/// What `cc` makes of a source.
pub fn compile(text: &str, extension: &str, options: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join(format!("object.{extension}")), dir.path().join("object.o"));
    std::fs::write(&source, text).unwrap();
    let status = Command::new("cc").args(options).arg(&source).arg("-o").arg(&object).status().unwrap();
    assert!(status.success());
    std::fs::read(&object).unwrap()
}

/// `n` objects of which each refers to the next, and a last one: `link_NNNNNNNN(x) == x + 42`.
pub fn chain(n: usize) -> Vec<Vec<u8>> {
    let text = if cfg!(target_arch = "x86_64") {
        "link_00000000: lea link_00000001(%rip),%rax\n ret\n"
    } else {
        "link_00000000: adrp x0,link_00000001\n add x0,x0,:lo12:link_00000001\n ret\n"
    };
    let template = compile(&format!(".globl link_00000000\n.text\n{text}"), "s", &["-c"]);
    let place = |name: &str| template.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
    let (this, next) = (place("link_00000000"), place("link_00000001"));
    let link = |i: usize| {
        let mut bytes = template.clone();
        for (at, i) in [(this, i), (next, i + 1)] {
            let name = format!("link_{i:08}");
            bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        }
        bytes
    };
    let last = format!("int link_{n:08}(int x) {{ return x + 42; }}");
    (0..n).map(link).chain([compile(&last, "c", &["-c", "-O2", "-fPIC"])]).collect()
}
