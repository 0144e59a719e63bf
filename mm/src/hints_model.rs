//! Model of the protocol between CPUs that note freed blocks and the hinter, run by loom in all
//! interleavings: no entry stays in a list while the hinter sleeps and no CPU wakes it.

use loom::{
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    },
    thread,
};

use super::{Calls, Hint, HintList, Ordering};
use crate::Frame;

/// A hinter, two CPUs with a list each, and blocks that are free or not.
struct Model {
    calls: Calls,
    lists: [HintList; 2],
    /// Whether a CPU has woken the hinter since the hinter last looked.
    wanted: AtomicBool,
    free: [AtomicU32; 4],
}

impl Model {
    fn new(limit: usize) -> Self {
        let calls = Calls::new();
        calls.set_limit(limit);
        Self {
            calls,
            lists: [HintList::new(), HintList::new()],
            wanted: AtomicBool::new(false),
            free: core::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Frees a block, and wakes the hinter if that is necessary.
    fn free(&self, cpu: usize, block: usize) {
        self.free[block].store(1, Ordering::Relaxed);
        let hint = Hint::block(Frame::new(block as u64 * 512));
        if self.calls.note(Some(&self.lists[cpu]), hint) {
            // An exchange, as loom does not order a store after an exchange that did not see it.
            self.wanted.swap(true, Ordering::Release);
        }
    }

    fn give(&self, hint: Hint) {
        let block = &self.free[hint.blocks().0 as usize];
        // An entry exists, so the block must be seen as free.
        assert_eq!(block.swap(2, Ordering::Relaxed), 1);
    }

    /// Does what the hinter does in a poll. Returns `true` if the hinter polls again by itself.
    fn work(&self, due: bool) -> bool {
        self.calls.work();
        if self.calls.take_missed() {
            for block in &self.free {
                let _ = block.compare_exchange(1, 2, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
        for list in &self.lists {
            if due || self.calls.is_full(list.len()) {
                list.take(|hint| self.give(hint));
            }
        }
        let knows = self.lists.iter().any(|list| list.len() != 0);
        knows | !self.calls.rest(knows, &self.lists)
    }

    /// Runs the hinter, which is asleep at first, for a number of turns. It polls when it was woken
    /// or set itself a time. Returns `true` if it polls again by itself.
    fn turns(&self, turns: usize) -> bool {
        let mut again = false;
        for _ in 0..turns {
            if self.wanted.swap(false, Ordering::Acquire) || again {
                again = self.work(again);
            }
        }
        again
    }

    #[track_caller]
    fn must_be_done(&self, blocks: usize, comes: bool) {
        let given = |block: &AtomicU32| block.load(Ordering::Relaxed) == 2;
        assert!(
            comes || self.wanted.load(Ordering::Relaxed) || self.free[..blocks].iter().all(given),
            "something is left, and no hinter comes"
        );
    }
}

fn check(limit: usize, turns: usize, per_cpu: usize) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let model = Arc::new(Model::new(limit));
        assert!(
            model.calls.rest(false, &model.lists),
            "nothing is there yet"
        );
        let cpus: std::vec::Vec<_> = (0..2)
            .map(|cpu| {
                let model = model.clone();
                thread::spawn(move || {
                    for block in 0..per_cpu {
                        model.free(cpu, cpu * per_cpu + block);
                    }
                })
            })
            .collect();
        let comes = model.turns(turns);
        for cpu in cpus {
            cpu.join().expect("no panic");
        }
        model.must_be_done(2 * per_cpu, comes);
        // The hinter polls until it rests. All blocks must be given back then.
        let mut comes = comes;
        for _ in 0..4 {
            if comes || model.wanted.swap(false, Ordering::Acquire) {
                comes = model.work(comes);
            }
        }
        assert!(!comes && !model.wanted.load(Ordering::Relaxed));
        model.must_be_done(2 * per_cpu, false);
    });
}

#[test]
fn what_is_noted_while_the_worker_falls_asleep_is_not_left() {
    check(2, 2, 1);
}

#[test]
fn a_list_that_fills_while_the_worker_decides_to_wait_is_not_left() {
    check(2, 1, 2);
}

#[test]
fn each_entry_of_a_list_of_one_calls() {
    check(1, 2, 1);
}
