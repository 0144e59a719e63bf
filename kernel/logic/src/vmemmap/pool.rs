//! A pool of huge pages on the simulated machine, with a naive table of the state of each frame.

use super::simulated::{FREE, HUGE, MEMMAP, Owner, READER, Refuse, Simulated, WRITER};
use super::{
    Carrier, Exchange, Machine, Restored, Shared, Supply, TOGETHER, relieve, restore_large,
};
use core::ops::{Deref, DerefMut};
use ebb_mm::{Frame, FrameRange};
use std::vec;
use std::vec::Vec;

/// The head of a frame that a program uses.
const PROGRAM: u64 = 1;

/// A free huge page.
#[derive(Copy, Clone, Debug)]
struct Page {
    start: Frame,
    frames: usize,
    /// Whether its part of the memmap is shared.
    shared: bool,
}

/// A guard of the lock of exchanges.
struct Guard<'a, 'm, const E: usize, const P: usize> {
    machine: &'m Simulated<E, P>,
    shared: &'a mut Option<Shared>,
}

impl<'a, 'm, const E: usize, const P: usize> Guard<'a, 'm, E, P> {
    fn lock(machine: &'m Simulated<E, P>, shared: &'a mut Option<Shared>) -> Self {
        machine.set_locked(true);
        Self { machine, shared }
    }
}

impl<const E: usize, const P: usize> Deref for Guard<'_, '_, E, P> {
    type Target = Option<Shared>;

    fn deref(&self) -> &Self::Target {
        self.shared
    }
}

impl<const E: usize, const P: usize> DerefMut for Guard<'_, '_, E, P> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.shared
    }
}

impl<const E: usize, const P: usize> Drop for Guard<'_, '_, E, P> {
    fn drop(&mut self) {
        self.machine.set_locked(false);
    }
}

/// A pool of huge pages on a simulated machine, and the frames that programs use there.
#[derive(Debug)]
pub(super) struct Pool<'m, const E: usize, const P: usize> {
    pub(super) machine: &'m Simulated<E, P>,
    shared: Option<Shared>,
    pages: Vec<Page>,
    /// Blocks that carry their part of the memmap, and the number of carrying frames.
    carriers: Vec<(Frame, u64)>,
    programs: Vec<Frame>,
}

impl<'m, const E: usize, const P: usize> Pool<'m, E, P> {
    /// Returns an empty pool of `machine`.
    pub(super) const fn new(machine: &'m Simulated<E, P>) -> Self {
        Self {
            machine,
            shared: None,
            pages: Vec::new(),
            carriers: Vec::new(),
            programs: Vec::new(),
        }
    }

    fn in_block(&self, start: Frame, frames: usize) -> impl Iterator<Item = Frame> + use<E, P> {
        (0..frames as u64).map(move |index| start.offset(index))
    }

    /// Returns the heads that a reader may see, for each frame one bit for each head. For the pages
    /// in `exchanged` the reader may see the heads before and after.
    fn allowed(&self, exchanged: &[Page]) -> Vec<u16> {
        // The memmap's own frames come and go.
        let mut allowed = vec![1 << FREE | 1 << MEMMAP; self.machine.frames()];
        let mut set = |start: Frame, frames, value| {
            allowed[start.number() as usize..][..frames].fill(value);
        };
        for page in &self.pages {
            set(page.start, page.frames, 1 << HUGE);
        }
        for &frame in &self.programs {
            set(frame, 1, 1 << PROGRAM);
        }
        for page in exchanged {
            let either = 1 << FREE | 1 << HUGE | 1 << MEMMAP;
            set(page.start, page.frames, either);
        }
        allowed
    }

    /// Allocates up to `pages` pages of `frames` frames from the machine and adds them to the pool.
    /// Their parts of the memmap are shared in one exchange, as far as there are frames for tables.
    pub(super) fn add(&mut self, pages: usize, frames: usize) {
        let taken = (0..pages).map_while(|_| self.machine.take_aligned(frames));
        let mut new: Vec<_> = taken
            .map(|start| Page {
                start,
                frames,
                shared: false,
            })
            .collect();
        self.machine.allow(self.allowed(&new));
        let mut exchange =
            Exchange::begin(self.machine, Guard::lock(self.machine, &mut self.shared));
        for page in &mut new {
            let shared = if frames == E {
                exchange.share(page.start)
            } else {
                exchange.share_giant(page.start)
            };
            page.shared = shared.is_ok();
            if !page.shared {
                for index in 0..frames as u64 {
                    self.machine.write(page.start.offset(index), HUGE);
                }
            }
        }
        exchange.end();
        self.pages.extend(new);
    }

    /// Removes up to `pages` pages of `frames` frames from the pool, and returns them. Begins at
    /// index `place` of its pages, modulo their number.
    fn remove(&mut self, place: usize, pages: usize, frames: usize) -> Vec<Page> {
        let mut removed = Vec::new();
        let mut at = place % self.pages.len().max(1);
        while removed.len() < pages && at < self.pages.len() {
            if self.pages[at].frames == frames {
                removed.push(self.pages.swap_remove(at));
            } else {
                at += 1;
            }
        }
        removed
    }

    /// Frees up to `pages` huge pages of the pool, beginning at index `place` of its pages, modulo
    /// their number. Their parts of the memmap are restored with a supply for `supply` blocks.
    pub(super) fn give_back(&mut self, place: usize, pages: usize, supply: u64) {
        let removed = self.remove(place, pages, E);
        self.machine.allow(self.allowed(&removed));
        self.give_back_blocks(&removed, &mut Supply::new(self.machine, supply));
    }

    fn give_back_blocks(&mut self, pages: &[Page], supply: &mut Supply<&'m Simulated<E, P>>) {
        let machine = self.machine;
        let mut exchange = Exchange::begin(machine, Guard::lock(machine, &mut self.shared));
        let mut restored = Vec::new();
        for page in pages {
            restored.push(if page.shared {
                exchange.restore(page.start, supply)
            } else {
                for index in 0..E as u64 {
                    machine.write(page.start.offset(index), FREE);
                }
                Restored::Elsewhere
            });
        }
        exchange.end();
        for (page, restored) in pages.iter().zip(restored) {
            let carried = match restored {
                Restored::Elsewhere => 0,
                Restored::Carried(frames) => {
                    self.carriers.push((page.start, frames));
                    frames
                }
            };
            machine.free(FrameRange::new(
                page.start.offset(carried),
                E as u64 - carried,
            ));
        }
    }

    /// Frees a page of 1 GiB of the pool: the first at or after index `place` of its pages, modulo
    /// their number. Does nothing if there is none. Large pages restore its part of the memmap as
    /// far as possible.
    pub(super) fn give_back_giant(&mut self, place: usize) {
        let machine = self.machine;
        let in_table = Simulated::<E, P>::IN_TABLE;
        for page in self.remove(place, 1, E * E) {
            self.machine.allow(self.allowed(&[page]));
            let mut done = 0;
            while page.shared
                && done < page.frames
                && restore_large(
                    machine,
                    || Guard::lock(machine, &mut self.shared),
                    page.start.offset(done as u64),
                )
            {
                done += in_table;
            }
            if !page.shared {
                for frame in self.in_block(page.start, page.frames) {
                    machine.write(frame, FREE);
                }
                done = page.frames;
            }
            if done > 0 {
                machine.free(FrameRange::new(page.start, done as u64));
            }
            let rest: Vec<_> = (done..page.frames)
                .step_by(E)
                .map(|from| Page {
                    start: page.start.offset(from as u64),
                    frames: E,
                    shared: true,
                })
                .collect();
            let mut supply = Supply::new(machine, rest.len() as u64);
            for batch in rest.chunks(4) {
                self.give_back_blocks(batch, &mut supply);
            }
        }
    }

    /// Splits a page of 1 GiB of the pool into huge pages: the first at or after index `place` of
    /// its pages, modulo their number. Does nothing if there is none.
    pub(super) fn demote(&mut self, place: usize) {
        for page in self.remove(place, 1, E * E) {
            let part = |index| Page {
                start: page.start.offset((index * E) as u64),
                frames: E,
                ..page
            };
            self.pages.extend((0..E).map(part));
        }
    }

    /// Moves the memmap parts out of the blocks that carry their own, as far as possible, and frees
    /// these blocks as a whole.
    pub(super) fn relieve(&mut self) {
        let carriers = core::mem::take(&mut self.carriers);
        self.machine.allow(self.allowed(&[]));
        for some in carriers.chunks(TOGETHER) {
            let carrier = |&(block, carried): &(Frame, u64)| Carrier::new(block, carried);
            let mut some: Vec<Carrier> = some.iter().map(carrier).collect();
            let mut whole = Vec::new();
            relieve(
                self.machine,
                || Guard::lock(self.machine, &mut self.shared),
                &mut some,
                |block| {
                    whole.push(block);
                },
            );
            for carrier in some {
                assert_eq!(carrier.whole, whole.contains(&carrier.block));
                if !carrier.whole {
                    self.carriers.push((carrier.block, carrier.carried));
                }
            }
        }
    }

    /// Allocates up to `frames` frames for programs, as far as frames are free.
    pub(super) fn fill(&mut self, frames: usize) {
        let taken = (0..frames).map_while(|_| self.machine.take_one());
        for frame in taken {
            self.machine.write(frame, PROGRAM);
            self.programs.push(frame);
        }
    }

    /// Frees up to `frames` frames of programs, beginning at index `place` of these frames, modulo
    /// their number.
    pub(super) fn release(&mut self, place: usize, frames: usize) {
        for _ in 0..frames.min(self.programs.len()) {
            let frame = self.programs.swap_remove(place % self.programs.len());
            self.machine.write(frame, FREE);
            self.machine.free(FrameRange::new(frame, 1));
        }
    }

    /// Frees `frames` frames of programs, which are not adjacent to each other.
    pub(super) fn release_even(&mut self, frames: usize) {
        for _ in 0..frames {
            let even = |frame: &Frame| frame.number().is_multiple_of(2);
            let place = self.programs.iter().position(even);
            self.release(place.expect("enough are in use"), 1);
        }
    }

    /// Frees the frames of all programs and all pages of the pool, and makes as many carriers whole
    /// as possible. The machine's allocator no longer refuses. Then checks the state. A block that
    /// still carries its own part of the memmap must also contain parts of other blocks.
    pub(super) fn empty(&mut self) {
        self.machine.refuse(Refuse::None);
        self.release(0, self.programs.len());
        while let Some(page) = self.pages.first() {
            if page.frames == E {
                self.give_back(0, 4, 0);
            } else {
                self.give_back_giant(0);
            }
        }
        // The first block may need frames that the last one frees.
        for _ in 0..=self.carriers.len() {
            self.relieve();
        }
        self.check();
        // A block that still carries is not otherwise free: it holds parts of the memmap of other
        // blocks.
        for &(block, carried) in &self.carriers {
            let rest = self.in_block(block, E).skip(carried as usize);
            let used = |frame| self.machine.owner(frame) != Owner::None;
            assert!(rest.into_iter().any(used), "{block:?} carries {carried}");
        }
    }

    /// Returns whether there is a carrier: a block whose first frames contain the block's own part
    /// of the memmap.
    pub(super) fn carries(&self) -> bool {
        !self.carriers.is_empty()
    }

    /// Returns the number of huge pages in the pool whose part of the memmap is replaced by the
    /// shared page.
    pub(super) fn shared_pages(&self) -> usize {
        self.pages.iter().filter(|page| page.shared).count()
    }

    /// Checks that every frame has exactly one owner, and that its descriptor says so on each CPU.
    pub(super) fn check(&self) {
        let machine = self.machine;
        let mut heads = vec![None; machine.frames()];
        let mut set = |frame: Frame, head| {
            let place = &mut heads[frame.number() as usize];
            assert_eq!(*place, None, "{frame:?} is of two");
            *place = Some(head);
        };
        for page in &self.pages {
            for frame in self.in_block(page.start, page.frames) {
                set(frame, HUGE);
            }
        }
        for &frame in &self.programs {
            set(frame, PROGRAM);
        }
        let mut counted = 0;
        let mut memmap = |frame| {
            let from_boot = machine.owner(frame) == Owner::Boot;
            counted += u64::from(!from_boot);
            set(frame, if from_boot { FREE } else { MEMMAP });
        };
        let common = self.shared.map(|shared| (shared.page, shared.table));
        if let Some((page, table)) = common {
            memmap(page);
            memmap(table);
        }
        for (table, pages) in machine.reached() {
            let is_common = |page: &&Frame| common.is_some_and(|common| common.0 == **page);
            let shared = pages.iter().filter(is_common).count();
            if let Some(table) = table {
                if common.is_some_and(|common| common.1 == table) {
                    assert_eq!(shared, E, "the shared table");
                    continue;
                }
                assert_ne!(shared, E, "a table leads to nothing else");
                let noted = machine.shared_entries(table);
                assert_eq!(
                    noted.load(core::sync::atomic::Ordering::Relaxed),
                    shared as u64
                );
                memmap(table);
            }
            for &page in pages.iter().filter(|page| !is_common(page)) {
                memmap(page);
            }
        }
        assert_eq!(machine.counted(), counted);
        for (frame, head) in (0..).map(Frame::new).zip(heads) {
            let free = machine.owner(frame) == Owner::None;
            assert_eq!(head.is_none(), free, "{frame:?} {head:?}");
            let head = head.unwrap_or(FREE);
            let seen = [
                machine.walk(frame),
                machine.read(WRITER, frame),
                machine.read(READER, frame),
            ];
            assert_eq!(seen, [head; 3], "{frame:?}");
        }
    }
}
