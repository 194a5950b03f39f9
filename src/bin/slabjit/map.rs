//! `slabjit map`: the findings of `check` as a drawing.
//!
//! The pictures of the objects follow each other downwards. Each has the object's sections by segment, to scale,
//! references inside the object to their left, and imported names to their right.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::path::Path;

use slabjit::{LinkPlan, PlannedReference, PlannedSection, Verdict};

use crate::check::check_all;
use crate::input::{Inputs, name_of};
use crate::output;
use crate::scope::Scope;
use crate::svg::{Element, Number};
use crate::words;

/// Pixels.
const WIDTH: f64 = 1120.0;
const MARGIN: f64 = 24.0;
const LINE: f64 = 18.0;
/// The horizontal positions of the sections and of the names to their right.
const SECTIONS: (f64, f64) = (330.0, 640.0);
const IMPORTS: (f64, f64) = (830.0, WIDTH - MARGIN);
/// The height that all sections of an object share by size, beyond the minimum of each.
const SCALE: f64 = 300.0;
const LEAST: f64 = 22.0;

/// The largest number of boxes of a kind; the rest shares one.
const MOST_SECTIONS: usize = 40;
const MOST_IMPORTS: usize = 60;
/// The largest number of lines; refused and bridged references come first.
const MOST_LINES: usize = 500;

const SEGMENTS: [(&str, &str, &str); 4] = [
    ("R-X", "code (R-X)", "#e8f0fb"),
    ("R--", "read-only data (R--)", "#eef3ea"),
    ("RW-", "writable data (RW-)", "#fbefe6"),
    ("RWX", "writable and executable: refused", "#f9dcdc"),
];

pub(crate) fn map(scope: &Scope, inputs: &Inputs, output: &Path) -> c_int {
    let drawn = draw_all(scope, inputs);
    match drawn
        .and_then(|svg| output::write_whole(output, svg.as_bytes()).map_err(|e| format!("{}: {e}", name_of(output))))
    {
        Ok(()) => 0,
        Err(error) => {
            output::complain(&error);
            1
        }
    }
}

fn draw_all(scope: &Scope, inputs: &Inputs) -> Result<String, String> {
    let mut root = Element::new("g");
    let mut y = MARGIN;
    for checked in check_all(scope, inputs).map_err(|error| words::of(&error))? {
        let (loads, further) = (checked.loads(), checked.further_problems());
        y = draw(&mut root, &checked.plan?, loads, further, y) + 2.0 * LINE;
    }
    y = legend(&mut root, y) + MARGIN;
    let mut svg = Element::new("svg")
        .with("xmlns", "http://www.w3.org/2000/svg")
        .with("width", Number(WIDTH))
        .with("height", Number(y))
        .with("viewBox", format!("0 0 {} {}", Number(WIDTH), Number(y)))
        .with("font-family", "DejaVu Sans, Verdana, sans-serif")
        .with("font-size", 11);
    svg.push(Element::rect(0.0, 0.0, WIDTH, y).with("fill", "#ffffff"));
    svg.push(root);
    Ok(svg.document())
}

/// A box at the end of references.
struct Place {
    left: f64,
    right: f64,
    middle: f64,
}

/// References of one verdict between two boxes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    /// The importance: important lines are drawn first, and never left out for others.
    rank: u8,
    from: usize,
    to: End,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Section(usize),
    Import(usize),
}

const VERDICTS: [Verdict; 4] = [Verdict::Refused, Verdict::Bridged, Verdict::InArena, Verdict::Always];

fn rank(verdict: Verdict) -> u8 {
    VERDICTS.iter().position(|v| *v == verdict).map_or(u8::MAX, |at| at as u8)
}

fn colour(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Always => "#5b7fb0",
        Verdict::InArena => "#2f9457",
        Verdict::Bridged => "#d98200",
        _ => "#c22525",
    }
}

/// Draws one object from `y` on, with problems that are not in its plan; returns the lower end.
fn draw(root: &mut Element, plan: &LinkPlan, loads: bool, further: usize, mut y: f64) -> f64 {
    y += LINE;
    root.push(
        Element::text(MARGIN, y, &shortened(&plan.object, 100)).with("font-size", 16).with("font-weight", "bold"),
    );
    y += LINE;
    root.push(Element::text(MARGIN, y, &summary(plan, loads)).with("fill", "#444444"));
    if plan.problems.len() + further > 0 {
        // The texts are left out: they may contain addresses, which differ each time.
        y += LINE;
        let text = format!("{} problem(s): 'slabjit check' tells them", plan.problems.len() + further);
        root.push(Element::text(MARGIN, y, &text).with("fill", colour(Verdict::Refused)));
    }
    let top = y + LINE;

    let (mut boxes, mut places) = (Vec::new(), Vec::new());
    let (of_section, bottom) = sections(plan, top, &mut boxes, &mut places);
    let names = imports(plan);
    let right = column(&names, top, &mut boxes);

    let mut lines: BTreeMap<Line, u64> = BTreeMap::new();
    let mut hidden = 0;
    for reference in &plan.references {
        let Some(from) = of_section.get(&reference.section_index).copied() else { continue };
        let to = match reference.target_section.map(|index| of_section.get(&index).copied()) {
            Some(Some(at)) => End::Section(at),
            // A reference into an unmapped section.
            Some(None) => {
                hidden += 1;
                continue;
            }
            None => End::Import(names.get(&*reference.symbol).copied().unwrap_or(MOST_IMPORTS - 1)),
        };
        *lines.entry(Line { rank: rank(reference.verdict), from, to }).or_default() += 1;
    }
    // Boxes first: lines are drawn over them. The most important line comes last, on top.
    boxes.into_iter().for_each(|b| root.push(b));
    let left_out = lines.len().saturating_sub(MOST_LINES);
    let drawn: Vec<_> = lines.into_iter().take(MOST_LINES).collect();
    for (line, count) in drawn.into_iter().rev() {
        draw_line(root, line, count, &places, &right);
    }

    let mut end = bottom.max(right.last().map_or(top, |place| place.middle + LINE));
    for (count, what) in [
        (left_out as u64, "further groups of references are not drawn"),
        (plan.references_omitted, "further references are not drawn"),
        (hidden, "references into sections that are not mapped are not drawn"),
    ] {
        if count > 0 {
            end += LINE;
            root.push(Element::text(MARGIN, end, &format!("{count} {what}")).with("fill", "#444444"));
        }
    }
    end
}

fn summary(plan: &LinkPlan, loads: bool) -> String {
    let sum = |of: fn(&slabjit::PlannedRelocation) -> u64| plan.relocations.iter().map(of).sum::<u64>();
    let mapped = plan.sections.iter().filter(|s| s.segment.is_some()).map(|s| s.size).fold(0, u64::saturating_add);
    format!(
        "{}, {} in the file, {} mapped; references: {} always in range, {} within the arena, {} bridged, {} refused; \
         {}",
        plan.machine,
        bytes(plan.bytes),
        bytes(mapped),
        sum(|r| r.always),
        sum(|r| r.in_arena),
        sum(|r| r.bridged),
        sum(|r| r.refused),
        if loads { "loads" } else { "does not load" },
    )
}

/// Draws the mapped sections by segment. Returns each section's box by index, and the lower end.
fn sections(
    plan: &LinkPlan,
    top: f64,
    boxes: &mut Vec<Element>,
    places: &mut Vec<Place>,
) -> (HashMap<u32, usize>, f64) {
    let referred = |s: &PlannedSection| s.relocations > 0;
    let shown = |s: &&PlannedSection| s.segment.is_some() && (s.size > 0 || referred(s));
    let total: f64 = plan.sections.iter().filter(shown).map(|s| s.size as f64).sum::<f64>().max(1.0);
    let (mut of_section, mut y) = (HashMap::new(), top);
    for (segment, title, fill) in SEGMENTS {
        let mut of_segment: Vec<_> =
            plan.sections.iter().filter(shown).filter(|s| s.segment.as_deref() == Some(segment)).collect();
        if of_segment.is_empty() {
            continue;
        }
        let whole: u64 = of_segment.iter().map(|s| s.size).fold(0, u64::saturating_add);
        y += LINE;
        let title = format!("{title}, {}", bytes(whole));
        boxes.push(Element::text(SECTIONS.0, y - 5.0, &title).with("fill", "#444444").with("font-weight", "bold"));
        // The largest sections have boxes of their own; all stay in the file's order.
        let mut rest = Vec::new();
        if of_segment.len() > MOST_SECTIONS {
            let mut by_size = of_segment.clone();
            by_size.sort_by_key(|s| (std::cmp::Reverse(s.size), s.index));
            rest = by_size.split_off(MOST_SECTIONS - 1);
            rest.sort_by_key(|s| s.index);
            of_segment.retain(|s| rest.binary_search_by_key(&s.index, |r| r.index).is_err());
        }
        let mut put = |name: &str, size: u64, relocations: u64, members: &[&PlannedSection]| {
            let height = LEAST + size as f64 / total * SCALE;
            let (x, width) = (SECTIONS.0, SECTIONS.1 - SECTIONS.0);
            let details = format!("{name}: {size:#x} bytes, {relocations} relocations");
            let rect = Element::rect(x, y, width, height).with("fill", fill).with("stroke", "#8a8a8a").title(&details);
            boxes.push(rect);
            let middle = y + height / 2.0;
            boxes.push(Element::text(x + 8.0, middle + 4.0, &shortened(name, 28)).title(&details));
            let size = Element::text(x + width - 8.0, middle + 4.0, &bytes(size)).with("text-anchor", "end");
            boxes.push(size.with("fill", "#444444"));
            members.iter().for_each(|s| {
                of_section.insert(s.index, places.len());
            });
            places.push(Place { left: x, right: x + width, middle });
            y += height;
        };
        for section in &of_segment {
            put(&section.name, section.size, section.relocations, &[section]);
        }
        if !rest.is_empty() {
            let (size, relocations) = rest
                .iter()
                .fold((0_u64, 0), |(size, relocations), s| (size.saturating_add(s.size), relocations + s.relocations));
            put(&format!("{} smaller sections", rest.len()), size, relocations, &rest);
        }
        y += LINE / 2.0;
    }
    (of_section, y)
}

/// Returns the imported names with their rows; the last row is shared if there are too many.
fn imports(plan: &LinkPlan) -> BTreeMap<&str, usize> {
    let outward = |r: &&PlannedReference| r.target_section.is_none();
    let mut names: BTreeMap<&str, u8> = BTreeMap::new();
    for reference in plan.references.iter().filter(outward) {
        let worst = names.entry(&reference.symbol).or_insert(u8::MAX);
        *worst = rank(reference.verdict).min(*worst);
    }
    let mut order: Vec<_> = names.iter().map(|(name, worst)| (*worst, *name)).collect();
    order.sort_unstable();
    order.iter().enumerate().map(|(row, (_, name))| (*name, row.min(MOST_IMPORTS - 1))).collect()
}

/// Draws the names to the right of the sections.
fn column(names: &BTreeMap<&str, usize>, top: f64, boxes: &mut Vec<Element>) -> Vec<Place> {
    let mut rows: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for (name, row) in names {
        rows.entry(*row).or_default().push(name);
    }
    if !rows.is_empty() {
        let title = Element::text(IMPORTS.0, top + LINE - 5.0, "from elsewhere");
        boxes.push(title.with("fill", "#444444").with("font-weight", "bold"));
    }
    let place = |(row, names): (usize, Vec<&str>)| {
        let y = top + LINE + row as f64 * (LEAST + 4.0);
        let (x, width) = (IMPORTS.0, IMPORTS.1 - IMPORTS.0);
        let text = match *names {
            [name] => shortened(name, 38),
            _ => format!("{} further names", names.len()),
        };
        let rect = Element::rect(x, y, width, LEAST).with("rx", 6).with("fill", "#f6f6f6").with("stroke", "#8a8a8a");
        boxes.push(rect);
        let title: Vec<_> = names.iter().take(100).copied().collect();
        boxes.push(Element::text(x + 8.0, y + LEAST / 2.0 + 4.0, &text).title(&title.join("\n")));
        Place { left: x, right: x + width, middle: y + LEAST / 2.0 }
    };
    rows.into_iter().map(place).collect()
}

fn draw_line(root: &mut Element, line: Line, count: u64, places: &[Place], right: &[Place]) {
    let Some(verdict) = VERDICTS.get(usize::from(line.rank)).copied() else { return };
    let Some(from) = places.get(line.from) else { return };
    // Lines with different verdicts between the same boxes are drawn side by side.
    let shift = f64::from(line.rank) * 5.0 - 7.5;
    let (x1, y1, x2, y2, bend, label) = match line.to {
        End::Section(to) => {
            let Some(to) = places.get(to) else { return };
            let (x, mut y1, mut y2) = (from.left, from.middle + shift, to.middle + shift);
            if line.from == to_index(line.to) {
                (y1, y2) = (from.middle + shift - 6.0, from.middle + shift + 6.0);
            }
            let bend = x - 40.0 - ((y2 - y1).abs() * 0.45).min(220.0) - f64::from(line.rank) * 10.0;
            (x, y1, x, y2, (bend, bend), (x + 0.75 * (bend - x) - 6.0, (y1 + y2) / 2.0))
        }
        End::Import(to) => {
            let Some(to) = right.get(to) else { return };
            let (x1, y1, x2, y2) = (from.right, from.middle + shift, to.left, to.middle + shift / 2.0);
            let bend = (x1 + 70.0, x2 - 90.0);
            (x1, y1, x2, y2, bend, (x2 - 22.0, y2))
        }
    };
    let curve = format!(
        "M{} {} C{} {} {} {} {} {}",
        Number(x1),
        Number(y1),
        Number(bend.0),
        Number(y1),
        Number(bend.1),
        Number(y2),
        Number(x2),
        Number(y2)
    );
    let details = format!("{count} × {}", verdict.describe());
    let width = 1.0 + (count as f64).log2().min(12.0) / 3.0;
    let mut path = Element::new("path").with("d", curve).with("fill", "none").with("stroke", colour(verdict));
    path = path.number("stroke-width", width).with("stroke-opacity", "0.8");
    if verdict == Verdict::Bridged {
        path = path.with("stroke-dasharray", "7 4");
    }
    root.push(path.title(&details));
    // An arrowhead at the target, pointing at the box.
    let head = format!("M{} {} l-7 -3.5 v7 z", Number(x2), Number(y2));
    root.push(Element::new("path").with("d", head).with("fill", colour(verdict)));
    if verdict == Verdict::Bridged {
        // The middle of a cubic curve.
        bridge(root, (x1 + 3.0 * (bend.0 + bend.1) + x2) / 8.0, (y1 + y2) / 2.0);
    }
    if count > 1 {
        let (x, anchor) = match line.to {
            End::Section(_) => (label.0 - 5.0, "end"),
            End::Import(_) => (label.0 + 12.0, "end"),
        };
        let y = label.1 - if matches!(line.to, End::Import(_)) { 3.0 } else { -4.0 };
        let text = Element::text(x, y, &format!("×{count}")).with("text-anchor", anchor).with("fill", colour(verdict));
        root.push(text.with("stroke", "#ffffff").with("stroke-width", 3).with("paint-order", "stroke"));
    }
}

fn to_index(end: End) -> usize {
    match end {
        End::Section(at) | End::Import(at) => at,
    }
}

/// Draws a bridge's mark: a diamond.
fn bridge(root: &mut Element, x: f64, y: f64) {
    let diamond = format!("M{} {} l6 6 l-6 6 l-6 -6 z", Number(x), Number(y - 6.0));
    let mark = Element::new("path").with("d", diamond).with("fill", "#ffffff").with("stroke", colour(Verdict::Bridged));
    root.push(mark.with("stroke-width", 2).title("goes through a literal, a slot or a stub near it"));
}

fn legend(root: &mut Element, mut y: f64) -> f64 {
    y += LINE;
    root.push(
        Element::new("path")
            .with("d", format!("M{} {} H{}", Number(MARGIN), Number(y - LINE), Number(WIDTH - MARGIN)))
            .with("stroke", "#cccccc"),
    );
    let mut x = MARGIN;
    for verdict in VERDICTS.into_iter().rev() {
        let line = Element::new("path")
            .with("d", format!("M{} {} h34", Number(x), Number(y)))
            .with("stroke", colour(verdict))
            .with("stroke-width", 2);
        let bridged = verdict == Verdict::Bridged;
        root.push(if bridged { line.with("stroke-dasharray", "7 4") } else { line });
        if bridged {
            bridge(root, x + 17.0, y);
        }
        root.push(Element::text(x + 42.0, y + 4.0, verdict.describe()));
        x += 62.0 + verdict.describe().len() as f64 * 6.6;
    }
    y += LINE;
    let text = "Boxes are to scale, but each has a least height. References inside an object are on the left, to what it does \
                not define on the right; thicker lines stand for more (×N).";
    root.push(Element::text(MARGIN, y + 4.0, text).with("fill", "#444444"));
    y + LINE
}

/// Shortens a text to a number of characters.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let start: String = text.chars().take(most - 1).collect();
    format!("{start}…")
}

fn bytes(n: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| n >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", n as f64 / *unit as f64),
        None => format!("{n} B"),
    }
}
