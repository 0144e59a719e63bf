//! The memory that a request reads or fills.

use crate::memory::{FrameRef, PAGE_SIZE};
use logic::disk::limits::MAX_SEGMENTS;
use logic::disk::request::Segment;

/// The largest number of pages in one request.
pub const MAX_PAGES: usize = MAX_SEGMENTS;

/// The memory of a request: `bytes` bytes from the start of the first frame on. The references keep
/// the frames allocated while the device may access them.
#[derive(Debug)]
pub struct Data {
    frames: [Option<FrameRef>; MAX_PAGES],
    pages: usize,
    bytes: usize,
}

impl Default for Data {
    fn default() -> Self {
        Self::new()
    }
}

impl Data {
    /// Returns data without frames.
    pub const fn new() -> Self {
        Self {
            frames: [const { None }; MAX_PAGES],
            pages: 0,
            bytes: 0,
        }
    }

    /// Appends `frame` with all its bytes. The caller appends [`MAX_PAGES`] frames at most.
    pub fn push(&mut self, frame: FrameRef) {
        self.frames[self.pages] = Some(frame);
        self.pages += 1;
        self.bytes = self.pages * PAGE_SIZE;
    }

    /// Drops all frames behind the first `pages`.
    pub fn truncate(&mut self, pages: usize) {
        for frame in &mut self.frames[pages.min(self.pages)..self.pages] {
            *frame = None;
        }
        self.pages = self.pages.min(pages);
        self.bytes = self.bytes.min(self.pages * PAGE_SIZE);
    }

    /// Limits the data to its first `bytes` bytes. The last frame must keep at least one byte.
    pub fn cut(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes && bytes.div_ceil(PAGE_SIZE) == self.pages);
        self.bytes = bytes;
    }

    /// Returns the number of frames.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Returns the length of the data in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the frames in order.
    pub fn frames(&self) -> impl Iterator<Item = &FrameRef> {
        self.frames[..self.pages].iter().flatten()
    }

    /// Returns the physical memory of the data, one segment for each frame.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Segment> {
        self.frames().enumerate().map(|(page, frame)| Segment {
            address: frame.address(),
            bytes: (self.bytes - page * PAGE_SIZE).min(PAGE_SIZE) as u32,
        })
    }
}
