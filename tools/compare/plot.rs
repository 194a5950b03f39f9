//! One drawing of all tables: a row for each, and a mark for each side at its ratio, on a logarithmic scale.

use std::fmt::Write;
use std::path::Path;

use crate::report::Table;
use crate::sides::{BASE, SIDES};

const WIDTH: f64 = 980.0;
const LEFT: f64 = 470.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 92.0;
const ROW: f64 = 24.0;
const BOTTOM: f64 = 40.0;
/// Ratios beyond this are drawn at it: `ld` starts a process for each object.
const MOST: f64 = 100.0;

/// Colours that can be told apart with any eyes (Okabe and Ito), ours first.
const COLOURS: [&str; 9] =
    ["#0072b2", "#56b4e9", "#000000", "#999999", "#cc79a7", "#d55e00", "#e69f00", "#f0e442", "#009e73"];

/// Draws into a file.
///
/// # Errors
/// If it cannot be written.
pub fn write(tables: &[Table], machine: &str, path: &Path) -> Result<(), String> {
    std::fs::write(path, draw(tables, machine)).map_err(|error| format!("{}: {error}", path.display()))
}

fn draw(tables: &[Table], machine: &str) -> String {
    let rows: Vec<_> = tables.iter().map(|table| (table.title(), table.bars())).filter(|(_, b)| b.len() > 1).collect();
    let least = rows.iter().flat_map(|(_, bars)| bars).map(|(_, s)| s.median).fold(1.0, f64::min).log10().floor();
    let most = MOST.log10();
    let x = |ratio: f64| LEFT + (ratio.min(MOST).log10() - least) / (most - least) * (WIDTH - LEFT - RIGHT);
    let end = TOP + ROW * rows.len() as f64;
    let height = end + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"22\" font-size=\"15\">Processor time, as a ratio to {BASE} (less is better)</text>\n\
         <text x=\"12\" y=\"40\" fill=\"#555555\">LLVM {}; {}</text>\n",
        escaped(&slabjit::llvm_version_string()),
        escaped(machine)
    );
    for (at, kind) in SIDES.iter().enumerate() {
        let (column, line) = (at % 5, at / 5);
        let (left, top) = (12.0 + 194.0 * column as f64, 58.0 + 18.0 * line as f64);
        let _ = writeln!(
            svg,
            "{}<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            mark(kind.name, left + 5.0, top),
            left + 15.0,
            top + 4.0,
            escaped(kind.name)
        );
    }
    for decade in least as i32..=most as i32 {
        let (ratio, at) = (10_f64.powi(decade), x(10_f64.powi(decade)));
        let stroke = if decade == 0 { "#333333" } else { "#dddddd" };
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{end}\" stroke=\"{stroke}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555555\">{ratio}</text>",
            end + 16.0
        );
    }
    for (row, (title, bars)) in rows.iter().enumerate() {
        let y = TOP + ROW * (row as f64 + 0.5);
        let _ = writeln!(svg, "<text x=\"12\" y=\"{:.1}\" font-size=\"11\">{}</text>", y + 4.0, escaped(title));
        // Ours last, on top.
        for (side, spread) in bars.iter().rev() {
            svg.push_str(&mark(side, x(spread.median), y));
        }
        svg.push('\n');
    }
    svg.push_str("</svg>\n");
    svg
}

/// A disc for this crate, a square for another.
fn mark(side: &str, x: f64, y: f64) -> String {
    let number = SIDES.iter().position(|kind| kind.name == side).unwrap_or(0);
    let colour = COLOURS[number % COLOURS.len()];
    match side.starts_with("ours") {
        true => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" fill=\"{colour}\"/>"),
        false => {
            format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\" fill=\"{colour}\"/>", x - 4.0, y - 4.0)
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
