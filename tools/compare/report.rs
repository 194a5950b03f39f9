//! Tables, for people and for machines.

use serde::Serialize;

use crate::measure::{Cost, Spread};
use crate::memory::Memory;
use crate::sides::BASE;

/// What was counted once, in processes of their own.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Extra {
    /// System calls to load an object.
    pub load_calls: Option<f64>,
    /// And to unload it.
    pub unload_calls: Option<f64>,
    /// Instructions to load an object.
    pub instructions: Option<f64>,
    /// Of one object that is loaded.
    pub memory: Option<Memory>,
    /// Why something is missing.
    pub skipped: Option<String>,
}

/// What one side did, repetition by repetition; or why it did not.
pub struct Measured {
    pub side: &'static str,
    pub costs: Vec<Cost>,
    pub skipped: Option<String>,
    pub system_calls: Option<f64>,
    pub instructions: Option<f64>,
    pub memory: Option<Memory>,
}

/// One line.
#[derive(Serialize)]
struct Row {
    side: &'static str,
    cpu_us: Option<Spread>,
    cpu_ratio: Option<Spread>,
    wall_us: Option<Spread>,
    wall_ratio: Option<Spread>,
    page_faults: Option<f64>,
    system_calls: Option<f64>,
    instructions: Option<f64>,
    memory: Option<Memory>,
    skipped: Option<String>,
}

/// Lines with what they say something about.
#[derive(Serialize)]
pub struct Table {
    /// For machines: a workload and what is done with it.
    key: String,
    workload: String,
    what: String,
    rows: Vec<Row>,
    /// Whether all sides are driven until they can no more.
    #[serde(skip)]
    to_the_end: bool,
}

impl Table {
    /// Of all sides.
    pub fn new(key: String, workload: &str, what: &str, measured: Vec<Measured>) -> Self {
        let base: Vec<Cost> = measured.iter().find(|m| m.side == BASE).map(|m| m.costs.clone()).unwrap_or_default();
        let rows = measured.into_iter().map(|measured| Row::new(measured, &base)).collect();
        Self { key, workload: workload.into(), what: what.into(), rows, to_the_end: false }
    }

    /// A table in which an end is no failure.
    pub fn driven_to_the_end(self) -> Self {
        Self { to_the_end: true, ..self }
    }

    /// Errors of wrong answers, of anyone, and whatever this crate failed at.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        let ours = |row: &Row| row.side.starts_with("ours") && !self.to_the_end;
        let failed =
            move |row: &&Row| row.skipped.as_ref().is_some_and(|why| why.contains("WRONG ANSWER") || ours(row));
        self.rows
            .iter()
            .filter(failed)
            .map(|row| format!("{}: {}", row.side, row.skipped.as_deref().unwrap_or_default()))
    }

    /// What it is about.
    pub fn title(&self) -> String {
        format!("{}: {}", self.workload, self.what)
    }

    /// What machines know it by.
    pub fn key(&self) -> &str {
        &self.key
    }

    fn row(&self, side: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.side == side)
    }

    /// Processor time of a side, as a ratio.
    pub fn ratio(&self, side: &str) -> Option<f64> {
        Some(self.row(side)?.cpu_ratio?.median)
    }

    /// Microseconds by the clock of a side.
    pub fn wall(&self, side: &str) -> Option<f64> {
        Some(self.row(side)?.wall_us?.median)
    }

    /// Resident bytes of an object that a side has loaded.
    pub fn bytes(&self, side: &str) -> Option<f64> {
        Some(self.row(side)?.memory?.mapped)
    }

    /// The sides that have a ratio, with it.
    pub fn bars(&self) -> Vec<(&'static str, Spread)> {
        self.rows.iter().filter_map(|row| Some((row.side, row.cpu_ratio?))).collect()
    }

    /// As text.
    pub fn print(&self) {
        println!("\n{}", self.title());
        println!(
            "  {:<24}{:>3}{:>13} {:<22}{:>13} {:<22}{:>8}{:>8}{:>9}{:>10}{:>9}",
            "each", "n", "CPU µs", "ratio", "wall µs", "ratio", "faults", "calls", "instrs", "bytes", "mappings"
        );
        for row in &self.rows {
            row.print();
        }
    }
}

impl Row {
    fn new(measured: Measured, base: &[Cost]) -> Self {
        let Measured { side, costs, skipped, system_calls, instructions, memory } = measured;
        let each = |of: fn(&Cost) -> f64| Spread::of(costs.iter().map(|c| of(c) * 1e6 / c.count as f64));
        // Of the same repetition.
        let ratio = |of: fn(&Cost) -> f64| {
            let of = |c: &Cost| of(c) / c.count as f64;
            Spread::of(costs.iter().zip(base).map(|(mine, theirs)| of(mine) / of(theirs)))
        };
        Self {
            side,
            cpu_us: each(|c| c.cpu),
            cpu_ratio: ratio(|c| c.cpu),
            wall_us: each(|c| c.wall),
            wall_ratio: ratio(|c| c.wall),
            page_faults: Spread::of(costs.iter().map(|c| c.faults / c.count as f64)).map(|s| s.median),
            system_calls,
            instructions,
            memory,
            skipped,
        }
    }

    fn print(&self) {
        let number = |value: Option<f64>, digits: usize| value.map_or("-".into(), |v| format!("{v:.digits$}"));
        let ratio = |spread: Option<Spread>| match spread {
            Some(s) => format!("{:.3} ({:.3}..{:.3})", s.median, s.least, s.most),
            None => "-".into(),
        };
        if self.cpu_us.is_some() {
            println!(
                "  {:<24}{:>3}{:>13} {:<22}{:>13} {:<22}{:>8}{:>8}{:>9}{:>10}{:>9}",
                self.side,
                self.cpu_us.map_or(0, |s| s.count),
                number(self.cpu_us.map(|s| s.median), 3),
                ratio(self.cpu_ratio),
                number(self.wall_us.map(|s| s.median), 3),
                ratio(self.wall_ratio),
                number(self.page_faults, 1),
                number(self.system_calls, 1),
                number(self.instructions, 0),
                number(self.memory.map(|m| m.mapped), 0),
                number(self.memory.map(|m| m.mappings), 1),
            );
        }
        if let Some(why) = &self.skipped {
            let what = if self.cpu_us.is_some() { "in part" } else { "skipped" };
            println!("  {:<24}{what}: {why}", self.side);
        }
    }
}
