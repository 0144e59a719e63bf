//! The simulated machine's implementation of `Machine`.

use super::{
    ADDRESS, FOREIGN, FREE, HUGE, LARGE, MEMMAP, OWNED, Owner, PRESENT, Simulated, WRITABLE,
    WRITER, Wrong,
};
use crate::lock::Lock;
use crate::vmemmap::machine::AtomicU64;
use crate::vmemmap::{Bits, Machine};
use core::sync::atomic::Ordering;
#[cfg(not(ebb_model))]
use core::sync::atomic::fence;
use ebb_mm::{AllocError, Frame, FrameRange, Order, ZoneKind};
#[cfg(ebb_model)]
use loom::sync::atomic::fence;

const EXHAUSTED: AllocError = AllocError::Exhausted {
    order: Order::BASE,
    zone: ZoneKind::Normal,
};

impl<const E: usize, const P: usize> Machine for &Simulated<E, P> {
    const ENTRIES: u64 = E as u64;
    const PAGES: usize = P;
    const BITS: Bits = Bits {
        address: ADDRESS,
        large: LARGE,
        page: PRESENT,
        writable: WRITABLE,
        table: PRESENT | WRITABLE,
        owned: OWNED,
    };

    fn slot<'a>(self, block: Frame) -> &'a AtomicU64
    where
        Self: 'a,
    {
        &self.slots[block.number() as usize / Simulated::<E, P>::IN_TABLE]
    }

    fn entry<'a>(self, table: Frame, index: u64) -> &'a AtomicU64
    where
        Self: 'a,
    {
        self.word(table, index as usize)
    }

    fn shared_entries<'a>(self, table: Frame) -> &'a AtomicU64
    where
        Self: 'a,
    {
        self.own_word(table, 1)
    }

    fn clear(self, frames: FrameRange) {
        for index in 0..frames.frames {
            self.fill(frames.start.offset(index), 0);
        }
    }

    fn describe_huge_page(self, page: Frame) {
        for place in 0..Simulated::<E, P>::IN_PAGE {
            self.word(page, place * 2).store(HUGE, Ordering::Relaxed);
        }
    }

    fn own(self, frame: Frame) {
        assert_eq!(self.read(WRITER, frame), FREE, "{frame:?}");
        self.write(frame, MEMMAP);
    }

    fn disown(self, frame: Frame) {
        assert_eq!(self.read(WRITER, frame), MEMMAP, "{frame:?}");
        self.write(frame, FREE);
    }

    fn count(self, frames: u64) {
        self.allocator().counted += frames;
    }

    fn uncount(self, frames: u64) {
        self.allocator().counted -= frames;
    }

    fn allocate(self) -> Result<Frame, AllocError> {
        let mut allocator = self.allocator();
        if allocator.is_refused() {
            return Err(EXHAUSTED);
        }
        allocator.take_one().ok_or(EXHAUSTED)
    }

    fn allocate_many(self, frames: &mut [Frame]) -> usize {
        let mut allocator = self.allocator();
        // A call that is refused fills a part, too.
        let most = if allocator.is_refused() {
            frames.len() / 2
        } else {
            frames.len()
        };
        for (taken, frame) in frames[..most].iter_mut().enumerate() {
            match allocator.take_one() {
                Some(one) => *frame = one,
                None => return taken,
            }
        }
        most
    }

    fn allocate_block(self) -> Result<Frame, AllocError> {
        let mut allocator = self.allocator();
        if allocator.is_refused() {
            return Err(EXHAUSTED);
        }
        allocator.take_aligned(E).ok_or(EXHAUSTED)
    }

    fn allocate_range(self, range: FrameRange) -> bool {
        let mut allocator = self.allocator();
        let start = range.start.number() as usize;
        !allocator.is_refused() && allocator.take(start, range.frames as usize).is_some()
    }

    fn free(self, range: FrameRange) {
        if cfg!(not(ebb_model)) {
            self.is_forgotten(range);
        }
        for index in 0..range.frames {
            let frame = range.start.offset(index);
            assert_eq!(self.read(WRITER, frame), FREE, "{frame:?} is freed");
            assert_eq!(self.own_word(frame, 1).load(Ordering::Relaxed), 0);
            let owner = &mut self.allocator().owners[frame.number() as usize];
            assert_eq!(*owner, Owner::User, "{frame:?} is freed");
            *owner = Owner::None;
        }
        // A CPU's stores are in order: who sees those of the new owner sees all before the free.
        fence(Ordering::Release);
        for index in 0..range.frames {
            self.fill(range.start.offset(index), FOREIGN);
        }
        let due = core::mem::take(&mut self.allocator().flush_is_due);
        if due {
            self.flush_all();
        }
    }

    fn admit(self, range: FrameRange) {
        #[cfg(not(ebb_model))]
        assert!(self.locked.load(Ordering::Relaxed), "{range:?} is admitted");
        for index in 0..range.frames {
            let frame = range.start.offset(index);
            let owner = &mut self.allocator().owners[frame.number() as usize];
            assert_eq!(*owner, Owner::Boot, "{frame:?} is admitted");
            *owner = Owner::User;
        }
    }

    fn forget(self, block: Frame) {
        let mut tlb = self.tlbs[WRITER].lock();
        let page = block.number() as usize / Simulated::<E, P>::IN_PAGE;
        tlb.pages[page..page + P].fill(None);
        // As the instruction `invlpg` does.
        tlb.slots.fill(None);
    }

    fn flush(self) {
        self.is_allowed();
        let wrong = *self.wrong.lock().unwrap();
        match wrong {
            Wrong::Nothing => self.flush_all(),
            #[cfg(ebb_model)]
            Wrong::NoFlush => {}
            #[cfg(ebb_model)]
            Wrong::LateFlush => self.allocator().flush_is_due = true,
        }
    }
}
