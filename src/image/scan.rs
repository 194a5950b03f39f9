//! What the references of an image want: GOT entries, stubs, and relocations by the dynamic loader.

use hashbrown::HashMap;

use super::arrays::{Arrays, Call};
use super::frames::Frames;
use super::input::{Field, Input};
use super::reference::{Slot, Use, advice, decide};
use super::symbols::{Referred, Symbols, Target};
use crate::elf::in_message;
use crate::elf::link_tables::LinkTables;
use crate::elf::relocations::DynamicKind;
use crate::{Error, ImageError, Result};

/// A word that the dynamic loader relocates.
#[derive(Debug, Clone, Copy)]
pub(super) enum Word {
    /// Of a section of an object.
    Section {
        object: u32,
        section: u32,
        offset: u64,
    },
    /// Of the unwind table: a record and the offset in it.
    Frame(usize, u64),
    /// Of the GOT, by its position.
    Slot(u64),
    /// Of those that resolvers fill.
    Resolved(u64),
    /// An initialiser, by its position.
    Initialiser(usize),
    Finaliser(usize),
}

/// A relocation by the dynamic loader.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dynamic {
    pub(super) word: Word,
    pub(super) kind: DynamicKind,
    /// The target; `None` for the image itself.
    pub(super) target: Option<Target>,
    pub(super) addend: i64,
    /// Whether it is in the table of those without addends.
    pub(super) is_relr: bool,
}

impl Dynamic {
    /// Returns the global symbol that it imports.
    pub(super) fn import(&self) -> Option<u32> {
        match self.target {
            Some(Target::Import(global)) => Some(global),
            _ => None,
        }
    }
}

/// What the references want.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Entries of the GOT, with their positions in words.
    pub(super) slots: Vec<(Slot, u64)>,
    by_slot: HashMap<Slot, u64>,
    pub(super) slot_words: u64,
    /// Words of those that resolvers fill, which are apart: code of the image may run before.
    pub(super) resolved_words: u64,
    /// Targets of stubs.
    pub(super) stubs: Vec<Target>,
    by_stub: HashMap<Target, u32>,
    pub(super) dynamic: Vec<Dynamic>,
    /// By object and section: the dynamic loader writes there.
    relocated: Vec<Vec<bool>>,
    pub(super) frames_are_relocated: bool,
    /// Whether code wants variables at a fixed distance from the thread pointer.
    pub(super) is_static: bool,
    /// Whether something is counted from the GOT.
    pub(super) wants_got: bool,
}

/// The place of a reference, for messages.
pub(super) struct Site<'a> {
    pub(super) input: &'a Input,
    pub(super) section: u32,
    pub(super) field: Field,
    pub(super) referred: Referred<'a>,
}

impl Site<'_> {
    fn place(&self) -> (String, String, u64, String) {
        let section = self.input.index.section_name(self.section).to_owned();
        (self.input.name.to_string(), section, self.field.offset, in_message(self.referred.name.as_bytes()))
    }

    fn not_position_independent(&self) -> Error {
        let (object, section, offset, symbol) = self.place();
        let (relocation, advice) = (self.field.kind.name, advice(self.field.kind));
        Error::Image(ImageError::NotPositionIndependent { object, section, offset, relocation, symbol, advice })
    }

    pub(super) fn out_of_range(&self) -> Error {
        let (object, section, offset, symbol) = self.place();
        Error::Image(ImageError::OutOfRange { object, section, offset, relocation: self.field.kind.name, symbol })
    }

    fn not_linked(&self, target: (&Input, u32)) -> Error {
        let (object, section, offset, symbol) = self.place();
        let (of, dead) = target;
        let is_group = of.dead.get(dead as usize).copied().unwrap_or(false);
        let target = of.index.section_name(dead).to_owned();
        Error::Image(ImageError::NotLinked { object, section, offset, symbol, target, is_group })
    }
}

impl Scan {
    pub(super) fn new<'a>(
        (inputs, tables): (&'a [Input], &[Option<LinkTables<'a>>]),
        symbols: &Symbols<'a>,
        frames: &Frames,
        arrays: &Arrays,
    ) -> Result<Self> {
        let mut scan = Self::default();
        let tables_of = |object: u32| tables.get(object as usize).and_then(Option::as_ref);
        for (object, input) in (0..).zip(inputs) {
            scan.relocated.push(vec![false; input.index.sections.len()]);
            let Some(tables) = tables_of(object) else { continue };
            for section in (0..input.index.sections.len() as u32).filter(|section| input.is_placed(*section)) {
                for field in input.fields(tables, section) {
                    let word = Word::Section { object, section, offset: field.offset };
                    scan.add(inputs, symbols, (object, tables), (section, field), word)?;
                }
            }
        }
        for (i, record) in frames.records.iter().enumerate() {
            let Some(tables) = tables_of(record.object) else { continue };
            for field in &record.fields {
                let word = Word::Frame(i, field.offset - record.start);
                scan.add(inputs, symbols, (record.object, tables), (record.section, *field), word)?;
            }
        }
        for (calls, is_last) in [(&arrays.initialisers, false), (&arrays.finalisers, true)] {
            for (i, call) in calls.iter().enumerate() {
                let word = if is_last { Word::Finaliser(i) } else { Word::Initialiser(i) };
                match *call {
                    Call::Pointer { object, section, field } => {
                        let Some(tables) = tables_of(object) else { continue };
                        scan.add(inputs, symbols, (object, tables), (section, field), word)?;
                    }
                    Call::Function(target) => scan.push_dynamic(word, DynamicKind::Relative, target, 0),
                }
            }
        }
        for helper in &symbols.helpers {
            scan.slot(Slot::Address(Target::Import(helper.import)));
        }
        if symbols.dso_handle == Some(Target::DsoHandle) {
            scan.slot(Slot::Handle);
        }
        scan.fill_slots();
        Ok(scan)
    }

    fn add<'a>(
        &mut self,
        inputs: &'a [Input],
        symbols: &Symbols<'a>,
        (object, tables): (u32, &LinkTables<'a>),
        (section, field): (u32, Field),
        word: Word,
    ) -> Result<()> {
        let Some(input) = inputs.get(object as usize) else { return Ok(()) };
        let referred = symbols.referred((object, input), tables, &field);
        let target = referred.target;
        let site = Site { input, section, field, referred };
        let decided = decide(field.kind, target).ok_or_else(|| site.not_position_independent())?;
        if let Target::Section { object, section, .. } | Target::Indirect { object, section, .. } = target
            && let Some(of) = inputs.get(object as usize)
            && decided != Use::Nothing
            && !of.is_placed(section)
        {
            return Err(site.not_linked((of, section)));
        }
        match decided {
            Use::Nothing | Use::Size | Use::InBlock => {}
            Use::Got => self.wants_got = true,
            Use::Address | Use::Stub => {
                self.wants_got |= target == Target::Got || field.kind.is_from_got();
                if decided == Use::Stub {
                    self.stub(target);
                }
            }
            Use::Entry(slot) => {
                self.wants_got |= field.kind.is_from_got();
                self.slot(slot);
            }
            Use::Dynamic(kind) => {
                let may_write = |section: &crate::elf::Section| section.mapped().is_some_and(|(code, _)| !code);
                if !input.section(section).is_some_and(may_write) {
                    return Err(site.not_position_independent());
                }
                match word {
                    Word::Frame(..) => self.frames_are_relocated = true,
                    _ => {
                        let flags = self.relocated.get_mut(object as usize).and_then(|of| of.get_mut(section as usize));
                        if let Some(flag) = flags {
                            *flag = true;
                        }
                    }
                }
                if let Target::Indirect { .. } = target {
                    self.stub(target);
                }
                self.is_static |= kind == DynamicKind::Distance;
                self.push_dynamic(word, kind, target, referred.addend);
            }
        }
        Ok(())
    }

    /// Adds a relocation by the dynamic loader. The image's own module has no name.
    fn push_dynamic(&mut self, word: Word, kind: DynamicKind, target: Target, addend: i64) {
        let is_import = matches!(target, Target::Import(_));
        let target = (is_import || kind != DynamicKind::Module).then_some(target);
        self.dynamic.push(Dynamic { word, kind, target, addend, is_relr: false });
    }

    fn slot(&mut self, slot: Slot) {
        if let Slot::Address(target @ Target::Indirect { .. }) = slot {
            self.stub(target);
        }
        let words = if matches!(slot, Slot::Resolved(_)) { &mut self.resolved_words } else { &mut self.slot_words };
        self.by_slot.entry(slot).or_insert_with(|| {
            let at = *words;
            *words += slot.words();
            self.slots.push((slot, at));
            at
        });
    }

    fn stub(&mut self, target: Target) {
        if self.by_stub.contains_key(&target) {
            return;
        }
        self.by_stub.insert(target, self.stubs.len() as u32);
        self.stubs.push(target);
        self.slot(Self::slot_of_stub(target));
    }

    /// Returns the GOT entry that a stub jumps through.
    pub(super) fn slot_of_stub(target: Target) -> Slot {
        match target {
            Target::Indirect { .. } => Slot::Resolved(target),
            _ => Slot::Address(target),
        }
    }

    /// Returns the position of a GOT entry, in words.
    pub(super) fn position(&self, slot: Slot) -> Option<u64> {
        self.by_slot.get(&slot).copied()
    }

    /// Returns the imported symbols that are thread-local.
    pub(super) fn variables(&self) -> Vec<u32> {
        let of_variables = self.dynamic.iter().filter(|dynamic| dynamic.kind.is_of_variable());
        let mut all: Vec<u32> = of_variables.filter_map(Dynamic::import).collect();
        all.sort_unstable();
        all
    }

    /// Returns the global symbols that are imported, some more than once.
    pub(super) fn imports(&self) -> impl Iterator<Item = u32> {
        self.dynamic.iter().filter_map(Dynamic::import)
    }

    /// Returns the number of a target's stub.
    pub(super) fn stub_of(&self, target: Target) -> Option<u32> {
        self.by_stub.get(&target).copied()
    }

    /// Returns whether the dynamic loader writes into a section.
    pub(super) fn is_relocated(&self, object: u32, section: u32) -> bool {
        self.relocated.get(object as usize).and_then(|of| of.get(section as usize)).copied().unwrap_or(false)
    }

    /// Adds the relocations of the GOT.
    fn fill_slots(&mut self) {
        for (slot, at) in self.slots.clone() {
            let import = |target| matches!(target, Target::Import(_));
            match slot {
                Slot::Address(Target::Absolute(_)) => {}
                Slot::Address(target) => {
                    let kind = if import(target) { DynamicKind::Slot } else { DynamicKind::Relative };
                    self.push_dynamic(Word::Slot(at), kind, target, 0);
                }
                Slot::Handle => {
                    self.push_dynamic(Word::Slot(at), DynamicKind::Relative, Target::DsoHandle, 0);
                }
                Slot::Resolved(target) => self.push_dynamic(Word::Resolved(at), DynamicKind::Indirect, target, 0),
                Slot::Variable(target) => {
                    self.push_dynamic(Word::Slot(at), DynamicKind::Module, target, 0);
                    if import(target) {
                        self.push_dynamic(Word::Slot(at + 1), DynamicKind::Offset, target, 0);
                    }
                }
                Slot::Block => self.dynamic.push(Dynamic {
                    word: Word::Slot(at),
                    kind: DynamicKind::Module,
                    target: None,
                    addend: 0,
                    is_relr: false,
                }),
                Slot::Distance(target) => {
                    self.is_static = true;
                    self.push_dynamic(Word::Slot(at), DynamicKind::Distance, target, 0);
                }
                Slot::Descriptor(target) => self.push_dynamic(Word::Slot(at), DynamicKind::Descriptor, target, 0),
            }
        }
    }
}
