//! What is printed.

use std::collections::BTreeMap;

use crate::contents::Verified;
use crate::members::Archive;
use crate::outcome::{Outcome, general};
use crate::worker::Findings;

#[derive(Default)]
struct Row {
    members: usize,
    linked: usize,
    refused: usize,
    failed: usize,
    stock_linked: usize,
    stock_failed: usize,
    never_asked: usize,
    only_stock: usize,
    compared: usize,
    wrong: usize,
}

impl Row {
    fn add(&mut self, f: &Findings) {
        self.members += 1;
        match f.ours {
            Outcome::Linked => self.linked += 1,
            Outcome::Refused(_) => self.refused += 1,
            Outcome::Failed(_) | Outcome::NeverAsked => self.failed += 1,
        }
        match f.stock {
            Some(Outcome::Linked) => self.stock_linked += 1,
            Some(Outcome::NeverAsked) => self.never_asked += 1,
            Some(_) => self.stock_failed += 1,
            None => {}
        }
        self.only_stock += usize::from(only_stock(f));
        self.compared += usize::from(f.contents.is_some());
        self.wrong += usize::from(matches!(f.contents, Some(Err(_))));
    }

    fn print(&self, name: &str) {
        let Self { members, linked, refused, failed, stock_linked, stock_failed, never_asked, .. } = self;
        let Self { only_stock, compared, wrong, .. } = self;
        println!(
            "{name:<28} {members:>7} {linked:>7} {refused:>7} {failed:>6} {stock_linked:>9} {stock_failed:>7} \
             {never_asked:>6} {only_stock:>10} {compared:>9} {wrong:>5}"
        );
    }
}

/// Linked by stock and not here.
fn only_stock(f: &Findings) -> bool {
    f.stock == Some(Outcome::Linked) && f.ours != Outcome::Linked
}

/// Prints everything; true if all is well. `differences`: from what is known.
pub fn print(archives: &[Archive], findings: &[Findings], list: bool, differences: &[String]) -> bool {
    let name = |f: &Findings| format!("{}({})", archives[f.archive].name, archives[f.archive].members[f.member].name);
    println!("LLVM {}, {}", slabjit::llvm_version_string(), std::env::consts::ARCH);
    println!(
        "{:<28} {:>7} {:>7} {:>7} {:>6} {:>9} {:>7} {:>6} {:>10} {:>9} {:>5}",
        "archive",
        "members",
        "linked",
        "refused",
        "failed",
        "stock:",
        "failed",
        "never",
        "only stock",
        "contents:",
        "wrong"
    );
    println!("{:<28} {:>7} {:>7} {:>7} {:>6} {:>9} {:>7} {:>6}", "", "", "", "", "", "linked", "", "asked");
    let mut total = Row::default();
    for (i, archive) in archives.iter().enumerate() {
        let mut row = Row::default();
        findings.iter().filter(|f| f.archive == i).for_each(|f| row.add(f));
        row.print(&archive.name);
    }
    findings.iter().for_each(|f| total.add(f));
    total.print("all");

    causes(
        "refused here",
        findings.iter().filter_map(|f| if let Outcome::Refused(c) = &f.ours { Some((c, f)) } else { None }),
        name,
    );
    causes(
        "failed here",
        findings.iter().filter_map(|f| if let Outcome::Failed(c) = &f.ours { Some((c, f)) } else { None }),
        name,
    );
    let stock = |f: &'_ Findings| if let Some(Outcome::Failed(c)) = &f.stock { Some(c.clone()) } else { None };
    let of_stock: Vec<_> = findings.iter().filter_map(|f| Some((stock(f)?, f))).collect();
    causes("failed with stock", of_stock.iter().map(|(c, f)| (c, *f)), name);

    section(
        "linked by stock and not here",
        findings.iter().filter(|f| only_stock(f)).map(|f| format!("{}: {}", name(f), f.ours.encode())),
    );
    let wrong = |f: &Findings| if let Some(Err(e)) = &f.contents { Some(format!("{}: {e}", name(f))) } else { None };
    section("contents that are wrong", findings.iter().filter_map(wrong));
    section("counts that are not those that are pinned", differences.iter().cloned());
    println!();
    for (side, both) in [("on both sides", true), ("here alone", false)] {
        let of_side = findings.iter().filter(|f| (f.stock == Some(Outcome::Linked)) == both);
        let verified = of_side.filter_map(|f| f.contents.as_ref()?.as_ref().ok());
        let (count, sum) = verified.fold((0, Verified::default()), |(n, a), b| (n + 1, a + *b));
        let Verified { sections, bytes, fields, unread } = sum;
        println!(
            "verified in memory, {side}: {count} objects, {sections} sections, {bytes} bytes, {fields} fields; {unread} fields not \
             understood"
        );
    }
    if list {
        section(
            "all",
            findings.iter().map(|f| {
                let stock = f.stock.as_ref().map(Outcome::encode).unwrap_or_default();
                format!("{}: {}; stock {stock}", name(f), f.ours.encode())
            }),
        );
    }
    let is_bad = |f: &Findings| {
        matches!(f.ours, Outcome::Failed(_) | Outcome::NeverAsked)
            || f.ours.is_ours_to_link()
            || only_stock(f)
            || matches!(f.contents, Some(Err(_)))
    };
    let bad = findings.iter().filter(|f| is_bad(f)).count();
    let is_good = bad == 0 && differences.is_empty();
    let verdict = if is_good { "ok" } else { "FAILED" };
    let ignored = findings.iter().filter(|f| !is_bad(f) && f.ours != Outcome::Linked).count();
    // As test harnesses have it, for ci/matrix.
    println!("\ntest result: {verdict}. {} passed; {bad} failed; {ignored} ignored", findings.len() - bad - ignored);
    is_good
}

/// Groups by cause, the most frequent first, with an example each.
fn causes<'a>(
    title: &str,
    items: impl Iterator<Item = (&'a String, &'a Findings)>,
    name: impl Fn(&Findings) -> String,
) {
    let mut groups: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (cause, f) in items {
        // Names of what is missing.
        let cause_of_all = cause.split_once(": [ ").map_or(cause.as_str(), |(text, _)| text);
        groups.entry(general(cause_of_all)).or_insert_with(|| (0, format!("{}: {cause}", name(f)))).0 += 1;
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    section(
        title,
        groups.into_iter().map(|(cause, (count, example))| {
            let example: String = example.chars().take(300).collect();
            format!("{count:>6}  {cause}\n        {example}")
        }),
    );
}

fn section(title: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<_> = lines.collect();
    if !lines.is_empty() {
        println!("\n{title}:");
        lines.iter().for_each(|line| println!("  {line}"));
    }
}
