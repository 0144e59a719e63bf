//! A frame moves while programs store to it and drop it, and while system calls fill it: no store
//! is lost. All interleavings: `cargo test -p ebb-kernel-logic-models --release model`.

use super::carry::{Moving, ParkedBy, carry};
use super::lock::Lock;
use super::model_locks::Mutex;
#[cfg(ebb_model)]
use loom::{sync::Arc, thread};
use std::vec::Vec;
#[cfg(not(ebb_model))]
use std::{sync::Arc, thread};

/// Calls `run` for every interleaving of its threads, or just once without a model.
fn model(run: impl Fn() + Sync + Send + 'static) {
    #[cfg(ebb_model)]
    loom::model(run);
    #[cfg(not(ebb_model))]
    run();
}

const OLD: usize = 0;
const NEW: usize = 1;
/// Index of the first frame for private copies. Each space has one such frame.
const OWN: usize = 2;
const BEFORE: u32 = 1;
const STORED: u32 = 7;

/// An entry of a page table.
#[derive(Copy, Clone, Debug)]
struct Entry {
    frame: Option<usize>,
    parked: ParkedBy,
    writable: bool,
}

/// The number of references to a frame, and its contents. Each of the two is read and written by
/// itself. One lock guards both, so that there are fewer interleavings.
#[derive(Copy, Clone, Default, Debug)]
struct Frame {
    references: u32,
    bytes: u32,
}

/// Spaces whose parked entries map one frame.
struct World {
    entries: Vec<Mutex<Entry>>,
    frames: Vec<Mutex<Frame>>,
}

impl World {
    fn new(spaces: usize) -> Arc<Self> {
        Self::parked_by(ParkedBy::Mover, spaces)
    }

    fn parked_by(who: ParkedBy, spaces: usize) -> Arc<Self> {
        let parked = || {
            Mutex::new(Entry {
                frame: Some(OLD),
                parked: who,
                writable: false,
            })
        };
        let old = Frame {
            references: u32::try_from(spaces).expect("few"),
            bytes: BEFORE,
        };
        let mut frames = std::vec![Mutex::new(old)];
        frames.extend((0..=spaces).map(|_| Mutex::new(Frame::default())));
        Arc::new(Self {
            entries: (0..spaces).map(|_| parked()).collect(),
            frames,
        })
    }

    /// Handles a fault of a store. Returns the frame that may be stored to, which only `space`
    /// references.
    fn fault(&self, space: usize) -> usize {
        let mut entry = self.entries[space].lock();
        entry.parked = ParkedBy::None;
        let frame = entry.frame.expect("mapped");
        if !entry.writable && self.frames[frame].lock().references != 1 {
            let bytes = self.frames[frame].lock().bytes;
            *self.frames[OWN + space].lock() = Frame {
                references: 1,
                bytes,
            };
            entry.frame = Some(OWN + space);
            self.frames[frame].lock().references -= 1;
        }
        entry.writable = true;
        entry.frame.expect("mapped")
    }

    /// Stores to the page as a program in `space` does. The CPU has the entry in its TLB from the
    /// fault on.
    fn store(&self, space: usize) {
        let frame = self.fault(space);
        self.frames[frame].lock().bytes = STORED;
    }

    /// Gets a reference to the page of `space` and fills the page later, as a system call does. The
    /// program itself does not store.
    fn fill(&self, space: usize) {
        let frame = {
            let mut entry = self.entries[space].lock();
            if entry.parked != ParkedBy::None || !entry.writable {
                drop(entry);
                self.fault(space);
                entry = self.entries[space].lock();
            }
            // Like a call that finds the entry changed: it uses the frame that the entry maps now.
            let frame = entry.frame.expect("mapped");
            self.frames[frame].lock().references += 1;
            frame
        };
        self.frames[frame].lock().bytes = STORED;
        self.frames[frame].lock().references -= 1;
    }

    /// Unmaps the page as a program in `space` does.
    fn unmap(&self, space: usize) {
        let gone = {
            let mut entry = self.entries[space].lock();
            entry.parked = ParkedBy::None;
            entry.frame.take()
        };
        if let Some(frame) = gone {
            self.frames[frame].lock().references -= 1;
        }
    }

    /// Parks the entry of `space` as the joiner does, unless an operation has parked it.
    fn park_to_join(&self, space: usize) {
        let mut entry = self.entries[space].lock();
        if entry.parked == ParkedBy::None {
            entry.parked = ParkedBy::Joiner;
            entry.writable = false;
        }
    }

    /// Unparks the entry of `space`, as the joiner does when it gives up, if the joiner has parked
    /// it.
    fn give_back(&self, space: usize) {
        let mut entry = self.entries[space].lock();
        if entry.parked == ParkedBy::Joiner {
            entry.parked = ParkedBy::None;
        }
    }

    /// Moves the frame that the entries of `spaces` spaces map, which the mover has parked. Returns
    /// the number of entries that map the new frame then, 0 if the frame was not moved.
    fn carry(&self, spaces: usize) -> usize {
        self.carry_parked_by(ParkedBy::Mover, spaces)
    }

    fn carry_parked_by(&self, who: ParkedBy, spaces: usize) -> usize {
        carry(&Carried { world: self, who }, spaces)
    }

    fn shown(&self, space: usize) -> Option<u32> {
        let frame = self.entries[space].lock().frame?;
        Some(self.frames[frame].lock().bytes)
    }

    /// Checks that each reference of a frame belongs to an entry.
    fn check_references(&self) {
        for (number, frame) in self.frames.iter().enumerate() {
            let shown = self
                .entries
                .iter()
                .filter(|entry| entry.lock().frame == Some(number));
            let count = shown.count();
            assert_eq!(frame.lock().references as usize, count, "frame {number}");
        }
    }
}

/// The frame of a world whose entries `who` has parked.
struct Carried<'a> {
    world: &'a World,
    who: ParkedBy,
}

impl Moving for Carried<'_> {
    fn has_references(&self, count: u32) -> bool {
        self.world.frames[OLD].lock().references == count
    }

    fn is_parked(&self, entry: usize) -> bool {
        self.world.entries[entry].lock().parked == self.who
    }

    fn unpark(&self, entry: usize) {
        self.world.entries[entry].lock().parked = ParkedBy::None;
    }

    fn copy(&self) {
        let bytes = self.world.frames[OLD].lock().bytes;
        self.world.frames[NEW].lock().bytes = bytes;
    }

    fn exchange(&self, entry: usize) -> bool {
        let mut entry = self.world.entries[entry].lock();
        if entry.parked == self.who {
            self.world.frames[NEW].lock().references += 1;
            *entry = Entry {
                frame: Some(NEW),
                parked: ParkedBy::None,
                writable: false,
            };
            self.world.frames[OLD].lock().references -= 1;
            return true;
        }
        false
    }
}

#[test]
fn model_entries_without_accesses_move() {
    model(|| {
        for spaces in 1..3 {
            let world = World::new(spaces);
            assert_eq!(world.carry(spaces), spaces);
            assert!((0..spaces).all(|space| world.shown(space) == Some(BEFORE)));
            world.check_references();
        }
    });
}

#[test]
fn model_a_store_is_not_lost() {
    model(|| {
        let world = World::new(1);
        let program = {
            let world = world.clone();
            thread::spawn(move || world.store(0))
        };
        world.carry(1);
        program.join().expect("stored");
        assert_eq!(world.shown(0), Some(STORED));
        world.check_references();
    });
}

#[test]
fn model_what_a_call_fills_is_not_lost() {
    model(|| {
        let world = World::new(1);
        let call = {
            let world = world.clone();
            thread::spawn(move || world.fill(0))
        };
        world.carry(1);
        call.join().expect("filled");
        assert_eq!(world.shown(0), Some(STORED));
        world.check_references();
    });
}

#[test]
fn model_what_a_call_has_held_since_before_is_filled_where_it_is_shown() {
    model(|| {
        let world = World::new(1);
        world.frames[OLD].lock().references += 1;
        let call = {
            let world = world.clone();
            thread::spawn(move || {
                world.frames[OLD].lock().bytes = STORED;
                world.frames[OLD].lock().references -= 1;
            })
        };
        world.carry(1);
        call.join().expect("filled");
        assert_eq!(world.shown(0), Some(STORED));
        world.check_references();
    });
}

#[test]
fn model_a_store_after_a_fork_is_one_spaces_alone() {
    model(|| {
        let world = World::new(2);
        let child = {
            let world = world.clone();
            thread::spawn(move || world.store(1))
        };
        world.carry(2);
        child.join().expect("stored");
        assert_eq!(
            (world.shown(0), world.shown(1)),
            (Some(BEFORE), Some(STORED))
        );
        world.check_references();
    });
}

#[test]
fn model_one_has_it_filled_while_another_drops_it() {
    model(|| {
        let world = World::new(2);
        let call = {
            let world = world.clone();
            thread::spawn(move || world.fill(1))
        };
        let other = {
            let world = world.clone();
            thread::spawn(move || world.unmap(0))
        };
        world.carry(2);
        call.join().expect("filled");
        other.join().expect("unmapped");
        assert_eq!(world.shown(1), Some(STORED));
        world.check_references();
    });
}

#[test]
fn model_a_store_between_two_who_join_is_not_lost() {
    model(|| {
        let world = World::parked_by(ParkedBy::Joiner, 1);
        let joiner = {
            let world = world.clone();
            thread::spawn(move || {
                world.give_back(0);
                world.store(0);
                world.park_to_join(0);
            })
        };
        // An entry that is not parked is covered by the tests above.
        let found = world.entries[0].lock().parked;
        if found == ParkedBy::Joiner && found.may_be_movers() {
            world.carry_parked_by(found, 1);
        }
        joiner.join().expect("stored");
        assert_eq!(world.shown(0), Some(STORED));
        world.check_references();
    });
}
