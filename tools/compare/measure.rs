//! What something costs this process: time, processor time and page faults, those of child processes included.

use std::time::Instant;

use serde::{Deserialize, Serialize};

/// What a number of objects, or calls, cost.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Cost {
    /// How many there were.
    pub count: usize,
    /// Seconds that passed.
    pub wall: f64,
    /// Seconds of processors.
    pub cpu: f64,
    /// Page faults.
    pub faults: f64,
}

impl Cost {
    /// Measures.
    ///
    /// # Errors
    /// That of what is measured.
    pub fn of<T>(count: usize, body: impl FnOnce() -> Result<T, String>) -> Result<(Self, T), String> {
        let (cpu, faults) = used();
        let start = Instant::now();
        let answer = body()?;
        let wall = start.elapsed().as_secs_f64();
        let (cpu_after, faults_after) = used();
        Ok((Self { count, wall, cpu: cpu_after - cpu, faults: faults_after - faults }, answer))
    }
}

/// Processor time and page faults, of this process and of its children that have ended.
fn used() -> (f64, f64) {
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let mut sum = (0.0, 0.0);
    for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
        // SAFETY: zeros are a value of the record, which the call fills.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &mut usage);
            usage
        };
        sum.0 += seconds(usage.ru_utime) + seconds(usage.ru_stime);
        sum.1 += (usage.ru_minflt + usage.ru_majflt) as f64;
    }
    sum
}

/// A median, and what it lies between.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
    pub count: usize,
}

impl Spread {
    /// None of nothing.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        Some(Self { median: values[values.len() / 2], least, most, count: values.len() })
    }
}
