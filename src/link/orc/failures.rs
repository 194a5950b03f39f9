//! Why names have failed, for those that look them up: ORC tells names only.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::Error;

/// How many failures without a resource key are kept.
const WITHOUT_KEY: usize = 1024;

/// A name of a dylib, by the address of ORC's.
type Symbol = (String, usize);

/// Failures, until the tracker of what has failed is removed. Of those without one, the last.
#[derive(Default)]
pub(super) struct Failures {
    /// By dylib.
    of: HashMap<String, HashMap<usize, Arc<Error>>>,
    by_key: HashMap<usize, Vec<Symbol>>,
    without_key: VecDeque<Symbol>,
}

impl Failures {
    pub(super) fn get(&self, name: &str, dylib: usize) -> Option<&Arc<Error>> {
        self.of.get(name)?.get(&dylib)
    }

    /// Returns why a name has failed that was looked for from a dylib. Its own comes first in its order.
    pub(super) fn seen_from(&self, name: &str, dylib: usize) -> Option<&Arc<Error>> {
        let all = self.of.get(name)?;
        all.get(&dylib).or_else(|| all.values().next())
    }

    pub(super) fn note(&mut self, name: String, dylib: usize, key: Option<usize>, why: Arc<Error>) {
        let is_new = self.of.entry(name.clone()).or_default().insert(dylib, why).is_none();
        match key {
            Some(key) => self.by_key.entry(key).or_default().push((name, dylib)),
            None if is_new => {
                self.without_key.push_back((name, dylib));
                if self.without_key.len() > WITHOUT_KEY
                    && let Some(oldest) = self.without_key.pop_front()
                {
                    self.forget(&oldest);
                }
            }
            None => {}
        }
    }

    pub(super) fn remove(&mut self, key: usize) {
        for symbol in self.by_key.remove(&key).unwrap_or_default() {
            self.forget(&symbol);
        }
    }

    pub(super) fn transfer(&mut self, to: usize, from: usize) {
        if let Some(moved) = self.by_key.remove(&from) {
            self.by_key.entry(to).or_default().extend(moved);
        }
    }

    fn forget(&mut self, (name, dylib): &Symbol) {
        if let Some(of_name) = self.of.get_mut(name) {
            of_name.remove(dylib);
            if of_name.is_empty() {
                self.of.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> Arc<Error> {
        Arc::new(Error::Link(crate::LinkError::Session { message: text.to_owned() }))
    }

    #[test]
    fn a_failure_goes_with_its_key() {
        let mut failures = Failures::default();
        failures.note("a".to_owned(), 1, Some(10), why("first"));
        failures.note("a".to_owned(), 2, Some(20), why("second"));
        assert!(failures.get("a", 1).is_some_and(|why| why.to_string().contains("first")));
        assert!(failures.seen_from("a", 3).is_some());
        failures.transfer(30, 10);
        failures.remove(10);
        assert!(failures.get("a", 1).is_some());
        failures.remove(30);
        assert!(failures.get("a", 1).is_none());
        assert!(failures.seen_from("a", 1).is_some_and(|why| why.to_string().contains("second")));
        failures.remove(20);
        assert!(failures.of.is_empty() && failures.by_key.is_empty());
    }

    #[test]
    fn failures_without_a_key_are_bounded() {
        let mut failures = Failures::default();
        for n in 0..3 * WITHOUT_KEY {
            failures.note(format!("n{n}"), 1, None, why("gone"));
            failures.note(format!("n{n}"), 1, None, why("again"));
        }
        assert_eq!((failures.of.len(), failures.without_key.len()), (WITHOUT_KEY, WITHOUT_KEY));
        assert!(failures.get(&format!("n{}", 2 * WITHOUT_KEY), 1).is_some());
    }
}
