//! Model of emptying a pageblock while other threads allocate, free or search targets, run by loom
//! in all interleavings.

use std::vec;

use crate::{
    Mobility,
    bitmap::{Taken, WORDS},
    model::{ADMIT, Memory, assert_gib_free, check, take_word, take_word_of_gib},
    state::State,
};

const IN_USE: Taken = Taken { word: 3, mask: !0 };

/// Returns a block with one group of 64 frames in use, in a GiB that counts it.
fn one_word() -> Memory {
    let memory = Memory::new();
    assert!(memory.block_of_gib().take_exactly(IN_USE, ADMIT));
    memory
}

/// Migrates the frames in use, and allocates the block if it is empty then.
fn empty_and_take(memory: &Memory) {
    let block = memory.block();
    if block.begin_emptying(|_| true).is_none() {
        return;
    }
    memory.write([IN_USE.word]);
    block.give_word(IN_USE);
    if block.take_emptied(Mobility::Movable) {
        memory.write(0..WORDS);
        block.give_whole();
    } else {
        block.end_emptying();
    }
}

#[test]
fn a_block_that_was_emptied_has_one_owner() {
    check(
        vec![empty_and_take, |m| _ = take_word(m)],
        one_word,
        Memory::assert_free,
    );
}

#[test]
#[ignore = "long: make test-models"]
fn the_last_frame_is_freed_while_emptying_begins_and_ends() {
    check(
        vec![
            |m| {
                let block = m.block_of_gib();
                if block.begin_emptying(|_| true).is_some() {
                    block.end_emptying();
                }
            },
            |m| {
                m.write([IN_USE.word]);
                m.block_of_gib().give_word(IN_USE);
            },
            take_word_of_gib,
        ],
        one_word,
        assert_gib_free,
    );
}

#[test]
fn of_two_who_empty_a_block_one_does() {
    check(
        vec![
            |m| {
                let block = m.block_of_gib();
                if block.begin_emptying(|_| true).is_some() {
                    m.write([0]);
                    block.end_emptying();
                }
            },
            |m| {
                let block = m.block_of_gib();
                if block.begin_emptying(|_| true).is_some() {
                    m.write([0]);
                    block.end_emptying();
                }
            },
        ],
        one_word,
        |m| {
            assert_eq!(m.state.load().used(), 64);
            assert!(!m.state.load().is_emptying());
            assert_eq!(m.gib.load().count(), 1);
        },
    );
}

#[test]
fn a_gib_that_was_emptied_has_one_owner() {
    check(
        vec![
            |m| {
                let block = m.block_of_gib();
                let begun = block.begin_emptying(|_| true).is_some();
                m.write([IN_USE.word]);
                block.give_word(IN_USE);
                if !begun {
                    return;
                }
                // The GiB of the model has only this block.
                if m.state.load().used() == 0 && m.gib.join(1, Mobility::Movable) {
                    m.state.end_emptying();
                    m.write(0..WORDS);
                    m.gib.give();
                } else {
                    block.end_emptying();
                }
            },
            take_word_of_gib,
        ],
        one_word,
        assert_gib_free,
    );
}

#[test]
fn a_free_block_of_a_gib_is_taken_out_or_used() {
    check(
        vec![
            |m| {
                let block = m.block_of_gib();
                let begun = block.use_whole(|state| state.begin_emptying(State::is_free));
                if begun.is_some() {
                    m.write(0..WORDS);
                    block.end_emptying();
                }
            },
            take_word_of_gib,
        ],
        Memory::new,
        assert_gib_free,
    );
}

#[test]
fn a_place_in_a_block_is_had_while_it_is_in_use_only() {
    check(
        vec![
            |m| {
                let block = m.block_of_gib();
                if let Some(taken) = block.join(64, Mobility::Movable) {
                    m.write([taken.word]);
                    block.give_word(taken);
                }
            },
            |m| _ = m.block_of_gib().give_word(IN_USE),
        ],
        one_word,
        assert_gib_free,
    );
}
