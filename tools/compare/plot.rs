//! Drawings of tables: a bar for each side, as long as its ratio on a logarithmic scale, with a line for what the ratio
//! lies between.

use std::fmt::Write;
use std::path::Path;

use crate::measure::Spread;
use crate::report::Table;
use crate::sides::BASE;

const WIDTH: f64 = 760.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 62.0;
const ROW: f64 = 26.0;
const BOTTOM: f64 = 46.0;

/// Writes a drawing of each table into a folder. Nothing is drawn of tables without ratios.
///
/// # Errors
/// If a file cannot be written.
pub fn write(tables: &[Table], machine: &str, folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for table in tables {
        let bars = table.bars();
        if bars.len() < 2 {
            continue;
        }
        let path = folder.join(format!("{}.svg", slug(&table.title())));
        std::fs::write(&path, draw(table, &bars, machine)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn slug(title: &str) -> String {
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join("-")
}

fn draw(table: &Table, bars: &[(&'static str, Spread)], machine: &str) -> String {
    let least = bars.iter().map(|(_, s)| s.least).fold(1.0, f64::min).log10().floor();
    let most = bars.iter().map(|(_, s)| s.most).fold(1.0, f64::max).log10().ceil().max(least + 1.0);
    let x = |ratio: f64| LEFT + (ratio.log10() - least) / (most - least) * (WIDTH - LEFT - RIGHT);
    let height = TOP + ROW * bars.len() as f64 + BOTTOM;
    let end = height - BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"22\" font-size=\"15\">{}</text>\n\
         <text x=\"12\" y=\"40\" fill=\"#555555\">processor time, as a ratio to {BASE} (less is better)</text>\n",
        escaped(&table.title())
    );
    for decade in least as i32..=most as i32 {
        let (ratio, at) = (10_f64.powi(decade), x(10_f64.powi(decade)));
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{end}\" stroke=\"#dddddd\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555555\">{ratio}</text>",
            end + 16.0
        );
    }
    for (row, (side, spread)) in bars.iter().enumerate() {
        let y = TOP + ROW * row as f64 + 5.0;
        let (middle, one, at) = (y + 8.0, x(1.0), x(spread.median));
        let fill = if side.starts_with("ours") { "#0072b2" } else { "#bbbbbb" };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"16\" fill=\"{fill}\"/>\
             <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke=\"#333333\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 8.0,
            middle + 4.0,
            escaped(side),
            one.min(at),
            (one - at).abs().max(1.0),
            x(spread.least),
            x(spread.most),
            x(spread.most).max(one) + 6.0,
            middle + 4.0,
            short(spread.median)
        );
    }
    let one = x(1.0);
    let _ = write!(
        svg,
        "<line x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"{TOP}\" y2=\"{end}\" stroke=\"#333333\"/>\n\
         <text x=\"12\" y=\"{:.1}\" fill=\"#555555\" font-size=\"11\">LLVM {}; {}</text>\n</svg>\n",
        height - 10.0,
        escaped(&slabjit::llvm_version_string()),
        escaped(machine)
    );
    svg
}

/// Three digits that count.
fn short(ratio: f64) -> String {
    let digits = (2 - ratio.log10().floor() as i32).clamp(0, 4) as usize;
    format!("{ratio:.digits$}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
