//! The receiving half of a port: two pages that the device fills in turn.
//!
//! The device only takes bytes from the host while it has a page, so the host waits when the
//! program does not read.

#![expect(unsafe_code, reason = "the device writes memory")]

use super::hal::Machine;
use alloc::alloc::{Layout, alloc};
use core::ptr::NonNull;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::SomeTransport;

/// Number of the queue in the console device.
pub(super) const QUEUE: u16 = 0;
/// Descriptors of the queue.
const DESCRIPTORS: usize = 4;
/// Pages.
const PAGES: usize = 2;
const PAGE_BYTES: usize = 4096;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Not used yet, or read to its end.
    Idle,
    /// With the device, under a token.
    Posted(u16),
    /// Holds bytes `next..end`.
    Filled { next: usize, end: usize },
}

#[derive(Debug)]
struct Page {
    memory: NonNull<u8>,
    state: State,
}

/// Bytes that came from the host.
#[derive(Debug)]
pub(super) struct Input {
    queue: VirtQueue<Machine, DESCRIPTORS>,
    pages: [Option<Page>; PAGES],
    /// The page whose bytes come first; the device fills them in turn.
    oldest: usize,
    /// Bytes read since boot.
    taken: u64,
    /// The number of bytes after which the stream ends; `None` while it goes on.
    end: Option<u64>,
}

// SAFETY: the pages belong to this value alone, and so does the queue's memory.
unsafe impl Send for Input {}

impl Input {
    pub(super) fn new(
        transport: &mut SomeTransport<'static>,
    ) -> Result<Self, virtio_drivers::Error> {
        Ok(Self {
            queue: VirtQueue::new(transport, QUEUE, false, false)?,
            pages: [None, None],
            oldest: 0,
            taken: 0,
            end: None,
        })
    }

    /// Gives the device its pages. False: no memory.
    pub(super) fn open(&mut self) -> bool {
        const LAYOUT: Layout = match Layout::from_size_align(PAGE_BYTES, PAGE_BYTES) {
            Ok(layout) => layout,
            Err(_) => panic!("a page is aligned to itself"),
        };
        for page in &mut self.pages {
            // SAFETY: the size is not zero.
            let Some(memory) = NonNull::new(unsafe { alloc(LAYOUT) }) else {
                return false;
            };
            *page = Some(Page {
                memory,
                state: State::Idle,
            });
        }
        true
    }

    /// Whether a read would give bytes or the end.
    pub(super) fn is_ready(&self) -> bool {
        self.has_bytes() || self.is_at_end()
    }

    fn has_bytes(&self) -> bool {
        matches!(
            &self.pages[self.oldest],
            Some(Page {
                state: State::Filled { .. },
                ..
            })
        )
    }

    /// Whether the stream has ended and all of it was read.
    pub(super) fn is_at_end(&self) -> bool {
        self.end.is_some_and(|end| self.taken >= end)
    }

    /// Notes how many bytes the stream has in all.
    pub(super) fn set_end(&mut self, total: u64) {
        self.end = Some(total);
    }

    /// Takes the pages back that the device has filled. True when some came.
    pub(super) fn reap(&mut self) -> bool {
        let mut came = false;
        while let Some(token) = self.queue.peek_used() {
            let filled = self
                .pages
                .iter_mut()
                .flatten()
                .find(|p| p.state == State::Posted(token));
            let Some(page) = filled else {
                machine::console!("port: the device filled a buffer that it does not have");
                return came;
            };
            // SAFETY: the page has no other user, and is the one that was added under this token.
            let len = unsafe {
                let bytes = core::slice::from_raw_parts_mut(page.memory.as_ptr(), PAGE_BYTES);
                self.queue.pop_used(token, &[], &mut [bytes])
            };
            // The device's length is an allegation.
            let end = len.map_or(0, |len| (len as usize).min(PAGE_BYTES));
            page.state = if end > 0 {
                State::Filled { next: 0, end }
            } else {
                State::Idle
            };
            came = true;
        }
        came
    }

    /// Copies bytes out, from as many pages as are there.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let oldest = self.oldest;
            let Some(page) = &mut self.pages[oldest] else {
                break;
            };
            let State::Filled { next, end } = page.state else {
                break;
            };
            let len = (end - next).min(buffer.len() - done);
            // SAFETY: the page is filled up to `end`, and the device does not have it.
            let bytes = unsafe { core::slice::from_raw_parts(page.memory.as_ptr().add(next), len) };
            buffer[done..done + len].copy_from_slice(bytes);
            done += len;
            if next + len == end {
                page.state = State::Idle;
                self.oldest = (oldest + 1) % PAGES;
            } else {
                page.state = State::Filled {
                    next: next + len,
                    end,
                };
            }
        }
        self.taken += done as u64;
        done
    }

    /// Gives idle pages to the device, in the order in which they will be read. Returns `true` if
    /// the device must be notified.
    pub(super) fn post(&mut self) -> bool {
        let mut posted = false;
        for turn in 0..PAGES {
            let index = (self.oldest + turn) % PAGES;
            let Some(page) = &mut self.pages[index] else {
                return posted;
            };
            if page.state != State::Idle {
                continue;
            }
            // SAFETY: the page is ours and stays until the device has given it back.
            let added = unsafe {
                let bytes = core::slice::from_raw_parts_mut(page.memory.as_ptr(), PAGE_BYTES);
                self.queue.add(&[], &mut [bytes])
            };
            match added {
                Ok(token) => page.state = State::Posted(token),
                Err(error) => {
                    machine::console!("port: {error}");
                    break;
                }
            }
            posted = true;
        }
        posted && self.queue.should_notify()
    }
}
