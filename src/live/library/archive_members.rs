//! The archives of a library, and their members that define names undefined in the rest of the library.

use std::sync::Arc;

use hashbrown::HashTable;

use crate::Result;
use crate::elf::{Archive, MemberId};
use crate::live::resolve::prepared::{Pending, PreparedObject};
use crate::live::resolve::symbol::hash;
use crate::live::resolve::symbol_table::SymbolTable;

/// Archives in the order in which they were added.
#[derive(Default)]
pub(super) struct Archives {
    sources: Vec<Source>,
    /// The entries of their indices, one for each name of an archive.
    entries: Vec<Entry>,
    /// Positions by name: the first entry whose member may not have been taken yet.
    names: HashTable<u32>,
    /// Imports that untaken members define, and the objects that have them.
    open: Vec<(Arc<PreparedObject>, u32)>,
    /// Objects with numbers below this one have their imports in `open`, or need no member.
    searched: u32,
    /// The number of calls of [`wanted`](Self::wanted).
    rounds: u32,
}

struct Source {
    archive: Arc<Archive>,
    /// For each member the round in which it was wanted last, or [`TAKEN`].
    members: Vec<u32>,
}

const TAKEN: u32 = u32::MAX;

struct Entry {
    source: u32,
    /// Position in the archive's index.
    symbol: u32,
    /// The entry of the same name in the next archive that has it.
    next: Option<u32>,
    /// The last entry of the name, valid in its first.
    last: u32,
}

/// A member of one of the archives.
#[derive(Clone)]
pub(super) struct MemberRef {
    pub(super) archive: Arc<Archive>,
    pub(super) member: MemberId,
    source: u32,
}

impl Archives {
    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    pub(super) fn add(&mut self, archive: Arc<Archive>) {
        let source = self.sources.len() as u32;
        let members = vec![0; archive.members()];
        self.sources.push(Source { archive: Arc::clone(&archive), members });
        // The archive may define names that were undefined before.
        self.searched = 0;
        let Self { sources, entries, names, .. } = self;
        names.reserve(archive.symbols().len(), |at| hash(name(sources, entries, *at)));
        for (symbol, (text, _)) in (0..).zip(archive.symbols()) {
            let (key, at) = (hash(text), entries.len() as u32);
            entries.push(Entry { source, symbol, next: None, last: at });
            let Some(&first) = names.find(key, |first| name(sources, entries, *first) == text) else {
                names.insert_unique(key, at, |at| hash(name(sources, entries, *at)));
                continue;
            };
            let last = entries.get(first as usize).map_or(first, |first| first.last);
            match entries.get_mut(last as usize) {
                // The first one of an archive counts.
                Some(before) if before.source == source => {
                    entries.pop();
                    continue;
                }
                Some(before) => before.next = Some(at),
                None => {}
            }
            if let Some(first) = entries.get_mut(first as usize) {
                first.last = at;
            }
        }
    }

    /// Returns the untaken member that defines a name: an index may be wrong about the definitions of members.
    pub(super) fn defining(&mut self, wanted: &str) -> Option<MemberRef> {
        let Self { sources, entries, names, .. } = self;
        let found = names.find_entry(hash(wanted), |first| name(sources, entries, *first) == wanted);
        let mut slot = found.ok()?;
        let last = entries.get(*slot.get() as usize)?.last;
        loop {
            let at = *slot.get();
            let entry = entries.get_mut(at as usize)?;
            // The next call begins at this entry.
            entry.last = last;
            let source = sources.get(entry.source as usize)?;
            let (_, member) = source.archive.symbol(entry.symbol);
            if source.members.get(member.position()).is_some_and(|state| *state != TAKEN) {
                return Some(MemberRef { archive: Arc::clone(&source.archive), member, source: entry.source });
            }
            // A taken member stays taken: it is not looked at again.
            match entry.next {
                Some(next) => *slot.get_mut() = next,
                None => {
                    slot.remove();
                    return None;
                }
            }
        }
    }

    fn state(&mut self, member: &MemberRef) -> Option<&mut u32> {
        self.sources.get_mut(member.source as usize)?.members.get_mut(member.member.position())
    }

    pub(super) fn has_taken(&mut self, member: &MemberRef) -> bool {
        self.state(member).is_none_or(|state| *state == TAKEN)
    }

    pub(super) fn take(&mut self, member: &MemberRef) {
        if let Some(state) = self.state(member) {
            *state = TAKEN;
        }
    }

    /// Returns names and bytes of the taken members, archive by archive.
    #[cfg(feature = "cli")]
    pub(super) fn taken_members(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut all = Vec::new();
        for Source { archive, members } in &self.sources {
            all.extend(archive.copies(|id| members.get(id.position()) == Some(&TAKEN))?);
        }
        Ok(all)
    }

    /// Returns the members that define imports of waiting objects missing in `names`, each once. Each object below the
    /// number `next` is looked at once; its imports that a member defines are looked at until the member is there.
    pub(super) fn wanted(&mut self, pending: &[Pending], next: u32, names: &SymbolTable) -> Vec<MemberRef> {
        if self.is_empty() {
            return Vec::new();
        }
        let new = pending.partition_point(|(number, _)| *number < self.searched);
        if self.searched == 0 {
            self.open.clear();
        }
        for (_, object) in pending.iter().skip(new) {
            // A weak reference takes no member out of an archive (gABI, Symbol Table).
            let imports = object.index.imports.iter().zip(0..).filter(|(import, _)| !import.weak);
            let imports = imports.filter(|(import, _)| names.get(object.index.name(import.name)).is_none());
            self.open.extend(imports.map(|(_, position)| (Arc::clone(object), position)));
        }
        self.searched = next;
        self.rounds = self.rounds.wrapping_add(1) % TAKEN;
        let mut wanted = Vec::new();
        let mut open = std::mem::take(&mut self.open);
        open.retain(|(object, position)| {
            let Some(import) = object.index.imports.get(*position as usize) else { return false };
            let name = object.index.name(import.name);
            let Some(member) = names.get(name).is_none().then(|| self.defining(name)).flatten() else { return false };
            let round = self.rounds;
            if let Some(state) = self.state(&member).filter(|state| **state != round) {
                *state = round;
                wanted.push(member);
            }
            true
        });
        self.open = open;
        wanted
    }
}

impl MemberRef {
    /// Reads its name, such as `libx.a(foo.o)`, and bytes.
    pub(super) fn read(&self) -> Result<(&str, std::borrow::Cow<'_, [u8]>)> {
        self.archive.member(self.member)
    }

    /// Returns how many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        self.archive.member_bytes(self.member)
    }
}

fn name<'a>(sources: &'a [Source], entries: &[Entry], at: u32) -> &'a str {
    let named = |entry: &Entry| Some(sources.get(entry.source as usize)?.archive.symbol(entry.symbol).0);
    entries.get(at as usize).and_then(named).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::testing::{X86, gcc, prepare, run};
    use crate::live::resolve::object_bytes::SpareBuffer;
    use crate::read::Contents;

    fn object(source: &str) -> PreparedObject {
        let bytes = gcc(&[], source);
        let prepared = prepare(X86, &bytes).unwrap();
        let (index, bytes) = (prepared.index, SpareBuffer::new(0).own(prepared.bytes));
        PreparedObject::new("user.o".into(), bytes, index)
    }

    /// Makes an archive, and replaces a name of its index, if one is given.
    fn archive(members: &[(&str, &str)], lie: Option<[&str; 2]>) -> Arc<Archive> {
        let dir = tempfile::tempdir().unwrap();
        let mut arguments = vec!["rcs".to_owned(), "lib.a".to_owned()];
        for (name, source) in members {
            std::fs::write(dir.path().join(name), gcc(&[], source)).unwrap();
            arguments.push((*name).to_owned());
        }
        run(dir.path(), "ar", &arguments);
        let mut bytes = std::fs::read(dir.path().join("lib.a")).unwrap();
        if let Some([from, to]) = lie {
            // The index comes first.
            let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        }
        Arc::new(Archive::parse("lib.a", Contents::Memory(bytes.into())).unwrap())
    }

    fn pending(objects: Vec<PreparedObject>) -> Vec<Pending> {
        (0..).zip(objects).map(|(number, object)| (number, Arc::new(object))).collect()
    }

    fn found(members: &[MemberRef]) -> Vec<&str> {
        members.iter().map(|member| member.read().unwrap().0).collect()
    }

    #[test]
    fn the_first_archive_counts_until_its_member_is_taken() {
        let mut archives = Archives::default();
        assert!(archives.is_empty() && archives.defining("f").is_none());
        let one = archive(&[("a.o", "int f(void) { return 1; } int g;"), ("b.o", "int f(void) { return 2; }")], None);
        let two = archive(&[("c.o", "int f(void) { return 3; }"), ("d.o", "int h;")], None);
        archives.add(Arc::clone(&one));
        archives.add(Arc::clone(&two));
        let first = archives.defining("f").unwrap();
        assert!(Arc::ptr_eq(&first.archive, &one) && !archives.has_taken(&first));
        assert_eq!(found(&[first.clone(), archives.defining("g").unwrap()]), ["lib.a(a.o)"; 2]);
        archives.take(&first);
        assert!(archives.has_taken(&first) && archives.defining("g").is_none());
        // Of one archive, the first member that is said to define a name counts, as with a linker: not `b.o`.
        let second = archives.defining("f").unwrap();
        assert!(Arc::ptr_eq(&second.archive, &two));
        archives.take(&second);
        assert!(archives.defining("f").is_none() && archives.defining("f").is_none());
        assert!(archives.defining("h").is_some() && archives.defining("missing").is_none());
        // A later archive has the name again.
        archives.add(archive(&[("e.o", "int f(void) { return 4; }")], None));
        assert_eq!(found(&[archives.defining("f").unwrap()]), ["lib.a(e.o)"]);
    }

    #[test]
    fn each_archive_that_has_a_name_gets_its_turn() {
        let mut archives = Archives::default();
        let add = |archives: &mut Archives, name: &str| archives.add(archive(&[(name, "int f;")], None));
        let take = |archives: &mut Archives| {
            let member = archives.defining("f").unwrap();
            archives.take(&member);
            member.read().unwrap().0.to_owned()
        };
        ["a.o", "b.o", "c.o"].iter().for_each(|name| add(&mut archives, name));
        assert_eq!(take(&mut archives), "lib.a(a.o)");
        // The first untaken member is another one now.
        assert!(archives.defining("f").is_some());
        add(&mut archives, "d.o");
        let rest = ["b.o", "c.o", "d.o"].map(|_| take(&mut archives));
        assert_eq!(rest, ["lib.a(b.o)", "lib.a(c.o)", "lib.a(d.o)"]);
        assert!(archives.defining("f").is_none());
    }

    #[test]
    fn each_member_is_wanted_once_and_by_no_weak_reference() {
        let mut archives = Archives::default();
        archives.add(archive(&[("other.o", "int other;")], None));
        let objects = pending(vec![
            object("int f(void); int g(void); int t(void) { return f() + g(); }"),
            object("int f(void); __attribute__((weak)) int w(void); int u(void) { return f() + w(); }"),
        ]);
        assert!(archives.wanted(&objects, 2, &SymbolTable::default()).is_empty());
        // Added after the objects: they are looked at again.
        let both = "int f(void) { return 1; } int g(void) { return 2; }";
        archives.add(archive(&[("weak.o", "int w(void) { return 1; }"), ("both.o", both)], None));
        let wanted = archives.wanted(&objects, 2, &SymbolTable::default());
        assert_eq!(found(&wanted), ["lib.a(both.o)"]);
        // Each call returns the member until it is there.
        assert_eq!(archives.wanted(&objects, 2, &SymbolTable::default()).len(), 1);
        archives.take(&wanted[0]);
        assert!(archives.wanted(&objects, 2, &SymbolTable::default()).is_empty());
        assert!(archives.open.is_empty(), "nothing is looked at again");
    }

    #[test]
    fn an_index_that_lies_leads_to_the_next_archive() {
        let mut archives = Archives::default();
        archives.add(archive(&[("lies.o", "int honest;")], Some(["honest", "wanted"])));
        archives.add(archive(&[("true.o", "int wanted;")], None));
        let objects = pending(vec![object("extern int wanted; int t(void) { return wanted; }")]);
        for expected in ["lib.a(lies.o)", "lib.a(true.o)"] {
            let wanted = archives.wanted(&objects, 1, &SymbolTable::default());
            assert_eq!(found(&wanted), [expected]);
            archives.take(&wanted[0]);
        }
        assert!(archives.wanted(&objects, 1, &SymbolTable::default()).is_empty());
    }

    #[test]
    fn only_new_objects_are_looked_at() {
        let mut archives = Archives::default();
        archives.add(archive(&[("f.o", "int f;"), ("g.o", "int g;")], None));
        let mut objects = pending(vec![object("extern int missing; int t(void) { return missing; }")]);
        assert!(archives.wanted(&objects, 1, &SymbolTable::default()).is_empty());
        assert!(archives.open.is_empty());
        // Objects are looked at once.
        objects[0] = (0, Arc::new(object("extern int f; int t(void) { return f; }")));
        objects.push((1, Arc::new(object("extern int g; int u(void) { return g; }"))));
        assert_eq!(found(&archives.wanted(&objects, 2, &SymbolTable::default())), ["lib.a(g.o)"]);
        assert_eq!(archives.open.len(), 1);
    }
}
