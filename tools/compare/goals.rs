//! What the crate is to reach beside stock LLJIT of the same LLVM, and whether it does.

use serde::Serialize;

use crate::report::Table;
use crate::sides::BASE;

/// A line of the table: what, and the number for a side, if it was measured.
struct Goal {
    what: &'static str,
    /// At most, with pages of an object's own and packed.
    most: [f64; 2],
    value: fn(&Measured<'_>, side: &str) -> Option<f64>,
}

/// One number beside the one that is wanted.
#[derive(Serialize)]
pub struct Reached {
    what: &'static str,
    side: &'static str,
    most: f64,
    value: f64,
    reached: bool,
}

struct Measured<'a>(&'a [Table]);

impl Measured<'_> {
    fn table(&self, key: &str) -> Option<&Table> {
        self.0.iter().find(|table| table.key() == key)
    }

    fn ratio(&self, key: &str, side: &str) -> Option<f64> {
        self.table(key)?.ratio(side)
    }
}

const SIDES: [&str; 2] = ["ours", "ours, packed"];
const KIB: f64 = 1024.0;

/// Stock is slow there with some versions only.
fn by_version(of_19: f64, of_22: f64, else_: f64) -> f64 {
    match slabjit::llvm_version() {
        19 => of_19,
        22 => of_22,
        _ => else_,
    }
}

/// A ratio to stock in a table.
macro_rules! ratio {
    ($what:literal, $most:expr, $key:literal) => {
        Goal { what: $what, most: $most, value: |all, side| all.ratio($key, side) }
    };
}

fn goals() -> Vec<Goal> {
    let both = |most| [most, most];
    vec![
        ratio!("first call, 1000 live", [0.5, 0.22], "small/load"),
        ratio!("first call, 20 000 live", [0.5, 0.22], "large/load"),
        Goal {
            what: "first call, 1000 live, of MCJIT's",
            most: both(1.0),
            value: |all, side| Some(all.ratio("small/load", side)? / all.ratio("small/load", "MCJIT")?),
        },
        ratio!("first call, 1000 in a batch", [0.25, 0.125], "batch/load"),
        ratio!("unload, 1000 live", [0.7, 0.08], "small/unload"),
        ratio!("unload, 20 000 live", [0.7, 0.08], "large/unload"),
        ratio!("unload, 1000 in a batch", [0.7, 0.05], "batch/unload"),
        ratio!("kernels of 10 to 200 KB", both(by_version(0.12, 0.3, 0.3)), "kernels/load"),
        ratio!("unload of these kernels", both(0.9), "kernels/unload"),
        ratio!("1.2 MB in one section", both(0.3), "one-section/load"),
        ratio!("1.2 MB in 2000 sections", both(by_version(0.5, 0.005, 1.0)), "many-sections/load"),
        Goal {
            what: "1000 objects merged by ld -r, of MCJIT's",
            most: both(1.0),
            value: |all, side| Some(all.ratio("merged/load", side)? / all.ratio("merged/load", "MCJIT")?),
        },
        Goal {
            what: "arena KiB of an object (PerObject: of stock's)",
            most: [1.0, 1.6],
            value: |all, side| {
                let table = all.table("large/first")?;
                let unit = if side == SIDES[0] { table.bytes(BASE)? } else { KIB };
                Some(table.bytes(side)? / unit)
            },
        },
        ratio!("one call, round robin", [1.0, 0.15], "large/calls"),
        Goal {
            what: "first call, of ld -shared and dlopen's",
            most: [0.03, 0.02],
            value: |all, side| {
                let table = all.table("small/load")?;
                Some(table.wall(side)? / table.wall("ld -shared, dlopen")?)
            },
        },
        Goal {
            what: "two threads, of one thread's (clock)",
            most: [1.0, 0.55],
            value: |all, side| Some(all.table("small/2-threads")?.wall(side)? / all.table("small/load")?.wall(side)?),
        },
    ]
}

/// Everything that was measured.
pub fn reached(tables: &[Table]) -> Vec<Reached> {
    let all = Measured(tables);
    let of = |goal: &Goal| {
        let numbers = SIDES.iter().zip(goal.most).filter_map(|(side, most)| {
            let value = (goal.value)(&all, side)?;
            Some(Reached { what: goal.what, side, most, value, reached: value <= most })
        });
        numbers.collect::<Vec<_>>()
    };
    goals().iter().flat_map(of).collect()
}

/// As text.
pub fn print(reached: &[Reached]) {
    if reached.is_empty() {
        return;
    }
    println!("\nTo reach");
    println!("  {:<50}{:<16}{:>10}{:>12}", "", "", "at most", "measured");
    for Reached { what, side, most, value, reached } in reached {
        println!("  {what:<50}{side:<16}{most:>10}{value:>12.4}{}", if *reached { "" } else { "  missed" });
    }
    println!(
        "  (mappings of a million objects: `cargo run --release -p slabjit-tools --bin million`; memory managers' own time: `RUSTFLAGS=\"--cfg slabjit_faults\" cargo test \
         --release --lib of_memory_managers -- --ignored --nocapture`)"
    );
}
