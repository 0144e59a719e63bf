//! A CPU reads descriptors while another CPU exchanges them. It finds the old or the new ones, and
//! never a frame of another owner. All interleavings: `cargo test -p ebb-kernel-logic-models
//! --release model`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use super::simulated::{FREE, HUGE, MEMMAP, READER, Refuse, Simulated, Wrong};
use super::{Carrier, Exchange, Machine, Shared, Supply, relieve, restore_large};
use ebb_mm::{Frame, FrameRange};
use loom::sync::Arc;
use loom::thread;

/// Blocks of four frames, described by two pages. A table describes two blocks, and two tables
/// describe a page of 1 GiB.
type Small = Simulated<4, 2>;

const BLOCK: usize = 4;
const GIANT: usize = Small::IN_GIANT;

/// The parts of the memmap that are shared before the readers begin.
#[derive(Copy, Clone)]
enum Before {
    /// No part of two blocks under one table. The shared page exists.
    None,
    /// No part of a page of 1 GiB.
    Room,
    /// The parts of both blocks under the table.
    Table,
    /// The parts of the page of 1 GiB.
    Giant,
}

/// One CPU reads the frames of a page with the indexes `reads` one after the other, and caches all
/// translations on its way. The other CPU does `work` with the page. `wrong` is the machine's
/// fault, and `before` says what is shared at the start. Each head that the first CPU reads is one
/// of `truths`, and after the work it is the last of them.
fn race(
    wrong: Wrong,
    before: Before,
    reads: &'static [u64],
    truths: &'static [u64],
    work: impl Fn(&Small, &mut Option<Shared>, Frame) + Copy + Send + Sync + 'static,
) {
    loom::model(move || {
        let machine = Arc::new(Small::new(3 * GIANT, 0));
        let mut shared = None;
        let (frames, page) = match before {
            Before::None | Before::Table => (2 * BLOCK, machine.take_aligned(2 * BLOCK)),
            Before::Room | Before::Giant => (GIANT, machine.take_aligned(GIANT)),
        };
        let page = page.unwrap();
        let other = machine.take_aligned(BLOCK).unwrap();
        share(&machine, &mut shared, other, BLOCK);
        if matches!(before, Before::Table | Before::Giant) {
            share(&machine, &mut shared, page, frames);
        }
        machine.set_wrong(wrong);
        let reader = thread::spawn({
            let machine = machine.clone();
            move || {
                for &frame in reads {
                    let head = machine.read(READER, page.offset(frame));
                    assert!(truths.contains(&head), "{head}");
                }
            }
        });
        work(&machine, &mut shared, page);
        let head = machine.read(READER, page.offset(reads[0]));
        assert_eq!(Some(&head), truths.last(), "a CPU remembers what is over");
        reader.join().unwrap();
    });
}

/// Makes the blocks of `page`, a page of `frames` frames of `machine`, share their descriptors:
/// their parts of the memmap then map the page in `shared`.
fn share(machine: &Small, shared: &mut Option<Shared>, page: Frame, frames: usize) {
    let mut exchange = Exchange::begin(machine, shared);
    if frames == GIANT {
        exchange.share_giant(page).unwrap();
    } else {
        for block in (0..frames as u64).step_by(BLOCK) {
            exchange.share(page.offset(block)).unwrap();
        }
    }
    exchange.end();
}

/// Restores the descriptors of `block`, and frees the frames that do not carry them. Returns the
/// number of carrying frames, 0 if the descriptors are elsewhere.
fn restore(machine: &Small, shared: &mut Option<Shared>, block: Frame) -> u64 {
    let carried = restore_and_keep(machine, shared, block);
    let rest = FrameRange::new(block.offset(carried), BLOCK as u64 - carried);
    machine.free(rest);
    carried
}

/// Restores the descriptors of a block, and frees none of its frames. Returns the number of frames
/// that carry them.
fn restore_and_keep(machine: &Small, shared: &mut Option<Shared>, block: Frame) -> u64 {
    let mut supply = Supply::new(machine, 0);
    let mut exchange = Exchange::begin(machine, shared);
    let carried = match exchange.restore(block, &mut supply) {
        super::Restored::Elsewhere => 0,
        super::Restored::Carried(frames) => frames,
    };
    exchange.end();
    carried
}

#[test]
fn a_block_becomes_a_huge_page() {
    race(
        Wrong::Nothing,
        Before::None,
        &[0, 2, 0],
        &[FREE, HUGE],
        |machine, shared, page| {
            share(machine, shared, page, BLOCK);
        },
    );
}

#[test]
#[should_panic(expected = "another's")]
fn without_a_flush_a_reader_finds_what_is_another_s() {
    race(
        Wrong::NoFlush,
        Before::None,
        &[0, 2, 0],
        &[FREE, HUGE],
        |machine, shared, page| {
            share(machine, shared, page, BLOCK);
        },
    );
}

#[test]
#[should_panic(expected = "another's")]
fn so_it_does_where_frames_are_freed_before_the_flush() {
    race(
        Wrong::LateFlush,
        Before::None,
        &[0, 2, 0],
        &[FREE, HUGE],
        |machine, shared, page| {
            share(machine, shared, page, BLOCK);
        },
    );
}

#[test]
fn a_table_goes_with_the_last_of_its_blocks() {
    race(
        Wrong::Nothing,
        Before::None,
        &[0, 5, 0],
        &[FREE, HUGE],
        |machine, shared, page| {
            share(machine, shared, page, 2 * BLOCK);
        },
    );
}

#[test]
fn a_page_of_a_gib_gives_up_tables() {
    race(
        Wrong::Nothing,
        Before::Room,
        &[0, 9, 0],
        &[FREE, HUGE],
        |machine, shared, page| {
            share(machine, shared, page, GIANT);
        },
    );
}

#[test]
fn a_huge_page_becomes_a_block() {
    race(
        Wrong::Nothing,
        Before::Table,
        &[0, 5, 0],
        &[HUGE, FREE],
        |machine, shared, page| {
            assert_eq!(restore(machine, shared, page), 0);
        },
    );
}

#[test]
fn a_block_comes_and_goes() {
    race(
        Wrong::Nothing,
        Before::None,
        &[0, 2, 0],
        &[HUGE, FREE],
        |machine, shared, page| {
            share(machine, shared, page, BLOCK);
            assert_eq!(restore(machine, shared, page), 0);
        },
    );
}

/// A block first carries its part of the memmap and then no longer.
#[test]
fn a_block_that_carries_is_made_whole() {
    race(
        Wrong::Nothing,
        Before::Table,
        &[0, 2, 0],
        &[HUGE, MEMMAP, FREE],
        carry_and_relieve,
    );
}

#[test]
#[should_panic(expected = "remembers what is over")]
fn without_a_flush_a_reader_keeps_what_was() {
    race(
        Wrong::NoFlush,
        Before::Table,
        &[0, 2, 0],
        &[HUGE, MEMMAP, FREE],
        carry_and_relieve,
    );
}

fn carry_and_relieve(machine: &Small, shared: &mut Option<Shared>, page: Frame) {
    machine.refuse(Refuse::From(1));
    let carried = restore(machine, shared, page);
    assert_eq!(carried, 3, "two pages and a table");
    machine.refuse(Refuse::None);
    let mut carriers = [Carrier::new(page, carried)];
    relieve(machine, || shared, &mut carriers, |_| ());
    assert!(carriers[0].whole);
}

/// After a page of 1 GiB was split, no exchange happens until its parts leave the pool.
#[test]
fn a_part_of_a_gib_becomes_a_block() {
    race(
        Wrong::Nothing,
        Before::Giant,
        &[0, 5, 0],
        &[HUGE, FREE],
        |machine, shared, page| {
            assert_eq!(restore(machine, shared, page), 0);
        },
    );
}

#[test]
fn a_table_of_a_gib_becomes_a_large_page() {
    race(
        Wrong::Nothing,
        Before::Giant,
        &[0, 9, 0],
        &[HUGE, FREE],
        |machine, shared, page| {
            assert!(restore_large(machine, || shared, page));
        },
    );
}

/// Both blocks under a table have left the pool. The first one carries the table and is made whole.
/// Meanwhile a host that has taken the second one looks for its descriptors. It finds their page,
/// or nothing.
fn race_with_host(twice: bool) {
    loom::model(move || {
        let machine = Arc::new(Small::new(3 * GIANT, 0));
        let mut shared = None;
        let carrier = machine.take_aligned(2 * BLOCK).unwrap();
        share(&machine, &mut shared, carrier, 2 * BLOCK);
        machine.refuse(Refuse::From(1));
        let carried = restore_and_keep(&machine, &mut shared, carrier);
        assert_eq!(carried, 3, "two pages and a table");
        machine.refuse(Refuse::None);
        let taken = carrier.offset(BLOCK as u64);
        assert_eq!(restore_and_keep(&machine, &mut shared, taken), 0);
        // Freed now, so that the descriptors of the other block are not there.
        machine.free(FrameRange::new(carrier.offset(carried), 1));
        let page = machine.find_from_host(taken, true);
        let host = thread::spawn({
            let machine = machine.clone();
            move || {
                let found = machine.find_from_host(taken, twice);
                assert!(found.is_none() || found == page, "a page that is another's");
            }
        });
        let mut carriers = [Carrier::new(carrier, carried)];
        let shared = &mut shared;
        relieve(&*machine, || shared, &mut carriers, |_| ());
        assert!(carriers[0].whole);
        assert_eq!(machine.find_from_host(taken, true), page);
        host.join().unwrap();
    });
}

#[test]
fn a_host_finds_the_descriptors_of_a_block_whose_table_moves() {
    race_with_host(true);
}

#[test]
#[should_panic(expected = "another's")]
fn a_host_that_looks_once_finds_what_is_another_s() {
    race_with_host(false);
}

/// A host that has taken a block finds the same page of descriptors before and after the large page
/// is replaced with a table, because the block beside it becomes a huge page.
#[test]
fn a_host_finds_the_descriptors_of_a_block_beside_a_huge_page() {
    loom::model(|| {
        let machine = Arc::new(Small::new(3 * GIANT, 0));
        let huge = machine.take_aligned(2 * BLOCK).unwrap();
        let taken = huge.offset(BLOCK as u64);
        let page = machine.find_from_host(taken, true);
        let host = thread::spawn({
            let machine = machine.clone();
            move || {
                let found = machine.find_from_host(taken, true);
                assert!(found == page, "{found:?}");
            }
        });
        share(&machine, &mut None, huge, BLOCK);
        host.join().unwrap();
    });
}
