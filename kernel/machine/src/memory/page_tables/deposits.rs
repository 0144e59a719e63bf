//! Page tables in reserve.

use super::frame::TableFrame;
use crate::memory::memmap::Descriptor;
use core::cell::Cell;
use ebb_mm::Frame;

/// The most tables in reserve that are searched for one that moves.
const SEARCHED: usize = 4096;

/// The tables in reserve of one space: a list that is linked by the frames' descriptors.
#[derive(Debug, Default)]
pub struct Deposits {
    first: Cell<Option<Frame>>,
    count: Cell<u64>,
}

impl Deposits {
    /// Adds `table` to the tables in reserve.
    pub fn push(&self, table: TableFrame) {
        let frame = table.into_frame();
        Descriptor::get(frame).set_next(self.first.get());
        self.first.set(Some(frame));
        self.count.set(self.count.get() + 1);
    }

    /// Takes any of the tables in reserve out of the list.
    ///
    /// # Panics
    /// Panics if there is none, since each huge page has one.
    pub fn pop(&self) -> TableFrame {
        let Some(frame) = self.first.get() else {
            panic!("a huge page has no page table in reserve")
        };
        self.first.set(Descriptor::get(frame).take_next());
        self.count.set(self.count.get() - 1);
        // SAFETY: the frame is one of a table that was added, and is in the list no more.
        unsafe { TableFrame::from_frame(frame) }
    }

    /// Returns the number of tables in reserve.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Replaces the table in the frame `from` by `to`. Returns the table that was there.
    ///
    /// # Errors
    /// Returns `to` if the search does not find `from`. The search ends after [`SEARCHED`] tables.
    pub fn exchange(&self, from: Frame, to: TableFrame) -> Result<TableFrame, TableFrame> {
        let mut at = self.first.get();
        let mut before: Option<Frame> = None;
        for _ in 0..SEARCHED {
            let Some(frame) = at else { break };
            let descriptor = Descriptor::get(frame);
            if frame != from {
                at = descriptor.next();
                before = Some(frame);
                continue;
            }
            to.set_owner(descriptor.owner());
            let to = to.into_frame();
            Descriptor::get(to).set_next(descriptor.take_next());
            match before {
                Some(before) => Descriptor::get(before).set_next(Some(to)),
                None => self.first.set(Some(to)),
            }
            // SAFETY: the frame is one of a table that was added, and is in the list no more.
            return Ok(unsafe { TableFrame::from_frame(frame) });
        }
        Err(to)
    }
}

impl Drop for Deposits {
    fn drop(&mut self) {
        assert_eq!(self.count.get(), 0, "page tables in reserve for nothing");
    }
}
