//! Compares semaphore sets with a model that tries all calls again after every change.

use crate::errno::Errno;
use crate::semaphores::{Attempt, Caller, MAX_VALUE, Operation, Set};
use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

const NO_UNDO: Caller = Caller { pid: 7, undo: None };

fn op(semaphore: u16, change: i16) -> Operation {
    Operation {
        semaphore,
        change,
        nowait: false,
        undo: false,
    }
}

fn undo(semaphore: u16, change: i16) -> Operation {
    Operation {
        undo: true,
        ..op(semaphore, change)
    }
}

/// Does the work of `semop` for `caller`. `who` identifies the call. Returns its ticket if it
/// waits, and `None` if it ended. Adds all calls that end, and their results, to `ended`.
fn semop(
    set: &mut Set<u32>,
    who: u32,
    caller: Caller,
    operations: &[Operation],
    ended: &mut Vec<(u32, Result<(), Errno>)>,
) -> Option<u64> {
    if caller.undo.is_some() {
        set.prepare(caller.undo.unwrap_or(0)).expect("memory");
    }
    match set.attempt(operations, caller) {
        Ok(Attempt::Done) => {
            ended.push((who, Ok(())));
            let changed: Vec<_> = operations.iter().map(|one| one.semaphore).collect();
            set.settle(changed, &mut |who, result| ended.push((who, result)));
            None
        }
        Ok(Attempt::Blocked(at)) => Some(set.wait(Box::from(operations), caller, at, who)),
        Err(error) => {
            ended.push((who, Err(error)));
            None
        }
    }
}

fn set(values: &[u16]) -> Set<u32> {
    let mut set = Set::new(values.len()).expect("memory");
    set.set_all(values, 1);
    set
}

fn values(set: &Set<u32>) -> Vec<u16> {
    set.values().collect()
}

#[test]
fn all_or_nothing() {
    let mut s = set(&[3, 0, 5]);
    let calls = [op(0, -3), op(2, -4), op(1, -1)];
    assert_eq!(s.attempt(&calls, NO_UNDO), Ok(Attempt::Blocked(2)));
    assert_eq!(values(&s), [3, 0, 5]);
    let nowait = Operation {
        nowait: true,
        ..op(1, -1)
    };
    assert_eq!(s.attempt(&[op(0, -3), nowait], NO_UNDO), Err(Errno::EAGAIN));
    assert_eq!(
        s.attempt(&[op(0, 1), op(2, i16::MAX)], NO_UNDO),
        Err(Errno::ERANGE)
    );
    assert_eq!(s.attempt(&[op(0, 1), op(3, 1)], NO_UNDO), Err(Errno::EFBIG));
    assert_eq!(values(&s), [3, 0, 5]);
    assert_eq!(s.value(0), Some((3, 1)));
    assert_eq!(
        s.attempt(&[op(0, -3), op(0, 0), op(0, 9)], NO_UNDO),
        Ok(Attempt::Done)
    );
    assert_eq!(
        (s.value(0), s.value(1), s.value(3)),
        (Some((9, 7)), Some((0, 1)), None)
    );
}

#[test]
fn adjustments_stay_in_bounds_and_are_undone() {
    let mut s = set(&[10]);
    let mine = Caller {
        pid: 3,
        undo: Some(1),
    };
    assert_eq!(
        s.attempt(&[undo(0, 1)], mine),
        Err(Errno::ENOMEM),
        "not prepared"
    );
    assert_eq!((s.prepare(1), s.prepare(1)), (Ok(true), Ok(false)));
    assert_eq!(s.attempt(&[undo(0, -4)], mine), Ok(Attempt::Done));
    assert_eq!(
        s.attempt(&[undo(0, -1), undo(0, -7)], mine),
        Ok(Attempt::Blocked(1))
    );
    s.undo(1, 9);
    assert_eq!(s.value(0), Some((10, 9)));
    // An adjustment has the same bounds as a value.
    s.prepare(2).expect("memory");
    let other = Caller {
        pid: 4,
        undo: Some(2),
    };
    for _ in 0..2 {
        assert!(s.set_value(0, MAX_VALUE, 1));
        assert_eq!(s.attempt(&[undo(0, -i16::MAX)], other), Ok(Attempt::Done));
    }
    assert_eq!(
        s.attempt(&[op(0, 1), op(0, -1)], NO_UNDO),
        Ok(Attempt::Done)
    );
    assert_eq!(
        s.attempt(&[op(0, 2), undo(0, -1)], other),
        Err(Errno::ERANGE)
    );
    s.undo(2, 4);
    assert_eq!(values(&s), [MAX_VALUE], "no more than fits");
    assert_eq!(s.owners().count(), 0);
}

#[test]
fn setting_a_value_forgets_adjustments() {
    let mut s = set(&[5, 5]);
    let mine = Caller {
        pid: 3,
        undo: Some(1),
    };
    s.prepare(1).expect("memory");
    assert_eq!(
        s.attempt(&[undo(0, -2), undo(1, 3)], mine),
        Ok(Attempt::Done)
    );
    assert!(s.set_value(0, 1, 2) && !s.set_value(2, 1, 2));
    s.undo(1, 3);
    assert_eq!(values(&s), [1, 5]);
}

#[test]
fn those_that_wait_go_on_in_order() {
    let mut s = set(&[0]);
    let mut ended = Vec::new();
    for (who, change) in [(1, -2), (2, -1), (3, -2), (4, -1)] {
        assert!(semop(&mut s, who, NO_UNDO, &[op(0, change)], &mut ended).is_some());
    }
    assert_eq!(
        (s.count_waiting(0, false), s.count_waiting(0, true)),
        (4, 0)
    );
    semop(&mut s, 5, NO_UNDO, &[op(0, 1)], &mut ended);
    assert_eq!(ended, [(5, Ok(())), (2, Ok(()))], "the first needs more");
    ended.clear();
    semop(&mut s, 6, NO_UNDO, &[op(0, 3)], &mut ended);
    assert_eq!(ended, [(6, Ok(())), (1, Ok(())), (4, Ok(()))]);
    ended.clear();
    s.close(&mut |who, result| ended.push((who, result)));
    assert_eq!(ended, [(3, Err(Errno::EIDRM))]);
}

#[test]
fn one_that_goes_on_makes_others_possible() {
    let mut s = set(&[1, 0]);
    let mut ended = Vec::new();
    // A lock in a frequent form: wait for zero, then increase.
    semop(&mut s, 1, NO_UNDO, &[op(0, 0), op(0, 1)], &mut ended);
    semop(&mut s, 2, NO_UNDO, &[op(1, -1)], &mut ended);
    semop(&mut s, 3, NO_UNDO, &[op(0, 0), op(1, 1)], &mut ended);
    semop(&mut s, 4, NO_UNDO, &[op(0, 0)], &mut ended);
    assert!(ended.is_empty());
    assert_eq!(
        (s.count_waiting(0, true), s.count_waiting(1, false)),
        (3, 1)
    );
    semop(&mut s, 5, NO_UNDO, &[op(0, -1)], &mut ended);
    // The call that only waits for zero comes first, then the lock is taken.
    assert_eq!(ended, [(5, Ok(())), (4, Ok(())), (1, Ok(()))]);
    ended.clear();
    semop(&mut s, 6, NO_UNDO, &[op(0, -1)], &mut ended);
    assert_eq!(ended, [(6, Ok(())), (3, Ok(())), (2, Ok(()))]);
}

/// A model that tries everything.
#[derive(Default)]
struct Model {
    values: Vec<i32>,
    adjustments: BTreeMap<u64, Vec<i32>>,
    waiting: Vec<(u32, Caller, Vec<Operation>)>,
}

impl Model {
    fn attempt(&mut self, operations: &[Operation], caller: Caller) -> Option<Result<(), Errno>> {
        let (mut values, mut adjustments) = (self.values.clone(), self.adjustments.clone());
        for one in operations {
            let at = usize::from(one.semaphore);
            if one.change == 0 && values[at] != 0 || values[at] + i32::from(one.change) < 0 {
                return one.nowait.then_some(Err(Errno::EAGAIN));
            }
            values[at] += i32::from(one.change);
            if values[at] > i32::from(MAX_VALUE) {
                return Some(Err(Errno::ERANGE));
            }
            if one.undo {
                let count = values.len();
                let mine = adjustments.entry(caller.undo.expect("an owner"));
                mine.or_insert_with(|| std::vec![0; count])[at] -= i32::from(one.change);
            }
        }
        (self.values, self.adjustments) = (values, adjustments);
        Some(Ok(()))
    }

    fn settle(&mut self, ended: &mut Vec<(u32, Result<(), Errno>)>) {
        'again: loop {
            for altering in [false, true] {
                for at in 0..self.waiting.len() {
                    let (who, caller, operations) = self.waiting[at].clone();
                    if operations.iter().any(|one| one.change != 0) == altering
                        && let Some(result) = self.attempt(&operations, caller)
                    {
                        self.waiting.remove(at);
                        ended.push((who, result));
                        continue 'again;
                    }
                }
            }
            return;
        }
    }
}

#[test]
fn a_model_says_the_same() {
    const SEED: u64 = 0x5e3a;
    let mut state = SEED;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for round in 0..300 {
        let count = 1 + random(3) as usize;
        // Every other round has only simple operations, which take another path.
        let longest = if round % 2 == 0 { 1 } else { 3 };
        let mut s = set(&std::vec![0; count]);
        let mut model = Model {
            values: std::vec![0; count],
            ..Model::default()
        };
        let mut tickets: BTreeMap<u32, u64> = BTreeMap::new();
        for who in 0..120 {
            let (mut ended, mut expected) = (Vec::new(), Vec::new());
            match random(12) {
                0 => {
                    let (at, value) = (random(count as u64) as u16, random(4) as u16);
                    s.set_value(at, value, 1);
                    s.settle([at], &mut |who, result| ended.push((who, result)));
                    model.values[usize::from(at)] = i32::from(value);
                    for adjustments in model.adjustments.values_mut() {
                        adjustments[usize::from(at)] = 0;
                    }
                    model.settle(&mut expected);
                }
                1 => {
                    let owner = random(3);
                    // An owner that waits cannot end.
                    if model.waiting.iter().all(|(_, c, _)| c.undo != Some(owner)) {
                        s.undo(owner, 1);
                        let all = 0..count as u16;
                        s.settle(all, &mut |who, result| ended.push((who, result)));
                        for (at, by) in model
                            .adjustments
                            .remove(&owner)
                            .iter()
                            .flatten()
                            .enumerate()
                        {
                            let sum = model.values[at] + by;
                            model.values[at] = sum.clamp(0, i32::from(MAX_VALUE));
                        }
                        model.settle(&mut expected);
                    }
                }
                2 if !tickets.is_empty() => {
                    let at = random(tickets.len() as u64) as usize;
                    let (&gone, &ticket) = tickets.iter().nth(at).expect("it is there");
                    assert_eq!(s.cancel(ticket), Some(gone), "seed {SEED}");
                    assert_eq!(s.cancel(ticket), None, "seed {SEED}");
                    tickets.remove(&gone);
                    model.waiting.retain(|(who, _, _)| *who != gone);
                }
                _ => {
                    let caller = Caller {
                        pid: 1,
                        undo: Some(random(3)),
                    };
                    let operations: Vec<_> = (0..1 + random(longest))
                        .map(|_| Operation {
                            semaphore: random(count as u64) as u16,
                            change: random(5) as i16 - 2,
                            nowait: random(8) == 0,
                            undo: random(3) == 0,
                        })
                        .collect();
                    if let Some(ticket) = semop(&mut s, who, caller, &operations, &mut ended) {
                        tickets.insert(who, ticket);
                    }
                    match model.attempt(&operations, caller) {
                        Some(result) => {
                            expected.push((who, result));
                            if result.is_ok() {
                                model.settle(&mut expected);
                            }
                        }
                        None => model.waiting.push((who, caller, operations)),
                    }
                }
            }
            for (who, _) in &ended {
                tickets.remove(who);
            }
            // Simple operations on different semaphores have no order among each other.
            ended.sort_by_key(|end| end.0);
            expected.sort_by_key(|end| end.0);
            assert_eq!(ended, expected, "seed {SEED} round {round} call {who}");
            let values: Vec<_> = s.values().map(i32::from).collect();
            assert_eq!(values, model.values, "seed {SEED} round {round} call {who}");
            assert_eq!(tickets.len(), model.waiting.len(), "seed {SEED}");
        }
    }
}
