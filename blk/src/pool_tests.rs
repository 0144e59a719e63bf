//! Compares the pool with a simple model that has a state for each page.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

use super::*;
use proptest::prelude::*;

const CAPACITY: u32 = 96;

/// Records the pages that the pool returns to the system.
#[derive(Debug, Default)]
struct Recorder {
    released: Vec<PageIndex>,
    calls: u32,
}

impl Backing for Recorder {
    fn release(&mut self, first: PageIndex, count: u32) {
        self.released
            .extend((first.0..first.0 + count).map(PageIndex));
        self.calls += 1;
    }
}

/// The state of a page in the model.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    Absent,
    Kept { since: u64 },
    InUse,
}

/// A random step.
#[derive(Clone, Debug)]
enum Step {
    Take(u32),
    Put(usize),
    Shrink(u32),
    Trim,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..CAPACITY + 8).prop_map(Step::Take),
        any::<usize>().prop_map(Step::Put),
        (0..CAPACITY).prop_map(Step::Shrink),
        Just(Step::Trim),
    ]
}

proptest! {
    #[test]
    fn every_page_is_where_the_model_says(steps in prop::collection::vec(step(), 1..120)) {
        let mut pool = Pool::new(Recorder::default(), CAPACITY);
        let mut model = vec![State::Absent; CAPACITY as usize];
        let mut held: Vec<Batch> = Vec::new();
        let mut fewest = 0;
        for (clock, step) in (1_u64..).zip(steps) {
            match step {
                Step::Take(count) => {
                    let free = model.iter().filter(|s| **s != State::InUse).count();
                    let kept = model.iter().filter(|s| matches!(s, State::Kept { .. })).count();
                    let batch = pool.take(count);
                    prop_assert_eq!(batch.is_some(), count as usize <= free);
                    let Some(batch) = batch else { continue };
                    prop_assert_eq!(batch.pages().len(), count as usize);
                    let reused = batch.pages().iter()
                        .filter(|p| matches!(model[p.0 as usize], State::Kept { .. })).count();
                    prop_assert_eq!(reused, kept.min(count as usize), "kept pages come first");
                    for page in batch.pages() {
                        prop_assert_ne!(model[page.0 as usize], State::InUse);
                        model[page.0 as usize] = State::InUse;
                    }
                    held.push(batch);
                }
                Step::Put(which) => {
                    if held.is_empty() { continue }
                    let batch = held.swap_remove(which % held.len());
                    for page in batch.pages() {
                        model[page.0 as usize] = State::Kept { since: clock };
                    }
                    pool.put(batch);
                }
                Step::Shrink(_) | Step::Trim => {
                    let kept = model.iter().filter(|s| matches!(s, State::Kept { .. })).count();
                    pool.backing.released.clear();
                    let resident = model.iter().filter(|s| **s != State::Absent).count();
                    let unneeded = fewest.min(kept);
                    let (gone, expected) = match step {
                        Step::Shrink(limit) => {
                            (pool.shrink(limit), kept.saturating_sub(limit as usize))
                        }
                        _ if unneeded * 4 < resident => (pool.trim(), 0),
                        _ => (pool.trim(), unneeded),
                    };
                    prop_assert_eq!(gone as usize, expected);
                    if matches!(step, Step::Trim) {
                        fewest = usize::MAX;
                    }
                    prop_assert_eq!(pool.backing.released.len(), gone as usize);
                    let mut youngest_gone = 0;
                    for page in pool.backing.released.clone() {
                        let State::Kept { since } = model[page.0 as usize] else {
                            return Err(TestCaseError::fail("released a page that was not kept"));
                        };
                        youngest_gone = youngest_gone.max(since);
                        model[page.0 as usize] = State::Absent;
                    }
                    let oldest_left = model.iter().filter_map(|s| match s {
                        State::Kept { since } => Some(*since),
                        _ => None,
                    }).min();
                    prop_assert!(oldest_left.is_none_or(|oldest| oldest >= youngest_gone));
                }
            }
            let counts = pool.counts();
            let in_use = model.iter().filter(|s| **s == State::InUse).count();
            let kept = model.iter().filter(|s| matches!(s, State::Kept { .. })).count();
            prop_assert_eq!((counts.in_use as usize, counts.free as usize), (in_use, kept));
            fewest = fewest.min(kept);
        }
    }
}

/// A busy pool keeps the pages that it will need again, and an idle one is emptied.
#[test]
fn what_varies_from_look_to_look_is_kept() {
    let mut pool = Pool::new(Recorder::default(), CAPACITY);
    let batch = pool.take(40).unwrap();
    pool.put(batch);
    for needed in [38, 31, 40, 33] {
        let batch = pool.take(needed).unwrap();
        pool.put(batch);
        assert_eq!(pool.trim(), 0);
    }
    let batch = pool.take(30).unwrap();
    pool.put(batch);
    assert_eq!((pool.trim(), pool.counts().free), (10, 30));
    assert_eq!((pool.trim(), pool.counts().free), (30, 0));
}

#[test]
fn neighbours_are_released_together() {
    let mut pool = Pool::new(Recorder::default(), CAPACITY);
    let batch = pool.take(40).unwrap();
    pool.put(batch);
    pool.shrink(0);
    assert_eq!(pool.backing.calls, 1);
}

const MS: u64 = 1000;

fn times(every_batch_ms: u64, all_ms: u64) -> SqueezeTimes {
    SqueezeTimes {
        every_batch: Duration::from_millis(every_batch_ms),
        all: Duration::from_millis(all_ms),
    }
}

#[test]
fn a_squeeze_lasts_as_long_as_was_said() {
    let mut squeeze = Squeeze::default();
    assert!(!squeeze.take_event() && !squeeze.active(Micros(5 * MS)));
    squeeze.begin(Micros(5 * MS), times(1, 10));
    assert!(squeeze.returns_every_batch(Micros(6 * MS - 1)));
    assert!(!squeeze.returns_every_batch(Micros(6 * MS)));
    let end = Micros(15 * MS);
    assert!(squeeze.active(Micros(end.0 - 1)));
    assert!(!squeeze.active(end));
}

#[test]
fn an_event_counts_once_even_if_it_is_seen_late() {
    let mut squeeze = Squeeze::default();
    squeeze.begin(Micros(5 * MS), times(1, 1));
    assert!(!squeeze.active(Micros(500 * MS)));
    assert!(squeeze.take_event());
    assert!(!squeeze.take_event());
}

#[test]
fn the_last_event_sets_the_end() {
    let mut squeeze = Squeeze::default();
    squeeze.begin(Micros(100 * MS), times(10, 10));
    squeeze.begin(Micros(105 * MS), times(10, 10));
    assert!(squeeze.active(Micros(115 * MS - 1)));
    assert!(!squeeze.active(Micros(115 * MS)));
    squeeze.begin(Micros(116 * MS), times(10, 3_600_000));
    squeeze.begin(Micros(117 * MS), times(1, 1));
    assert!(squeeze.active(Micros(118 * MS - 1)));
    assert!(!squeeze.active(Micros(118 * MS)));
}
