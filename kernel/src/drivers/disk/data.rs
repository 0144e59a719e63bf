//! The memory that a request reads or fills.

use logic::disk::limits::MAX_SEGMENTS;
use logic::disk::request::Segment;
use machine::memory::{FrameRef, PAGE_SIZE};

/// Pages of a request at most.
pub const MAX_PAGES: usize = MAX_SEGMENTS;

/// Frames, and how many bytes of them count, from the first byte of the first frame on. The
/// references keep the frames as long as the device may have them.
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
    /// None.
    pub const fn new() -> Self {
        Self {
            frames: [const { None }; MAX_PAGES],
            pages: 0,
            bytes: 0,
        }
    }

    /// Adds a frame with all its bytes. There is room for [`MAX_PAGES`].
    pub fn push(&mut self, frame: FrameRef) {
        self.frames[self.pages] = Some(frame);
        self.pages += 1;
        self.bytes = self.pages * PAGE_SIZE;
    }

    /// Drops all frames but the first ones.
    pub fn truncate(&mut self, pages: usize) {
        for frame in &mut self.frames[pages.min(self.pages)..self.pages] {
            *frame = None;
        }
        self.pages = self.pages.min(pages);
        self.bytes = self.bytes.min(self.pages * PAGE_SIZE);
    }

    /// Leaves out what lies behind the first `bytes`; no frame may be without any.
    pub fn cut(&mut self, bytes: usize) {
        assert!(bytes <= self.bytes && bytes.div_ceil(PAGE_SIZE) == self.pages);
        self.bytes = bytes;
    }

    /// How many frames there are.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// How many bytes count.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The frames.
    pub fn frames(&self) -> impl Iterator<Item = &FrameRef> {
        self.frames[..self.pages].iter().flatten()
    }

    /// The frames' memory, a piece each.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Segment> {
        self.frames().enumerate().map(|(page, frame)| Segment {
            address: frame.address(),
            bytes: (self.bytes - page * PAGE_SIZE).min(PAGE_SIZE) as u32,
        })
    }
}
