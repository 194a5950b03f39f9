//! Names that a library is to export to the process.

use crate::live::resolve::symbol::Symbol;
use crate::runtime::Exported;

/// The names of waiting objects, before those are linked.
#[derive(Debug)]
pub(crate) struct ToExport {
    /// The objects' numbers.
    pub(crate) objects: Vec<u32>,
    pub(crate) names: NamesToExport,
    /// `None` where there are no names, or the dynamic loader cannot have them.
    pub(crate) exported: Option<Exported>,
}

/// Names and their symbols. There may be thousands, so that the names are one text.
#[derive(Debug, Default)]
pub(crate) struct NamesToExport {
    text: String,
    /// With the end of each one's name.
    symbols: Vec<(usize, Symbol)>,
}

impl NamesToExport {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Symbol)> {
        let mut start = 0;
        self.symbols.iter().map(move |(end, symbol)| {
            let name = self.text.get(start..*end).unwrap_or_default();
            start = *end;
            (name, symbol)
        })
    }
}

impl<'a> Extend<(&'a str, Symbol)> for NamesToExport {
    fn extend<I: IntoIterator<Item = (&'a str, Symbol)>>(&mut self, names: I) {
        for (name, symbol) in names {
            self.text.push_str(name);
            self.symbols.push((self.text.len(), symbol));
        }
    }
}
