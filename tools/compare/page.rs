//! A page of the documents that `--json` prints, one for each LLVM.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

/// Writes the page.
///
/// # Errors
/// If a document cannot be read, or the page not written.
pub fn write(page: &Path, documents: &[&str]) -> Result<(), String> {
    let read = |path: &&str| {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))
    };
    let documents: Vec<Value> = documents.iter().map(read).collect::<Result<_, _>>()?;
    std::fs::write(page, text(&documents)).map_err(|error| format!("{}: {error}", page.display()))
}

fn text(documents: &[Value]) -> String {
    let mut page = "# Beside other linkers\n\n\
        `ci/compare` measures this and writes the page. [Testing](testing.md#comparing) describes what is loaded, and by \
        whom.\nFigures are medians of ratios of processor time to stock LLJIT (JITLink, in-process memory manager) of the \
        same LLVM;\nbelow 1 is better. `-`: it cannot, or is not measured.\n"
        .to_owned();
    for document in documents {
        let version = string(&document["llvm"]);
        let major = version.split('.').next().unwrap_or_default();
        let _ = write!(
            page,
            "\n## LLVM {version}\n\n{}.\n\n![Ratios of all sides in all rows](compare-{major}.svg)\n\n",
            string(&document["machine"])
        );
        page.push_str(&ratios(document));
        page.push_str(&goals(document));
    }
    page
}

/// A line for each table, and a column for each side.
fn ratios(document: &Value) -> String {
    let tables = document["tables"].as_array().map_or(&[][..], Vec::as_slice);
    let has_ratio = |table: &&Value| rows(table).iter().filter(|row| row["cpu_ratio"].is_object()).count() > 1;
    let tables: Vec<&Value> = tables.iter().filter(has_ratio).collect();
    let Some(first) = tables.first() else { return String::new() };
    let sides: Vec<&str> = rows(first).iter().map(|row| string(&row["side"])).collect();
    let mut text = format!("| | {} |\n|---|{}\n", sides.join(" | "), "---|".repeat(sides.len()));
    for table in tables {
        let cell = |side: &&str| {
            let row = rows(table).iter().find(|row| row["side"] == **side);
            let number = |of: &str| row.and_then(|row| row[of]["median"].as_f64());
            match (number("cpu_ratio"), number("cpu_us")) {
                (Some(ratio), Some(each)) => format!("{} ({} µs)", short(ratio), short(each)),
                _ => "-".to_owned(),
            }
        };
        let cells: Vec<String> = sides.iter().map(cell).collect();
        let _ =
            writeln!(text, "| {}: {} | {} |", string(&table["workload"]), string(&table["what"]), cells.join(" | "));
    }
    text
}

fn goals(document: &Value) -> String {
    let reached = document["to_reach"].as_array().map_or(&[][..], Vec::as_slice);
    let mut text = "\n| to reach | | at most | measured |\n|---|---|---|---|\n".to_owned();
    for goal in reached {
        let number = |of: &str| goal[of].as_f64().map_or("-".to_owned(), short);
        let value = if goal["reached"] == true { number("value") } else { format!("**{}**", number("value")) };
        let _ =
            writeln!(text, "| {} | {} | {} | {value} |", string(&goal["what"]), string(&goal["side"]), number("most"));
    }
    text
}

fn rows(table: &Value) -> &[Value] {
    table["rows"].as_array().map_or(&[][..], Vec::as_slice)
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Three digits that count.
fn short(number: f64) -> String {
    let digits = (2 - number.max(f64::MIN_POSITIVE).log10().floor() as i32).clamp(0, 4) as usize;
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
