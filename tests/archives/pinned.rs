//! Counts that are known, for what is found anew.
//!
//! A file of lines `ARCHIVE: COUNT OUTCOME`, and `ARCHIVE(MEMBER) REASON` for what GNU ld makes a shared object of and
//! is no image. Lines that begin with `#` are comments.

use std::collections::BTreeMap;

use crate::members::Archive;
use crate::outcome::Outcome;
use crate::worker::Findings;

type Counts = BTreeMap<(String, String), usize>;

/// Returns the lines that differ, with what was found. Of a part of the members (`!whole`) each has to be one of those
/// that are known of its archive.
///
/// # Errors
/// If the file cannot be read.
pub fn differences(
    text: &str,
    archives: &[Archive],
    findings: &[Findings],
    whole: bool,
) -> Result<Vec<String>, String> {
    let mut known = read(text)?;
    known.retain(|(archive, _), _| archives.iter().any(|of| of.name == *archive));
    let found = count(archives, findings);
    let mut lines = Vec::new();
    for ((archive, outcome), count) in &found {
        let pinned = known.get(&(archive.clone(), outcome.clone())).copied().unwrap_or(0);
        if *count > pinned || whole && *count != pinned {
            lines.push(format!("{archive}: {count} {outcome} (pinned: {pinned})"));
        }
    }
    for ((archive, outcome), pinned) in known.iter().filter(|(key, _)| whole && !found.contains_key(*key)) {
        lines.push(format!("{archive}: 0 {outcome} (pinned: {pinned})"));
    }
    Ok(lines)
}

/// Gives what became of members that may be refused its reason. Returns those that need not be.
pub fn excuse(text: &str, archives: &[Archive], findings: &mut [Findings], whole: bool) -> Vec<String> {
    let reasons: Vec<(&str, &str)> = lines(text).filter_map(excused).collect();
    let mut needed = vec![!whole; reasons.len()];
    for f in findings {
        let archive = &archives[f.archive];
        let name = format!("{}({})", archive.name, archive.members[f.member].name);
        let (Some(i), Outcome::Failed(words)) = (reasons.iter().position(|(of, _)| **of == name), &f.ours) else {
            continue;
        };
        if words.starts_with(TAKEN_BY_LD) {
            f.ours = Outcome::Refused(format!("{TAKEN_BY_LD}; but {}", reasons[i].1));
            needed[i] = true;
        }
    }
    let is_here = |name: &str| archives.iter().any(|archive| name.starts_with(&format!("{}(", archive.name)));
    let unneeded = reasons.iter().zip(needed).filter(|((name, _), needed)| !needed && is_here(name));
    unneeded.map(|((name, _), _)| format!("{name} needs no reason any more")).collect()
}

/// Begins what is said of a member that GNU ld makes a shared object of.
pub const TAKEN_BY_LD: &str = "ld -shared takes it";

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn excused(line: &str) -> Option<(&str, &str)> {
    line.split_once(' ').filter(|(name, _)| name.ends_with(')'))
}

fn read(text: &str) -> Result<Counts, String> {
    let line = |line: &str| {
        let (archive, rest) = line.split_once(": ")?;
        let (count, outcome) = rest.split_once(' ')?;
        Some(((archive.to_owned(), outcome.to_owned()), count.parse().ok()?))
    };
    lines(text)
        .filter(|line| excused(line).is_none())
        .map(|text| line(text).ok_or_else(|| format!("no line `ARCHIVE: COUNT OUTCOME`: {text}")))
        .collect()
}

fn count(archives: &[Archive], findings: &[Findings]) -> Counts {
    let mut counts = Counts::new();
    for f in findings {
        let archive = &archives[f.archive].name;
        let read_back = matches!(f.contents, Some(Ok(_))).then(|| "read back".to_owned());
        for outcome in [Some(f.ours.encode()), read_back].into_iter().flatten() {
            *counts.entry((archive.clone(), outcome)).or_default() += 1;
        }
    }
    counts
}
