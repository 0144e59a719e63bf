//! The receiving half of a port: two pages that the device fills in turn.
//!
//! The device only takes bytes from the host while it has a page, so the host waits when the
//! program does not read.

use super::hal::Platform;
use alloc::alloc::{Layout, alloc};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::SomeTransport;

/// The index of the receive queue in the console device.
pub const QUEUE: u16 = 0;
/// The number of descriptors of the queue.
const DESCRIPTORS: usize = 4;
/// The number of pages.
const PAGES: usize = 2;
const PAGE_BYTES: usize = 4096;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Not used yet, or read to the end.
    Idle,
    /// The page is in the queue, with this token, and the device fills it.
    Posted(u16),
    /// Bytes `next..end` are still to be read.
    Filled { next: usize, end: usize },
}

#[derive(Debug)]
struct Page {
    /// Never freed.
    memory: NonNull<u8>,
    state: State,
}

/// The bytes that the device received from the host and that are not read yet.
#[derive(Debug)]
pub struct Input {
    /// Never freed, since the device may access it.
    queue: ManuallyDrop<VirtQueue<Platform, DESCRIPTORS>>,
    pages: [Option<Page>; PAGES],
    /// The page to read from next. The device fills the pages in turn.
    oldest: usize,
    /// Bytes read since boot.
    taken: u64,
    /// The total number of bytes in the stream. `None` until the host has closed it.
    end: Option<u64>,
    /// The device broke the protocol. The stream ends with the bytes received before that.
    broken: bool,
}

// SAFETY: the pages belong to this value alone, and so does the queue's memory.
unsafe impl Send for Input {}

impl Input {
    /// Sets up the receive queue, without pages. Fails with the error of setting up the queue.
    pub fn new(transport: &mut SomeTransport<'static>) -> Result<Self, virtio_drivers::Error> {
        Ok(Self {
            queue: ManuallyDrop::new(VirtQueue::new(transport, QUEUE, false, false)?),
            pages: [None, None],
            oldest: 0,
            taken: 0,
            end: None,
            broken: false,
        })
    }

    /// Allocates the pages. Returns `false` if memory is short. After `true`, the caller passes the
    /// pages to the device by [`Self::post`].
    pub fn open(&mut self) -> bool {
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

    /// Returns whether a read would return bytes or the end of the stream. Also returns `true` if
    /// the device filled a page with no bytes, until the next read.
    pub fn is_ready(&self) -> bool {
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

    /// Returns whether the stream has ended and all its bytes were read.
    pub fn is_at_end(&self) -> bool {
        self.broken && !self.has_bytes() || self.end.is_some_and(|end| self.taken >= end)
    }

    /// Sets the total number of bytes in the stream, counted since boot.
    pub fn set_end(&mut self, total: u64) {
        self.end = Some(total);
    }

    /// Takes the pages that the device has filled out of the receive queue, so that [`Self::take`]
    /// finds their bytes. Returns `true` if there was at least one, or if the device broke the
    /// protocol just now.
    pub fn reap(&mut self) -> bool {
        let mut came = false;
        while !self.broken
            && let Some(token) = self.queue.peek_used()
        {
            let filled = self
                .pages
                .iter_mut()
                .flatten()
                .find(|p| p.state == State::Posted(token));
            let Some(page) = filled else {
                self.fail("filled a buffer that it does not have");
                return true;
            };
            // SAFETY: the page has no other user, and is the one that was added under this token.
            let len = unsafe {
                let bytes = core::slice::from_raw_parts_mut(page.memory.as_ptr(), PAGE_BYTES);
                self.queue.pop_used(token, &[], &mut [bytes])
            };
            let Ok(len) = len else {
                self.fail("broke its queue");
                return true;
            };
            // The device is not trusted, so its length is limited. A page without bytes keeps its
            // turn: the bytes of the other page come next.
            page.state = State::Filled {
                next: 0,
                end: (len as usize).min(PAGE_BYTES),
            };
            came = true;
        }
        came
    }

    fn fail(&mut self, what: &str) {
        crate::console!("port: the device {what}; the input ends here");
        self.broken = true;
    }

    /// Moves received bytes to `buffer` until it is full or no byte is left. Returns the number of
    /// bytes moved, which may be 0.
    pub fn take(&mut self, buffer: &mut [u8]) -> usize {
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
    pub fn post(&mut self) -> bool {
        if self.broken {
            return false;
        }
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
                    crate::console!("port: {error}");
                    break;
                }
            }
            posted = true;
        }
        posted && self.queue.should_notify()
    }
}
