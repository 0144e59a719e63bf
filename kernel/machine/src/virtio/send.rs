//! The sending half of a port: a ring of bytes, whose unsent part is passed to the device in a few
//! large buffers.

use super::hal::Platform;
use alloc::alloc::{Layout, alloc};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::SomeTransport;

/// The index of the transmit queue in the console device.
pub const QUEUE: u16 = 1;
/// The number of descriptors of the queue.
const DESCRIPTORS: usize = 16;
/// The largest number of buffers that the device has at a time. With more buffers, each would be
/// smaller.
const MAX_SEGMENTS: usize = 8;
/// Size in bytes of the ring: bytes that wait, and bytes that the device is reading.
const RING_BYTES: u64 = 32 << 10;

/// A part of the ring that the device is reading.
#[derive(Copy, Clone, Debug, Default)]
struct Segment {
    token: u16,
    start: u64,
    len: u64,
    done: bool,
}

/// The bytes on their way to the host. Positions count bytes since boot: `done <= sent <= accepted
/// <= done + RING_BYTES`, and `sent <= limit`.
#[derive(Debug)]
pub struct Output {
    /// Never freed, since the device may access it.
    queue: ManuallyDrop<VirtQueue<Platform, DESCRIPTORS>>,
    /// The ring's memory. `None` until the first write, which allocates it. Never freed.
    ring: Option<NonNull<u8>>,
    accepted: u64,
    sent: u64,
    done: u64,
    /// The number of bytes since boot that the host accepts for now.
    limit: u64,
    segments: [Segment; MAX_SEGMENTS],
    /// The index of the first segment that the device has.
    first: usize,
    /// The number of segments that the device has.
    count: usize,
    /// The device broke the protocol. All output is dropped.
    broken: bool,
}

// SAFETY: the ring belongs to this value alone, and so does the queue's memory.
unsafe impl Send for Output {}

impl Output {
    /// Sets up the transmit queue. The host accepts any number of bytes until
    /// [`Self::raise_limit`]. Fails with the error of setting up the queue.
    pub fn new(transport: &mut SomeTransport<'static>) -> Result<Self, virtio_drivers::Error> {
        Ok(Self {
            queue: ManuallyDrop::new(VirtQueue::new(transport, QUEUE, false, false)?),
            ring: None,
            accepted: 0,
            sent: 0,
            done: 0,
            limit: u64::MAX,
            segments: [Segment::default(); MAX_SEGMENTS],
            first: 0,
            count: 0,
            broken: false,
        })
    }

    /// Returns the number of bytes that fit in the ring now.
    pub fn room(&self) -> usize {
        (RING_BYTES - (self.accepted - self.done)) as usize
    }

    /// Returns whether all accepted bytes have reached the host. Also returns `true` if the device
    /// broke the protocol.
    pub fn is_empty(&self) -> bool {
        self.broken || self.accepted == self.done
    }

    /// Returns whether the device broke the protocol, so that all output is dropped.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns the number of bytes since boot that have reached the host.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Returns whether unsent bytes wait only for the host's permission ([`Self::raise_limit`]):
    /// all bytes below the limit have been sent and read by the device.
    pub fn is_held_back(&self) -> bool {
        self.count == 0 && self.sent < self.accepted && self.sent >= self.limit
    }

    /// Sets the number of bytes since boot that the host accepts. Ignores a smaller `total` than
    /// before, which is out of date.
    pub fn raise_limit(&mut self, total: u64) {
        if self.limit == u64::MAX || total > self.limit {
            self.limit = total;
        }
    }

    /// Copies the first of `bytes` into the ring and returns the number of bytes that fit. If the
    /// device broke the protocol, drops `bytes` and returns their number. Returns `None` if there
    /// is no memory for the ring.
    pub fn put(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.broken {
            return Some(bytes.len());
        }
        let ring = match self.ring {
            Some(ring) => ring,
            None => {
                const LAYOUT: Layout = match Layout::from_size_align(RING_BYTES as usize, 4096) {
                    Ok(layout) => layout,
                    Err(_) => panic!("the ring's size is a multiple of its alignment"),
                };
                // SAFETY: the size is not zero.
                let ring = NonNull::new(unsafe { alloc(LAYOUT) })?;
                *self.ring.insert(ring)
            }
        };
        let taken = bytes.len().min(self.room());
        let at = (self.accepted % RING_BYTES) as usize;
        let straight = taken.min(RING_BYTES as usize - at);
        // SAFETY: both parts lie in the ring, behind the bytes under way: `room` is their limit.
        unsafe {
            ring.add(at)
                .copy_from_nonoverlapping(NonNull::from(bytes).cast(), straight);
            let rest = NonNull::from(&bytes[straight..taken]);
            ring.copy_from_nonoverlapping(rest.cast(), taken - straight);
        }
        self.accepted += taken as u64;
        Some(taken)
    }

    fn bytes(&self, segment: Segment) -> &'static [u8] {
        let ring = self.ring.unwrap_or(NonNull::dangling());
        // SAFETY: segments are made in the ring, do not wrap, and are not written until they are
        // done.
        unsafe {
            let start = ring.add((segment.start % RING_BYTES) as usize);
            core::slice::from_raw_parts(start.as_ptr(), segment.len as usize)
        }
    }

    /// Takes back the buffers that the device has read. Returns `true` if the ring has more space
    /// than before.
    pub fn reap(&mut self) -> bool {
        if self.broken {
            return false;
        }
        let before = self.done;
        while let Some(token) = self.queue.peek_used() {
            let under_way = (0..self.count)
                .map(|i| (self.first + i) % MAX_SEGMENTS)
                .find(|&i| self.segments[i].token == token && !self.segments[i].done);
            let Some(index) = under_way else {
                self.fail("used a buffer that it does not have");
                return true;
            };
            let bytes = self.bytes(self.segments[index]);
            // SAFETY: the buffer that was added under this token.
            if let Err(error) = unsafe { self.queue.pop_used(token, &[bytes], &mut []) } {
                crate::console!("port: {error}");
                self.fail("broke its queue");
                return true;
            }
            self.segments[index].done = true;
        }
        while self.count > 0 && self.segments[self.first].done {
            self.done += self.segments[self.first].len;
            self.first = (self.first + 1) % MAX_SEGMENTS;
            self.count -= 1;
        }
        self.done != before
    }

    fn fail(&mut self, what: &str) {
        crate::console!("port: the device {what}; output is lost from here on");
        self.broken = true;
        self.done = self.accepted;
    }

    /// Returns whether the ring has space. If not, the device interrupts once it has read some
    /// bytes.
    pub fn is_writable(&mut self) -> bool {
        if self.room() == 0 {
            self.reap();
        }
        self.listen();
        self.room() > 0
    }

    /// Returns whether bytes could be sent, but the device has all segments.
    fn is_stuck(&self) -> bool {
        self.count == MAX_SEGMENTS && self.sent < self.accepted.min(self.limit)
    }

    /// Has the device interrupt if bytes wait for a segment, or a writer for room. Returns `true`
    /// if there is more room than before: a buffer that was used before the device saw the flag did
    /// not interrupt.
    fn listen(&mut self) -> bool {
        let waits = self.is_stuck() || self.room() == 0;
        self.queue.set_dev_notify(waits);
        if waits {
            core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        }
        waits && self.reap()
    }

    /// Adds the bytes that the host accepts to the transmit queue, as far as there are free
    /// segments. Returns `true` if the caller must notify the device. The caller notifies it after
    /// releasing the lock of the queues, because a notification takes as long as the device takes
    /// to read the bytes.
    ///
    /// The device will interrupt only if all segments are in use and bytes are left, if the ring is
    /// full, or after [`Self::is_writable`] has found the ring full.
    pub fn submit(&mut self) -> bool {
        let mut added = self.add();
        // Bounded: each turn after the first follows segments that the device has done.
        while self.listen() && self.add() {
            added = true;
        }
        added && self.queue.should_notify()
    }

    /// Passes bytes to the device while there are bytes and free segments. Returns `true` if it
    /// passed any.
    fn add(&mut self) -> bool {
        if self.count == MAX_SEGMENTS {
            self.reap();
        }
        let mut added = false;
        while self.count < MAX_SEGMENTS && !self.broken {
            let ready = self.accepted.min(self.limit).saturating_sub(self.sent);
            let len = ready.min(RING_BYTES - self.sent % RING_BYTES);
            if len == 0 {
                break;
            }
            let mut segment = Segment {
                token: 0,
                start: self.sent,
                len,
                done: false,
            };
            let bytes = self.bytes(segment);
            // SAFETY: the bytes stay as they are until `reap` has taken the segment back.
            match unsafe { self.queue.add(&[bytes], &mut []) } {
                Ok(token) => segment.token = token,
                Err(error) => {
                    crate::console!("port: {error}");
                    break;
                }
            }
            self.segments[(self.first + self.count) % MAX_SEGMENTS] = segment;
            self.count += 1;
            self.sent += len;
            added = true;
        }
        added
    }
}
