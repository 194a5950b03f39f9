//! A survey of an object's sections, which tells the steps of preparation whether they have work.

use crate::elf::elf_abi::{
    SHF_ALLOC, SHF_COMPRESSED, SHT_CREL, SHT_NOBITS, SHT_NOTE, SHT_REL, SHT_RELA, SHT_SYMTAB, SHT_SYMTAB_SHNDX,
    SectionHeader,
};

/// Sections by their features, before validation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Survey {
    /// Compact relocations.
    pub crel: bool,
    pub compressed: bool,
    /// Relocations without addends, and relocations with addends.
    pub rel: bool,
    pub rela: bool,
    /// Index of the first `.eh_frame`, or 0.
    pub unwind_table: u32,
    /// `.init` or `.fini`.
    pub fragments: bool,
    /// GCC's intermediate code.
    pub lto: bool,
    /// Contents that are mapped.
    pub contents: bool,
    /// Index of the last symbol table, or 0.
    pub symbols: u32,
    /// A table of symbols' section indices, for more sections than 16 bits count.
    pub extended: bool,
    /// Whether two sections may have the same name, or a name is JITLink's own or cannot be read.
    pub odd_names: bool,
}

impl Survey {
    /// Surveys sections, each with its name: the beginning of one that is very long, empty if it cannot be read.
    pub(crate) fn of<'a>(sections: impl Iterator<Item = (u32, SectionHeader, &'a [u8])>) -> Self {
        let (mut has, mut seen) = (Self::default(), Seen::default());
        for (index, header, name) in sections {
            has.odd_names |= name.is_empty() || seen.has_seen(name) || is_reserved(name);
            match header.kind {
                SHT_CREL => has.crel = true,
                SHT_REL => has.rel = true,
                SHT_RELA => has.rela = true,
                SHT_SYMTAB => has.symbols = index,
                SHT_SYMTAB_SHNDX => has.extended = true,
                _ => has.fragments |= name == b".init" || name == b".fini",
            }
            if has.unwind_table == 0 && name == b".eh_frame" {
                has.unwind_table = index;
            }
            has.compressed |= header.is(SHF_COMPRESSED);
            if header.is(SHF_ALLOC) {
                has.contents |= header.size != 0 && !matches!(header.kind, SHT_NOTE | SHT_NOBITS);
            } else {
                has.lto |= name.starts_with(b".gnu.lto_");
            }
        }
        has
    }
}

/// Returns whether JITLink keeps a section of its own under this name.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(b"$__") || name == b".common"
}

/// A filter of names, by their lengths and three of their bytes. It seldom takes two different ones for the same.
#[derive(Default)]
struct Seen([u64; 16]);

impl Seen {
    /// Returns whether the same name may have come before.
    fn has_seen(&mut self, name: &[u8]) -> bool {
        let byte = |at: usize| name.get(at).map_or(0, |byte| usize::from(*byte));
        let (second, middle, last) = (byte(1), byte(name.len() / 2), byte(name.len().wrapping_sub(1)));
        let hash = name.len() + 31 * second + 97 * middle + 389 * last;
        let (word, bit) = (&mut self.0[hash / 64 % 16], 1 << (hash % 64));
        let seen = *word & bit != 0;
        *word |= bit;
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::elf_view::View;
    use crate::elf::testing::gcc;

    #[test]
    fn a_name_that_came_before_is_seen() {
        let text: String = ('a'..='z').cycle().take(80).collect();
        let mut seen = Seen::default();
        let names = || (0..80).flat_map(|len| (0..80 - len).step_by(7).map(move |from| (from, len)));
        for (from, len) in names() {
            seen.has_seen(&text.as_bytes()[from..from + len]);
        }
        for (from, len) in names() {
            assert!(seen.has_seen(&text.as_bytes()[from..from + len]), "{from} {len}");
        }
    }

    #[test]
    fn ordinary_names_are_seldom_odd() {
        let has_odd_names = |source: &str| {
            let bytes = gcc(&["-fno-common", "-ffunction-sections"], source);
            View::parse("test.o", &bytes, u64::MAX).unwrap().has.odd_names
        };
        let functions = ["f", "softmax", "rms_norm", "matmul_f16", "attention", "rotary_embedding", "gelu", "add"];
        let ordinary = "int zero; int one = 1; int f(int a) { return a + zero + one; }";
        let odd = functions.iter().filter(|name| has_odd_names(&ordinary.replace("f(", &format!("{name}("))));
        // In fact none, but compilers have sections of their own.
        assert!(odd.count() <= functions.len() / 2);
        for section in [".text,\\\"ax\\\",@progbits,unique,1", ".common,\\\"aw\\\"", "$__GOT,\\\"aw\\\""] {
            let odd = format!("{ordinary} __asm__(\".pushsection {section}; .quad 1; .popsection\");");
            assert!(has_odd_names(&odd), "{section}");
        }
    }
}
