//! Same-named sections with different flags.
//!
//! JITLink merges sections by name, and takes permissions and lifetime from the first. LLVM 19 and later refuse an
//! object whose same-named sections differ in permissions, LLVM 14 to 16 link it wrongly, and none compares ALLOC.

use hashbrown::{HashMap, HashSet};

use super::patch::{Patch, Value};
use super::plugin::ObjectReport;
use super::report::ChangeKind;
use crate::elf::elf_abi::{
    SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_WRITE, SHF_X86_64_LARGE, SHT_NOBITS, SHT_NULL, SectionHeader, field,
};
use crate::elf::elf_view::{View, flag_letters, in_message, lossy};
use crate::elf::survey::is_reserved;
use crate::{Error, ObjectError, Result, SectionConflicts};

pub(crate) const NAME: &str = "harmonizer";

/// The flags in which same-named sections must agree.
const COMPARED: u64 = SHF_WRITE | SHF_ALLOC | SHF_EXECINSTR | SHF_TLS | SHF_X86_64_LARGE;

/// Up to this many sections, comparing each name with each is cheaper than a hash table.
const FEW: u32 = 32;

/// All sections with one name.
struct Family<'a> {
    name: &'a [u8],
    members: Vec<(u32, SectionHeader)>,
}

impl Family<'_> {
    /// Returns whether its members are thread-local and differ in nothing.
    fn is_alike(&self) -> bool {
        let flags = |header: &SectionHeader| (header.flags & COMPARED, header.kind == SHT_NOBITS);
        let first = self.members.first().map(|(_, header)| flags(header));
        first.is_some_and(|first| first.0 & SHF_TLS != 0 && self.members.iter().all(|(_, h)| flags(h) == first))
    }
}

pub(crate) fn prepare(view: &View<'_>, policy: SectionConflicts, report: &mut ObjectReport) -> Result<Option<Patch>> {
    let families = families(view)?;
    if families.is_empty() {
        return Ok(None);
    }
    report.begin(NAME);
    let mut patch = Patch::new(view.bytes.len());
    let mut renames = Vec::new();
    for family in &families {
        if family.is_alike() {
            separate(family, &mut renames);
        } else if policy == SectionConflicts::Reject && !is_reserved(family.name) {
            reject(view, family, report)?;
        } else if policy == SectionConflicts::Harmonize && !is_reserved(family.name) || has_meaning(family.name) {
            unite(view, family, policy, &mut patch, report)?;
        } else {
            separate(family, &mut renames);
        }
    }
    if !renames.is_empty() {
        rename(view, &renames, &mut patch, report)?;
    }
    Ok((!patch.is_empty()).then_some(patch))
}

/// Returns whether the runtime, a debugger or the object itself finds the section by its name, so that it must keep it.
fn has_meaning(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 7] =
        [b".init_array", b".fini_array", b".preinit_array", b".ctors", b".dtors", b".debug", b".note"];
    const NAMES: [&[u8]; 3] = [b".eh_frame", b".tm_clone_table", b".comment"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || is_c_identifier(name)
}

/// Returns whether `__start_NAME` and `__stop_NAME` can refer to it.
pub(crate) fn is_c_identifier(name: &[u8]) -> bool {
    let letter = |b: &u8| b.is_ascii_alphabetic() || *b == b'_';
    name.first().is_some_and(letter) && name.iter().all(|b| letter(b) || b.is_ascii_digit())
}

/// Returns the traits that must agree. An empty section conflicts like any other, since JITLink compares it too.
fn traits_of(index: u32, header: &SectionHeader) -> (u64, bool) {
    // The linker tells thread-local sections apart by name, so each gets a name of its own.
    let own = if header.is(SHF_TLS) { u64::from(index) << 32 } else { 0 };
    (header.flags & COMPARED | own, header.kind == SHT_NOBITS)
}

/// Returns the families that need a change.
fn families<'a>(view: &View<'a>) -> Result<Vec<Family<'a>>> {
    let mut conflicting: Vec<&[u8]> = Vec::new();
    let mut clash = |name: &'a [u8]| {
        if !conflicting.contains(&name) {
            conflicting.push(name);
        }
    };
    if view.count() <= FEW {
        let mut seen: [(&[u8], (u64, bool)); FEW as usize] = [(&[], (0, false)); FEW as usize];
        let mut known = 0;
        for (section, header) in view.sections().filter(|(_, h)| h.kind != SHT_NULL) {
            let name = view.name_at(section, &header)?;
            match seen.iter().take(known).find(|(other, _)| *other == name) {
                Some((_, traits)) if *traits != traits_of(section, &header) => clash(name),
                Some(_) => {}
                None => {
                    if is_reserved(name) {
                        clash(name);
                    }
                    if let Some(slot) = seen.get_mut(known) {
                        *slot = (name, traits_of(section, &header));
                        known += 1;
                    }
                }
            }
        }
    } else {
        let mut seen = HashMap::with_capacity(view.count() as usize);
        let mut clashes = HashSet::new();
        for (section, header) in view.sections().filter(|(_, h)| h.kind != SHT_NULL) {
            let name = view.name_at(section, &header)?;
            let traits = traits_of(section, &header);
            if (*seen.entry(name).or_insert(traits) != traits || is_reserved(name)) && clashes.insert(name) {
                conflicting.push(name);
            }
        }
    }
    if conflicting.is_empty() {
        return Ok(Vec::new());
    }
    let index: HashMap<&[u8], usize> = conflicting.iter().enumerate().map(|(i, name)| (*name, i)).collect();
    let mut families: Vec<_> = conflicting.iter().map(|&name| Family { name, members: Vec::new() }).collect();
    for (section, header) in view.sections().filter(|(_, h)| h.kind != SHT_NULL) {
        if let Some(family) = index.get(view.name_at(section, &header)?).and_then(|&i| families.get_mut(i)) {
            family.members.push((section, header));
        }
    }
    Ok(families)
}

fn difference(family: &Family<'_>) -> String {
    let mut seen: Vec<String> = Vec::new();
    for (_, header) in &family.members {
        let letters = flag_letters(header.flags & COMPARED);
        let text = format!(
            "{}{}",
            if letters.is_empty() { "no flags" } else { &letters },
            if header.kind == SHT_NOBITS { " without contents" } else { "" }
        );
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen.join(" and ")
}

fn reject(view: &View<'_>, family: &Family<'_>, report: &mut ObjectReport) -> Result<()> {
    report.refuse(|| {
        Error::Object(ObjectError::SectionConflict {
            object: view.object.into(),
            section: in_message(family.name),
            count: family.members.len(),
            difference: difference(family),
        })
    })
}

/// Gives all members the same flags. Contents and zero-fill may share a name: they are separate blocks to JITLink.
fn unite(
    view: &View<'_>,
    family: &Family<'_>,
    policy: SectionConflicts,
    patch: &mut Patch,
    report: &mut ObjectReport,
) -> Result<()> {
    let union = family.members.iter().fold(0, |all, (_, header)| all | header.flags & COMPARED);
    let mut common = union;
    if policy == SectionConflicts::Harmonize && union & SHF_EXECINSTR != 0 && !has_meaning(family.name) {
        // The rewrite of CUTLASS#3162: code stays code, and data in it becomes read-only.
        common &= !SHF_WRITE;
    }
    // Sections with a meaningful name are united under every policy.
    let forbidden = SHF_WRITE | SHF_EXECINSTR;
    if common & forbidden == forbidden && common & SHF_ALLOC != 0 {
        return report.refuse(|| {
            Error::Object(ObjectError::WritableAndExecutable {
                object: view.object.into(),
                section: in_message(family.name),
            })
        });
    }
    for (index, header) in &family.members {
        let flags = header.flags & !COMPARED | common;
        if flags != header.flags {
            patch.write(view.header_field(*index, field::SH_FLAGS), Value::U64(flags));
            report.change(
                Some((*index, &lossy(family.name))),
                ChangeKind::Flags { from: flag_letters(header.flags), to: flag_letters(flags) },
            );
        }
    }
    Ok(())
}

/// Marks each section that differs from the first of its name for renaming; sections that agree get the same new name.
fn separate<'a>(family: &Family<'a>, renames: &mut Vec<(u32, &'a [u8], usize)>) {
    // A section with a name of JITLink's own must give it up.
    let mut groups: HashMap<(u64, bool), usize> = HashMap::new();
    if is_reserved(family.name) {
        groups.insert((u64::MAX, false), 0);
    }
    for (index, header) in &family.members {
        let next = groups.len();
        let group = *groups.entry(traits_of(*index, header)).or_insert(next);
        if group > 0 {
            renames.push((*index, family.name, group));
        }
    }
}

/// A name, and the number of the group that gets a new one.
type Fresh<'a> = (&'a [u8], usize);

/// Writes the new names behind a copy of the section-name table. The copy keeps the old contents as a prefix for the
/// other sections, and for symbols if they share the table.
fn rename(
    view: &View<'_>,
    renames: &[(u32, &[u8], usize)],
    patch: &mut Patch,
    report: &mut ObjectReport,
) -> Result<()> {
    if view.names_index == 0 {
        return Err(view.malformed(
            None,
            None,
            "sections that differ have no names, and there is no table for new ones",
        ));
    }
    let mut existing = HashSet::new();
    for (_, header) in view.sections() {
        existing.insert(view.name_of(&header)?);
    }
    let mut taken: HashSet<Vec<u8>> = HashSet::new();
    let mut strings: Vec<u8> = Vec::new();
    // (name, group) -> the new name and where it begins in `strings`.
    let mut fresh: HashMap<Fresh<'_>, (Vec<u8>, u32)> = HashMap::new();
    let mut targets: HashMap<u32, Fresh<'_>> = HashMap::new();
    // The first untried number for a name.
    let mut untried: HashMap<&[u8], usize> = HashMap::new();
    let base = view.names().len();
    let offset_of = |strings: &[u8]| {
        u32::try_from(base + strings.len())
            .map_err(|_| view.malformed(None, None, "the section-name table has no room for new names"))
    };
    for (index, name, group) in renames {
        if !fresh.contains_key(&(*name, *group)) {
            let untried = untried.entry(name).or_default();
            let mut number = (*untried).max(*group);
            let new = loop {
                let mut candidate = name.to_vec();
                candidate.extend_from_slice(format!(".slabjit.{number}").as_bytes());
                number += 1;
                if !existing.contains(candidate.as_slice()) && taken.insert(candidate.clone()) {
                    break candidate;
                }
            };
            *untried = number;
            let offset = offset_of(&strings)?;
            strings.extend_from_slice(&new);
            strings.push(0);
            fresh.insert((name, *group), (new, offset));
        }
        let Some((new, offset)) = fresh.get(&(*name, *group)) else { continue };
        patch.write(view.header_field(*index, field::SH_NAME), Value::U32(*offset));
        report.change(Some((*index, &lossy(name))), ChangeKind::Renamed { to: lossy(new).into_owned() });
        targets.insert(*index, (name, *group));
    }
    // A relocation section is named after the section that it patches.
    let mut prefixed: HashMap<Vec<u8>, u32> = HashMap::new();
    for (index, header) in view.sections().filter(|(i, h)| h.is_relocation() && !targets.contains_key(i)) {
        let Some((old, group)) = targets.get(&header.info) else { continue };
        let Some((new, _)) = fresh.get(&(*old, *group)) else { continue };
        let name = view.name_of(&header)?;
        let Some(prefix) = name.strip_suffix(*old).filter(|prefix| !prefix.is_empty()) else { continue };
        let renamed = [prefix, new].concat();
        let offset = match prefixed.get(&renamed) {
            Some(offset) => *offset,
            // Another section has this name and may differ.
            None if existing.contains(renamed.as_slice()) || taken.contains(&renamed) => continue,
            None => {
                let offset = offset_of(&strings)?;
                strings.extend_from_slice(&renamed);
                strings.push(0);
                prefixed.insert(renamed.clone(), offset);
                offset
            }
        };
        patch.write(view.header_field(index, field::SH_NAME), Value::U32(offset));
        report.change(Some((index, &lossy(name))), ChangeKind::Renamed { to: lossy(&renamed).into_owned() });
    }
    let table = patch.begin();
    patch.extend(view.names());
    patch.extend(&strings);
    patch.write(view.header_field(view.names_index, field::SH_OFFSET), Value::U64(table));
    patch.write(view.header_field(view.names_index, field::SH_SIZE), Value::U64((base + strings.len()) as u64));
    Ok(())
}
