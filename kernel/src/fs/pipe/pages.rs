//! Bytes on their way from a file into a pipe, in pages that the pipe can take over.

use crate::fs::io::{ByteSink, ByteSource, FrameSource, NO_LIMIT, SliceSource};
use alloc::vec::Vec;
use logic::errno::{Errno, SysResult};
use machine::memory::{self, FrameRef, Mobility, PAGE_SIZE};

/// A sink for bytes on their way into a pipe. It takes a limited number of bytes that a file reads,
/// and keeps them in pages.
#[derive(Debug, Default)]
pub struct Pages {
    /// The pages, each filled before the next. `None` for a page that a pipe has taken.
    pages: Vec<Option<FrameRef>>,
    /// The number of bytes received.
    filled: usize,
    /// The number of bytes passed on.
    passed: usize,
    most: usize,
}

impl Pages {
    /// Returns an empty sink for up to `most` bytes.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// Returns the number of bytes received and not passed on.
    pub fn left(&self) -> usize {
        self.filled - self.passed
    }

    /// Returns the page with the next bytes, the offset of the first of them in it, and their
    /// number. Returns `None` if no byte is left.
    pub(super) fn next(&self) -> Option<(&FrameRef, usize, usize)> {
        let at = self.passed % PAGE_SIZE;
        let count = (PAGE_SIZE - at).min(self.left());
        let page = self.pages.get(self.passed / PAGE_SIZE)?.as_ref()?;
        (count != 0).then_some((page, at, count))
    }

    /// Takes the page with the next bytes, and counts all of its bytes as passed on. Returns `None`
    /// if no byte is left.
    pub(super) fn take(&mut self) -> Option<FrameRef> {
        let (_, _, count) = self.next()?;
        let page = self.pages[self.passed / PAGE_SIZE].take();
        self.passed += count;
        page
    }

    /// Counts the next `count` bytes as passed on. They lie in the page that [`Self::next`]
    /// returns.
    pub(super) fn pass(&mut self, count: usize) {
        self.passed += count;
    }

    fn add_page(&mut self) -> Result<(), Errno> {
        self.pages.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let page = memory::alloc_frame(Mobility::Unmovable)?;
        self.pages.push(Some(page));
        Ok(())
    }

    fn fill(&mut self, from: &mut dyn ByteSource) -> SysResult {
        let mut done = 0;
        while from.left() > 0 && self.room() > 0 {
            let at = self.filled % PAGE_SIZE;
            if at == 0 && self.add_page().is_err() {
                if done > 0 {
                    break;
                }
                return Err(Errno::ENOMEM);
            }
            let Some(Some(page)) = self.pages.last() else {
                break;
            };
            let count = (PAGE_SIZE - at).min(self.room());
            let taken = from.take_frame(page, at, count)?;
            self.filled += taken;
            done += taken;
        }
        Ok(done)
    }
}

impl ByteSink for Pages {
    fn room(&self) -> usize {
        self.most - self.filled
    }
    fn put(&mut self, bytes: &[u8]) -> SysResult {
        self.fill(&mut SliceSource::new(bytes, NO_LIMIT))
    }
    fn put_frame(&mut self, frame: &FrameRef, offset: usize, count: usize) -> SysResult {
        self.fill(&mut FrameSource::new(frame, offset, count, NO_LIMIT))
    }
}
