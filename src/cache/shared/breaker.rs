//! A store that does not answer is left alone for a while.
//!
//! Nobody waits for the call that finds out whether it answers again.

use std::time::{Duration, Instant};

use crate::fork_guard::{self, Mutex};

/// Calls in a row that fail at once before the store is left alone. One that takes the whole wait is enough.
const FAILURES: u32 = 5;

/// For how long a store is left alone: the first time, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// Whether to ask the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    /// Ask, and wait.
    Ask,
    /// Ask, and do not wait.
    Probe,
    No,
}

struct State {
    failures: u32,
    pause: Duration,
    /// Since when, if it is left alone.
    until: Option<Instant>,
    /// The generation of the process that is finding out, and since when.
    probing: Option<(u32, Instant)>,
}

pub(super) struct Breaker(Mutex<State>);

impl Breaker {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(State { failures: 0, pause: PAUSE.0, until: None, probing: None }))
    }

    pub(super) fn ask(&self, now: Instant) -> Leave {
        let mut state = self.0.lock();
        // In a child of the process that was finding out, nobody is.
        let is_probing = state.probing.is_some_and(|(generation, since)| {
            generation == fork_guard::generation() && now.saturating_duration_since(since) < PAUSE.1
        });
        match state.until {
            None => Leave::Ask,
            Some(until) if now < until || is_probing => Leave::No,
            Some(_) => {
                state.probing = Some((fork_guard::generation(), now));
                Leave::Probe
            }
        }
    }

    /// Notes that the store answered in time.
    pub(super) fn succeeded(&self) {
        *self.0.lock() = State { failures: 0, pause: PAUSE.0, until: None, probing: None };
    }

    /// Notes that the store failed; `late`: after the whole wait.
    pub(super) fn failed(&self, now: Instant, late: bool) {
        let mut state = self.0.lock();
        state.failures += 1;
        let is_probe = state.probing.take().is_some();
        if is_probe || state.until.is_none() && (late || state.failures >= FAILURES) {
            state.until = Some(now + state.pause);
            state.pause = (state.pause * 2).min(PAUSE.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_answer_or_five_errors_pause() {
        let (breaker, now) = (Breaker::new(), Instant::now());
        for _ in 0..4 {
            breaker.failed(now, false);
            assert_eq!(breaker.ask(now), Leave::Ask);
        }
        breaker.succeeded();
        breaker.failed(now, false);
        assert_eq!(breaker.ask(now), Leave::Ask);
        (0..4).for_each(|_| breaker.failed(now, false));
        assert_eq!(breaker.ask(now), Leave::No);

        let breaker = Breaker::new();
        breaker.failed(now, true);
        assert_eq!(breaker.ask(now + PAUSE.0 - Duration::from_millis(1)), Leave::No);
    }

    #[test]
    fn one_at_a_time_finds_out_and_pauses_grow() {
        let (breaker, mut now) = (Breaker::new(), Instant::now());
        breaker.failed(now, true);
        for pause in [10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(breaker.ask(now + Duration::from_secs(pause) - Duration::from_millis(1)), Leave::No, "{pause}");
            now += Duration::from_secs(pause);
            assert_eq!(breaker.ask(now), Leave::Probe, "{pause}");
            assert_eq!(breaker.ask(now), Leave::No);
            breaker.failed(now, true);
        }
        now += Duration::from_secs(300);
        assert_eq!(breaker.ask(now), Leave::Probe);
        breaker.succeeded();
        assert_eq!(breaker.ask(now), Leave::Ask);
    }
}
