//! Loom models of a few operations on one pageblock. Loom runs them in every interleaving: `cargo
//! test -p ebb-mm-models --release`.

use std::{vec, vec::Vec};

use loom::{cell::UnsafeCell, model::Builder, sync::Arc, thread};

use crate::{
    Mobility, Order,
    bitmap::{Line, Taken, WORDS},
    block::{Block, Watch, words},
    gib::AtomicGib,
    run_bound::{AtomicRunBound, RunBound},
    state::{Admission, AtomicState, Change, Class, State},
};

/// The number of preemptions that loom explores in one execution. Loom's authors report that 2 or 3
/// find nearly all faults.
const PREEMPTIONS: usize = 3;

/// A [`Watch`] (observer of a pageblock's state) that ignores every change.
#[derive(Debug)]
pub(crate) struct Unwatched;

impl Watch for Unwatched {
    fn enter(&self) -> bool {
        true
    }
    fn leave(&self) {}
    fn changed(&self, _: Change) {}
    fn run_bound_changed(&self, _: RunBound) {}
}

/// A [`Watch`] that counts the pageblock in the word of its GiB, as a zone does.
pub(crate) struct InGib<'a>(&'a AtomicGib);

impl Watch for InGib<'_> {
    fn enter(&self) -> bool {
        self.0.enter(|| ())
    }
    fn leave(&self) {
        self.0.leave();
    }
    fn changed(&self, change: Change) {
        if change.new.is_free() && !change.old.is_free() {
            self.leave();
        }
    }
    fn run_bound_changed(&self, _: RunBound) {}
}

/// The metadata of one pageblock and of its GiB. Each bitmap word has a cell that stands for the
/// contents of its 64 frames.
pub(crate) struct Memory {
    pub(crate) state: AtomicState,
    bits: Line,
    touched: Line,
    run_bound: AtomicRunBound,
    pub(crate) gib: AtomicGib,
    frames: [UnsafeCell<u32>; WORDS],
}

/// Admits movable frames to a pageblock of the same mobility or to a free one, without exact
/// touched bits.
pub(crate) const ADMIT: Admission = Admission {
    mobility: Mobility::Movable,
    any: false,
    exact_marks: false,
    hold: false,
    open: false,
};
/// Like [`ADMIT`], with exact touched bits for the frames.
const EXACT_MARKS: Admission = Admission {
    exact_marks: true,
    ..ADMIT
};

impl Memory {
    /// Returns zeroed metadata, in which the whole pageblock is free and untouched.
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicState::zero(),
            bits: Line::zero(),
            touched: Line::zero(),
            run_bound: AtomicRunBound::zero(),
            gib: AtomicGib::zero(),
            frames: core::array::from_fn(|_| UnsafeCell::new(0)),
        }
    }

    /// Returns a pageblock in which only the bitmap words in `free` are free. The other words are
    /// allocated.
    fn with_free(free: &[usize]) -> Self {
        let memory = Self::new();
        for word in (0..WORDS).filter(|word| !free.contains(word)) {
            assert!(memory.block().take_exactly(Taken { word, mask: !0 }, ADMIT));
        }
        memory
    }

    /// Returns the pageblock without a GiB above it.
    pub(crate) fn block(&self) -> Block<'_, Unwatched> {
        Block {
            state: &self.state,
            bits: &self.bits,
            touched: Some(&self.touched),
            run_bound: &self.run_bound,
            watch: Unwatched,
        }
    }

    /// Returns the pageblock as the only pageblock of its GiB. It has no touched bits for single
    /// frames.
    pub(crate) fn block_of_gib(&self) -> Block<'_, InGib<'_>> {
        Block {
            state: &self.state,
            bits: &self.bits,
            touched: None,
            run_bound: &self.run_bound,
            watch: InGib(&self.gib),
        }
    }

    /// Writes to the cells of `words`. Loom fails if another thread accesses a cell without an
    /// ordering between the two accesses.
    pub(crate) fn write(&self, words: impl IntoIterator<Item = usize>) {
        for word in words {
            // SAFETY: the caller owns frames of the word. Loom fails the test if another thread
            // owns them too.
            #[allow(unsafe_code, reason = "the access that loom watches")]
            self.frames[word].with_mut(|frame| unsafe { *frame += 1 });
        }
    }

    /// Asserts that the whole pageblock is free.
    pub(crate) fn assert_free(&self) {
        assert_eq!(self.bits.count_ones(), 0);
        assert!(self.state.load().is_free());
    }
}

/// Runs `threads` on the memory that `start` makes, in every interleaving, and calls `end` after
/// each execution.
pub(crate) fn check(threads: Vec<fn(&Memory)>, start: fn() -> Memory, end: fn(&Memory)) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(move || {
        let memory = Arc::new(start());
        let threads: Vec<_> = threads
            .iter()
            .map(|&run| {
                let memory = memory.clone();
                thread::spawn(move || run(&memory))
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        end(&memory);
    });
}

fn order(order: u8) -> Order {
    Order::new(order).expect("an order")
}

/// Allocates a free run of order `of`, writes to it and frees it. Returns `false` if there was no
/// run.
fn take_run(memory: &Memory, of: Order) -> bool {
    let Some(first) = memory.block().take_run(of, ADMIT) else {
        return false;
    };
    memory.write(words(first, 1 << of.get()).map(|taken| taken.word));
    memory.block().give_run(first, of);
    true
}

/// Allocates up to 64 frames of one bitmap word, writes to them and frees them. Returns `false` if
/// there was none.
pub(crate) fn take_word(memory: &Memory) -> bool {
    let Some(taken) = memory.block().take_word(64, ADMIT) else {
        return false;
    };
    memory.write([taken.word]);
    memory.block().give_word(taken);
    true
}

// In each of these tests more frames are free than the threads request. Otherwise the count alone
// would keep the threads apart.

#[test]
fn a_run_of_order_7_is_not_shared_with_a_word() {
    check(
        vec![|m| _ = take_run(m, order(7)), |m| _ = take_word(m)],
        || Memory::with_free(&[2, 3, 5]),
        |m| assert_eq!(m.state.load().count(), 5 * 64),
    );
}

#[test]
fn two_runs_of_order_7_in_one_place_are_apart() {
    check(
        vec![|m| _ = take_run(m, order(7)), |m| _ = take_run(m, order(7))],
        || Memory::with_free(&[2, 3, 5, 6]),
        |m| assert_eq!(m.state.load().count(), 4 * 64),
    );
}

#[test]
fn a_run_of_order_8_is_not_shared_with_a_frame() {
    check(
        vec![|m| _ = take_run(m, order(8)), |m| {
            let taken = Taken { word: 6, mask: 1 };
            if m.block().take_exactly(taken, ADMIT) {
                m.write([6]);
                m.block().give_word(taken);
            }
        }],
        || Memory::with_free(&[1, 4, 5, 6, 7]),
        |m| assert_eq!(m.state.load().count(), 3 * 64),
    );
}

#[test]
#[ignore = "long: make test-models"]
fn a_run_of_order_8_is_not_shared_with_one_of_order_7() {
    check(
        vec![|m| _ = take_run(m, order(8)), |m| _ = take_run(m, order(7))],
        || Memory::with_free(&[1, 2, 4, 5, 6, 7]),
        |m| assert_eq!(m.state.load().count(), 2 * 64),
    );
}

#[test]
fn the_last_word_is_taken_by_one() {
    check(
        vec![|m| _ = take_word(m), |m| _ = take_word(m)],
        || Memory::with_free(&[5]),
        |m| assert_eq!(m.state.load().count(), 7 * 64),
    );
}

#[test]
fn a_word_is_taken_by_one_and_seen_as_the_last_left_it() {
    check(
        vec![|m| _ = take_word(m), |m| _ = take_word(m)],
        || Memory::with_free(&[4, 5]),
        |m| assert_eq!(m.state.load().count(), 6 * 64),
    );
}

#[test]
fn a_whole_block_has_one_owner() {
    check(
        vec![
            |m| {
                if m.block().take_whole(Mobility::Movable) {
                    m.write(0..WORDS);
                    m.block().give_whole();
                }
            },
            |m| _ = take_word(m),
        ],
        Memory::new,
        Memory::assert_free,
    );
}

#[test]
fn who_takes_a_block_whole_sees_the_last_frame_given_back() {
    check(
        vec![
            |m| {
                m.write([3]);
                m.block().give_word(Taken {
                    word: 3,
                    mask: 1 << 7,
                });
            },
            |m| {
                if m.block().take_whole(Mobility::Movable) {
                    assert_eq!(m.bits.count_ones(), 0);
                    m.write([3]);
                    m.block().give_whole();
                }
            },
        ],
        || {
            let memory = Memory::new();
            assert!(memory.block().take_exactly(
                Taken {
                    word: 3,
                    mask: 1 << 7
                },
                ADMIT
            ));
            memory
        },
        Memory::assert_free,
    );
}

#[test]
#[ignore = "long: make test-models"]
fn an_isolated_block_has_one_owner() {
    check(
        vec![
            |m| {
                if m.block().isolate(|_| true) {
                    m.write(0..WORDS);
                    m.block().put_back(true);
                }
            },
            |m| _ = take_word(m),
            |m| {
                if m.block().take_whole(Mobility::Unmovable) {
                    m.write([0]);
                    m.block().give_whole();
                }
            },
        ],
        Memory::new,
        |m| {
            m.assert_free();
            assert_eq!(m.touched.count_ones(), 0);
        },
    );
}

#[test]
fn a_frame_in_use_is_never_without_its_mark() {
    check(
        vec![
            // The reporter: word 2 is free, and the host may hold memory for it.
            |m| {
                let taken = Taken { word: 2, mask: !0 };
                let block = m.block();
                if block.borrow(64, |bits| bits.take_exactly(2, !0)) {
                    m.write([2]);
                    block.give_borrowed(taken, true);
                }
            },
            // An allocation of a frame that is not freed.
            |m| _ = m.block().take_word(1, EXACT_MARKS),
        ],
        || Memory::with_free(&[2]),
        |m| {
            let state = m.state.load();
            assert!(state.is_touched());
            if state.has_exact_marks() {
                for word in 0..WORDS {
                    let unmarked = m.bits.word(word) & !m.touched.word(word);
                    assert_eq!(unmarked, 0, "word {word}");
                }
            } else {
                assert_eq!(m.touched.count_ones(), 0);
            }
        },
    );
}

#[test]
fn a_block_reported_whole_is_untouched_or_taken_since() {
    check(
        vec![
            |m| {
                if m.block().isolate(|state| state.class() == Class::Touched) {
                    m.block().put_back(true);
                }
            },
            |m| _ = m.block().take_word(64, EXACT_MARKS),
        ],
        || {
            let memory = Memory::new();
            memory
                .block()
                .take_word(64, EXACT_MARKS)
                .map(|taken| memory.block().give_word(taken));
            memory
        },
        |m| {
            let state = m.state.load();
            let used = m.bits.count_ones() != 0;
            assert!(!used || state.is_touched());
            let marked = (0..WORDS).all(|word| m.bits.word(word) & !m.touched.word(word) == 0);
            assert!(if state.has_exact_marks() {
                marked
            } else {
                m.touched.count_ones() == 0
            });
        },
    );
}

/// Allocates the GiB as one block, writes to all cells and frees it.
fn take_gib(memory: &Memory) {
    if memory.gib.take(Mobility::Movable) {
        memory.write(0..WORDS);
        memory.gib.give();
    }
}

/// Like [`take_word`], and counts the pageblock in its GiB.
pub(crate) fn take_word_of_gib(memory: &Memory) {
    let block = memory.block_of_gib();
    if let Some(taken) = block.take_word(64, ADMIT) {
        memory.write([taken.word]);
        block.give_word(taken);
    }
}

/// Asserts that the whole pageblock and its GiB are free.
pub(crate) fn assert_gib_free(memory: &Memory) {
    memory.assert_free();
    assert!(memory.gib.load().is_free());
}

#[test]
#[ignore = "long: make test-models"]
fn a_gib_has_one_owner() {
    check(
        vec![take_gib, take_word_of_gib, |m| {
            let block = m.block_of_gib();
            if block.take_whole(Mobility::Unmovable) {
                m.write([0]);
                block.give_whole();
            }
        }],
        Memory::new,
        assert_gib_free,
    );
}

#[test]
#[ignore = "long: make test-models"]
fn who_enters_a_gib_for_several_blocks_leaves_with_those_that_it_cannot_take() {
    check(
        vec![take_gib, take_word_of_gib, |m| {
            // The reporter finds two pageblocks of a tree free, and can take one at most.
            if m.gib.enter_many(2, || ()) {
                let taken = m.state.isolate(State::is_touched_whole).is_some();
                m.gib.leave_many(2 - u32::from(taken));
                if taken {
                    m.write(0..WORDS);
                    m.state.put_back(true);
                    m.gib.leave_many(1);
                }
            }
        }],
        || {
            let memory = Memory::new();
            take_word_of_gib(&memory);
            memory
        },
        assert_gib_free,
    );
}

#[test]
fn two_who_take_a_gib_are_apart() {
    check(
        vec![take_gib, take_gib, take_word_of_gib],
        Memory::new,
        assert_gib_free,
    );
}

#[test]
fn the_parts_of_a_gib_are_not_shared() {
    check(
        vec![
            |m| {
                if m.gib.take(Mobility::Movable) {
                    m.write(0..WORDS);
                    // A split does this for each pageblock and then for the GiB, which has one
                    // pageblock here.
                    assert!(m.state.take_whole(Mobility::Movable).is_some());
                    m.gib.split(1);
                    m.block_of_gib().give_whole();
                }
            },
            take_word_of_gib,
        ],
        Memory::new,
        assert_gib_free,
    );
}

#[test]
fn the_parts_of_a_split_block_are_not_shared() {
    check(
        vec![
            |m| {
                m.write([4]);
                m.block().split();
                m.block().give_run(256, order(8));
                m.write([0]);
            },
            |m| {
                if m.block()
                    .take_word(64, ADMIT)
                    .is_some_and(|taken| taken.word == 4)
                {
                    m.write([4]);
                }
            },
        ],
        || {
            let memory = Memory::new();
            assert!(memory.block().take_whole(Mobility::Movable));
            memory
        },
        |m| assert!(m.bits.count_ones() >= 256),
    );
}

#[test]
fn a_run_of_order_8_is_not_shared_with_a_whole_block() {
    check(
        vec![|m| _ = take_run(m, order(8)), |m| {
            if m.block().take_whole(Mobility::Movable) {
                m.write(0..WORDS);
                m.block().give_whole();
            }
        }],
        Memory::new,
        Memory::assert_free,
    );
}
