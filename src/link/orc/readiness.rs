//! When objects are ready: once all that they reach has been linked.
//!
//! ORC's own tracking is superlinear in symbols (llvm#179611) or in objects, so ORC is told of no dependences among
//! objects of ours. An object that is linked and has to wait watches one that is still being linked. When that one is
//! ready, those that watch it look again.

use std::collections::{HashMap, HashSet};

/// The number of an object. None is used twice.
pub(super) type Number = u32;

/// Objects that are being linked, or wait for such.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    open: HashMap<Number, Object>,
}

#[derive(Debug, Default)]
struct Object {
    state: State,
    /// The objects that it refers to. Ready ones are taken out when they are met.
    needs: Vec<Number>,
    /// An object that it reaches, and that is not ready.
    watches: Option<Number>,
    watched_by: Vec<Number>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Linking,
    /// It is linked, and waits.
    Linked,
    /// It is being linked, and refers to an object that has failed.
    Doomed,
}

/// Objects that an event has settled. They are forgotten.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// Groups whose members reach each other, behind those that they refer to.
    pub(super) ready: Vec<Vec<Number>>,
    /// They reach an object that has failed.
    pub(super) failed: Vec<Number>,
}

impl Readiness {
    /// Begins an object that is about to be linked.
    pub(super) fn begin(&mut self, number: Number) {
        self.open.insert(number, Object::default());
    }

    /// Returns whether an object is neither ready nor failed.
    pub(super) fn is_open(&self, number: Number) -> bool {
        self.open.contains_key(&number)
    }

    /// Records the objects that an object refers to. Those that are not open are ready.
    pub(super) fn need(&mut self, number: Number, others: impl IntoIterator<Item = Number>) {
        let others: HashSet<Number> =
            others.into_iter().filter(|other| *other != number && self.is_open(*other)).collect();
        if let Some(object) = self.open.get_mut(&number) {
            object.needs = others.into_iter().collect();
            object.needs.sort_unstable();
        }
    }

    /// Records that an object is linked.
    pub(super) fn linked(&mut self, number: Number) -> Settled {
        let mut settled = Settled::default();
        match self.open.get_mut(&number) {
            Some(object) if object.state == State::Doomed => {
                self.open.remove(&number);
                settled.failed.push(number);
            }
            Some(object) => object.state = State::Linked,
            None => return settled,
        }
        let mut look = vec![number];
        while let Some(next) = look.pop() {
            look.append(&mut self.settle(next, &mut settled));
        }
        settled
    }

    /// Records that an object failed, or was removed. Objects that reach it fail with it; those among them that are
    /// still being linked fail once they are.
    pub(super) fn fail(&mut self, number: Number) -> Settled {
        let mut settled = Settled::default();
        if !self.is_open(number) {
            return settled;
        }
        // Failures are rare: nothing is kept for them.
        let mut referring: HashMap<Number, Vec<Number>> = HashMap::new();
        for (from, object) in &self.open {
            object.needs.iter().for_each(|to| referring.entry(*to).or_default().push(*from));
        }
        let (mut seen, mut next) = (HashSet::from([number]), vec![number]);
        while let Some(failed) = next.pop() {
            next.extend(referring.get(&failed).into_iter().flatten().filter(|from| seen.insert(**from)));
            match self.open.get_mut(&failed) {
                Some(object) if object.state != State::Linked && failed != number => object.state = State::Doomed,
                _ => {
                    self.open.remove(&failed);
                    settled.failed.push(failed);
                }
            }
        }
        settled
    }

    /// Makes a linked object ready, with all that it reaches, or has it watch. Returns the objects that have to look
    /// again.
    fn settle(&mut self, number: Number, settled: &mut Settled) -> Vec<Number> {
        if self.open.get(&number).is_none_or(|object| object.state != State::Linked) {
            return Vec::new();
        }
        let reached = match self.reach(number) {
            Ok(reached) => reached,
            Err(watched) => {
                self.open.entry(number).and_modify(|object| object.watches = Some(watched));
                self.open.entry(watched).and_modify(|object| object.watched_by.push(number));
                return Vec::new();
            }
        };
        settled.ready.extend(self.groups(&reached));
        let gone: Vec<Object> = reached.iter().filter_map(|ready| self.open.remove(ready)).collect();
        gone.into_iter().flat_map(|object| object.watched_by).collect()
    }

    /// Returns an object and all that it reaches; `Err` with one of them that is still being linked.
    fn reach(&mut self, from: Number) -> Result<Vec<Number>, Number> {
        self.open.entry(from).and_modify(|object| object.watches = None);
        let (mut seen, mut reached) = (HashSet::from([from]), vec![from]);
        let mut next = 0;
        while let Some(&number) = reached.get(next) {
            next += 1;
            // From the end, where ready ones go: whoever needs many and is woken often does not see them again.
            let mut needs =
                self.open.get_mut(&number).map(|object| std::mem::take(&mut object.needs)).unwrap_or_default();
            while needs.last().is_some_and(|need| !self.is_open(*need)) {
                needs.pop();
            }
            let waits_for = needs.iter().rev().find_map(|need| self.still_linking(*need));
            if waits_for.is_none() {
                reached.extend(needs.iter().filter(|need| self.open.contains_key(need) && seen.insert(**need)));
            }
            self.open.entry(number).and_modify(|object| object.needs = needs);
            if let Some(linking) = waits_for {
                return Err(linking);
            }
        }
        Ok(reached)
    }

    /// Follows what an object watches to one that is still being linked; `None` where that has to be found out anew.
    fn still_linking(&mut self, number: Number) -> Option<Number> {
        let mut path = Vec::new();
        let mut at = number;
        let end = loop {
            match self.open.get(&at) {
                Some(object) if object.state != State::Linked => break at,
                Some(Object { watches: Some(next), .. }) => {
                    path.push(at);
                    at = *next;
                }
                _ => return None,
            }
        };
        // The next one to come this way takes one step.
        for passed in path {
            self.open.entry(passed).and_modify(|object| object.watches = Some(end));
        }
        Some(end)
    }

    /// Returns the strongly connected groups of these objects, each behind those that it refers to (R. Tarjan, "Depth-
    /// first search and linear graph algorithms", 1972).
    fn groups(&self, objects: &[Number]) -> Vec<Vec<Number>> {
        /// Order of discovery, the earliest object that it reaches, and whether its group is still open.
        struct Mark {
            order: usize,
            low: usize,
            on_stack: bool,
        }
        let mut marks: HashMap<Number, Mark> = HashMap::new();
        let (mut stack, mut groups) = (Vec::new(), Vec::new());
        let needs = |number: Number| self.open.get(&number).map_or(&[][..], |object| &object.needs);
        for &root in objects {
            // Positions in the lists of needs, in place of recursion: chains are long.
            let mut path: Vec<(Number, usize)> = Vec::new();
            if !marks.contains_key(&root) {
                path.push((root, 0));
            }
            while let Some((number, position)) = path.last_mut() {
                let number = *number;
                if *position == 0 {
                    let order = marks.len();
                    marks.entry(number).or_insert_with(|| {
                        stack.push(number);
                        Mark { order, low: order, on_stack: true }
                    });
                }
                let next = needs(number).get(*position).copied();
                *position += 1;
                if let Some(next) = next {
                    match marks.get(&next) {
                        None if self.is_open(next) => path.push((next, 0)),
                        Some(Mark { order, on_stack: true, .. }) => {
                            let low = *order;
                            marks.entry(number).and_modify(|mark| mark.low = mark.low.min(low));
                        }
                        _ => {}
                    }
                    continue;
                }
                path.pop();
                let Some(&Mark { order, low, .. }) = marks.get(&number) else { continue };
                if let Some((parent, _)) = path.last() {
                    marks.entry(*parent).and_modify(|mark| mark.low = mark.low.min(low));
                }
                if order == low {
                    let start = stack.iter().rposition(|member| *member == number).unwrap_or_default();
                    let group = stack.split_off(start);
                    for member in &group {
                        marks.entry(*member).and_modify(|mark| mark.on_stack = false);
                    }
                    groups.push(group);
                }
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by definition: an object is ready once everything in its closure is linked.
    #[derive(Default)]
    struct Plain {
        needs: HashMap<Number, HashSet<Number>>,
        linked: HashSet<Number>,
        gone: HashSet<Number>,
    }

    impl Plain {
        fn closure(&self, from: Number) -> HashSet<Number> {
            let (mut seen, mut next) = (HashSet::from([from]), vec![from]);
            while let Some(at) = next.pop() {
                next.extend(
                    self.needs.get(&at).into_iter().flatten().filter(|n| !self.gone.contains(n) && seen.insert(**n)),
                );
            }
            seen
        }

        fn ready(&mut self) -> HashSet<Number> {
            let ready = |n: &&Number| self.closure(**n).is_subset(&self.linked);
            let ready: HashSet<Number> = self.linked.iter().filter(ready).copied().collect();
            self.linked.retain(|n| !ready.contains(n));
            self.gone.extend(&ready);
            ready
        }
    }

    fn random(state: &mut u64) -> Number {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 32) as Number
    }

    #[test]
    fn readiness_is_that_of_closures() {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        for round in 0..2000 {
            let n = 2 + round % 12;
            let (mut ours, mut plain) = (Readiness::default(), Plain::default());
            (0..n).for_each(|number| ours.begin(number));
            let mut order: Vec<Number> = (0..n).collect();
            (0..n as usize).for_each(|i| order.swap(i, (random(&mut state) % n) as usize));
            for number in 0..n {
                let needs: HashSet<Number> = (0..random(&mut state) % 3).map(|_| random(&mut state) % n).collect();
                ours.need(number, needs.clone());
                plain.needs.insert(number, needs);
            }
            for &number in &order {
                let before = plain.gone.clone();
                plain.linked.insert(number);
                let expected = plain.ready();
                let settled = ours.linked(number);
                assert_eq!(settled.ready.iter().flatten().copied().collect::<HashSet<_>>(), expected);
                // Members of a group reach each other, and nothing that comes later.
                let mut earlier = before;
                for group in &settled.ready {
                    plain.gone = earlier.clone();
                    for &member in group {
                        let reached = plain.closure(member);
                        assert_eq!(reached, group.iter().copied().collect(), "{group:?}");
                    }
                    earlier.extend(group);
                }
                plain.gone = earlier;
            }
            assert!(ours.open.is_empty(), "{ours:?}");
        }
    }

    #[test]
    fn what_reaches_a_failure_fails() {
        let mut all = Readiness::default();
        (0..5).for_each(|number| all.begin(number));
        // 0 → 1 → 2, 3 → 2, 4 alone.
        all.need(0, [1]);
        all.need(1, [2]);
        all.need(3, [2]);
        assert_eq!(all.linked(0), Settled::default());
        assert_eq!(all.linked(1), Settled::default());
        let mut settled = all.fail(2);
        settled.failed.sort_unstable();
        // 3 is still being linked.
        assert_eq!(settled, Settled { ready: vec![], failed: vec![0, 1, 2] });
        assert_eq!(all.linked(3), Settled { ready: vec![], failed: vec![3] });
        assert_eq!(all.linked(4), Settled { ready: vec![vec![4]], failed: vec![] });
    }

    /// Counted in steps, not in time: a chain, and one object that needs all others, in the worst orders.
    #[test]
    fn chains_and_stars_of_a_hundred_thousand() {
        const N: Number = 100_000;
        for order in [true, false] {
            let mut all = Readiness::default();
            (0..=N).for_each(|number| all.begin(number));
            (0..N).for_each(|number| all.need(number, [number + 1]));
            let mut ready = 0;
            for i in 0..=N {
                ready += all.linked(if order { i } else { N - i }).ready.len();
            }
            assert_eq!(ready, N as usize + 1);
        }
        let mut all = Readiness::default();
        (0..=N).for_each(|number| all.begin(number));
        all.need(N, 0..N);
        let mut ready = all.linked(N).ready.len();
        ready += (0..N).map(|number| all.linked(number).ready.len()).sum::<usize>();
        assert_eq!(ready, N as usize + 1);
    }
}
