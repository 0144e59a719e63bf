//! The queue of a disk: the requests that the device is working on, and their buffers.
//!
//! The device is not trusted. If it returns a request that it does not have, it is reset, all its
//! requests fail, and it is not used again.

use super::data::Data;
use super::hal::Platform;
use crate::arch::phys_to_virt;
use crate::memory::{FrameRef, Mobility, PAGE_SIZE, alloc_zeroed};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::ManuallyDrop;
use logic::disk::limits::{BadDisk, Limits, MAX_SEGMENTS};
use logic::disk::request::{
    self, Direction, HEADER_BYTES, IoError, NO_STATUS, Operation, Segments,
};
use logic::errno::Errno;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::{DeviceStatus, SomeTransport, Transport};

/// The index of the queue in the device.
const QUEUE: u16 = 0;
/// The largest number of requests that the device works on at a time.
const SLOTS: usize = 32;
/// Size in bytes of a slot, which holds the header, range and status of a request.
const SLOT_BYTES: usize = 64;
const RANGE_AT: usize = 16;
const STATUS_AT: usize = 48;
/// The largest number of checks whether a reset device has confirmed the reset.
const RESET_LOOKS: u32 = 100_000;
/// The number of descriptors of the largest request: header, data, status.
const MOST_NEEDED: usize = MAX_SEGMENTS + 2;

/// The number of descriptors of the queue, QEMU's own default.
const DESCRIPTORS: usize = 128;
const _: () = assert!(SLOTS * SLOT_BYTES <= PAGE_SIZE && MOST_NEEDED <= DESCRIPTORS);
const _: () = assert!(RANGE_AT + HEADER_BYTES <= STATUS_AT);

/// An operation of a disk, its memory, and the receiver of its result, of type `O`.
#[derive(Debug)]
pub struct Request<O> {
    /// The operation, with its sectors if it has any.
    pub operation: Operation,
    /// The memory to read or fill.
    pub data: Data,
    /// The receiver of the result.
    pub owner: O,
}

/// The result of [`Queue::start`]: whether the request is in the queue, and the request otherwise.
#[derive(Debug)]
pub enum Start<O> {
    /// The request is in the queue, or has ended by now.
    Started,
    /// The queue is full. Has the request, which can be passed to [`Queue::start`] again.
    Full(Request<O>),
    /// The device is not used any more. Has the request, which the caller must finish.
    Gone(Request<O>),
}

struct Slot<O> {
    request: Option<Request<O>>,
    /// The token under which the ring has the request.
    token: u16,
}

/// The virtio queue of a disk, with the requests that are in it. If it is dropped, the memory that
/// the device may access is never freed.
pub struct Queue<O> {
    transport: SomeTransport<'static>,
    ring: ManuallyDrop<Box<VirtQueue<Platform, DESCRIPTORS>>>,
    slots: ManuallyDrop<Vec<Slot<O>>>,
    /// The slots' headers and statuses.
    control: ManuallyDrop<FrameRef>,
    segment_bytes: u32,
    dead: bool,
}

impl<O> Queue<O> {
    /// Sets up the device's queue and marks the driver as ready. The caller must have negotiated
    /// the features already. Fails if the queue is too small or cannot be set up, or if memory is
    /// short.
    pub fn new(mut transport: SomeTransport<'static>, limits: &Limits) -> Result<Self, QueueError> {
        let size = transport.max_queue_size(QUEUE);
        if (size as usize) < DESCRIPTORS {
            return Err(QueueError::Bad(BadDisk::QueueSize {
                size,
                needed: DESCRIPTORS,
            }));
        }
        let ring = VirtQueue::new(&mut transport, QUEUE, false, false)
            .map(|ring| ManuallyDrop::new(Box::new(ring)))
            .map_err(QueueError::Driver)?;
        let control = alloc_zeroed(Mobility::Unmovable).map_err(QueueError::Memory)?;
        let mut slots = Vec::new();
        slots.resize_with(SLOTS, || Slot {
            request: None,
            token: 0,
        });
        transport.finish_init();
        Ok(Self {
            transport,
            ring,
            slots: ManuallyDrop::new(slots),
            control: ManuallyDrop::new(control),
            segment_bytes: limits.segment_bytes,
            dead: false,
        })
    }

    /// Acknowledges an interrupt. Returns `true` if the device's configuration has changed.
    pub fn acknowledge(&mut self) -> bool {
        use virtio_drivers::transport::InterruptStatus;
        let status = self.transport.ack_interrupt();
        status.contains(InterruptStatus::DEVICE_CONFIGURATION_INTERRUPT)
    }

    /// Returns the device's registers.
    pub fn transport(&self) -> &SomeTransport<'static> {
        &self.transport
    }

    /// Returns whether the queue has space for a request of any size. Also returns `true` if the
    /// device is not used any more, because no request waits for it then.
    pub fn has_room(&self) -> bool {
        self.dead
            || self.ring.available_desc() >= MOST_NEEDED
                && self.slots.iter().any(|slot| slot.request.is_none())
    }

    /// Puts `request` in the queue and notifies the device if necessary. Returns
    /// [`Start::Started`] then. Returns the request in [`Start::Full`] if the queue is full, and in
    /// [`Start::Gone`] if the device is not used any more. Never waits.
    pub fn start(&mut self, request: Request<O>) -> Start<O> {
        if self.dead {
            return Start::Gone(request);
        }
        let free = self.slots.iter().position(|slot| slot.request.is_none());
        let Some(index) = free.filter(|_| self.ring.available_desc() >= MOST_NEEDED) else {
            return Start::Full(request);
        };
        let at = index * SLOT_BYTES;
        self.control.write(at, &request.operation.header());
        if let Some(range) = request.operation.range() {
            self.control.write(at + RANGE_AT, &range);
        }
        self.control.write(at + STATUS_AT, &[NO_STATUS]);
        let added = with_buffers(
            &self.control,
            at,
            &request,
            self.segment_bytes,
            // SAFETY: the request keeps its frames, and stays in its slot until it is popped or the
            // device was reset; the control page lives as long as the queue.
            |inputs, outputs| unsafe { self.ring.add(inputs, outputs) },
        );
        match added {
            Ok(token) => {
                self.slots[index] = Slot {
                    request: Some(request),
                    token,
                };
                if self.ring.should_notify() {
                    self.transport.notify(QUEUE);
                }
                Start::Started
            }
            Err(_) => Start::Full(request),
        }
    }

    /// Takes the next request that has ended out of the queue. Returns it with its result, or
    /// `None` if no further request has ended. If the queue is dead, all requests end with
    /// `IoError::Gone`.
    pub fn next_ended(&mut self) -> Option<(Request<O>, Result<(), IoError>)> {
        if self.dead {
            let slot = self.slots.iter_mut().find(|slot| slot.request.is_some())?;
            return slot
                .request
                .take()
                .map(|request| (request, Err(IoError::Gone)));
        }
        let token = self.ring.peek_used()?;
        let index = self
            .slots
            .iter()
            .position(|slot| slot.request.is_some() && slot.token == token);
        let Some((index, request)) =
            index.and_then(|index| Some((index, self.slots[index].request.take()?)))
        else {
            self.die(format_args!(
                "gave back request {token}, which it does not have"
            ));
            return self.next_ended();
        };
        let at = index * SLOT_BYTES;
        let popped = with_buffers(
            &self.control,
            at,
            &request,
            self.segment_bytes,
            // SAFETY: the buffers are those that were added under this token.
            |inputs, outputs| unsafe { self.ring.pop_used(token, inputs, outputs) },
        );
        if let Err(error) = popped {
            self.slots[index].request = Some(request);
            self.die(format_args!("gave back request {token}: {error}"));
            return self.next_ended();
        }
        let mut status = [NO_STATUS];
        self.control.read(at + STATUS_AT, &mut status);
        Some((request, request::outcome(status[0])))
    }

    /// Resets the device because it broke the protocol, as `why` says. It is not used again. If it
    /// does not confirm the reset, the pages of its requests are never freed.
    fn die(&mut self, why: core::fmt::Arguments<'_>) {
        crate::console!("disk: the device {why}; it is not used any more");
        self.dead = true;
        self.transport.set_status(DeviceStatus::empty());
        let stopped = (0..RESET_LOOKS).any(|_| {
            core::hint::spin_loop();
            self.transport.get_status() == DeviceStatus::empty()
        });
        if !stopped {
            // The device may still write to the memory of its requests. One more reference to each
            // frame, which is never dropped, keeps the frames out of other use. The requests end
            // with their data, since their owners find their pages by it.
            let mut kept = 0;
            for request in self.slots.iter().filter_map(|slot| slot.request.as_ref()) {
                request.data.frames().cloned().for_each(core::mem::forget);
                kept += request.data.pages();
            }
            crate::console!("disk: it did not confirm the reset; {kept} pages are never freed");
        }
    }
}

/// The reason why a queue could not be set up.
#[derive(Debug)]
pub enum QueueError {
    /// The device announces something that the driver cannot use.
    Bad(BadDisk),
    /// The queue cannot be set up.
    Driver(virtio_drivers::Error),
    /// Memory is short.
    Memory(Errno),
}

impl core::fmt::Display for QueueError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Bad(bad) => write!(f, "{bad}"),
            Self::Driver(error) => write!(f, "{error}"),
            Self::Memory(error) => write!(f, "{error}"),
        }
    }
}

/// Calls `each` with the buffers of a request in the queue's order: those that the device reads,
/// and those that it writes. Returns the result of `each`. The same request always gives the same
/// buffers.
fn with_buffers<O, R>(
    control: &FrameRef,
    at: usize,
    request: &Request<O>,
    segment_bytes: u32,
    each: impl for<'a> FnOnce(&'a [&'a [u8]], &'a mut [&'a mut [u8]]) -> R,
) -> R {
    /// Returns the memory at the physical address `address`. The queue only uses its address and
    /// length.
    ///
    /// # Safety
    /// The memory is RAM and lives for `'a`.
    unsafe fn bytes<'a>(address: u64, len: usize) -> &'a mut [u8] {
        // SAFETY: by the contract; the physmap shows all RAM.
        unsafe { core::slice::from_raw_parts_mut(phys_to_virt(address), len) }
    }
    let segments = Segments::join(request.data.pieces(), segment_bytes);
    let base = control.address() + at as u64;
    let mut inputs: [&[u8]; MOST_NEEDED] = [&[]; MOST_NEEDED];
    let mut outputs: [&mut [u8]; MOST_NEEDED] = core::array::from_fn(|_| &mut [][..]);
    let (mut read, mut written) = (0, 0);
    // SAFETY: the slot's part of the control page, which lives as long as the borrow.
    inputs[read] = unsafe { bytes(base, HEADER_BYTES) };
    read += 1;
    if request.operation.range().is_some() {
        // SAFETY: the slot's part of the control page, which lives as long as the borrow.
        inputs[read] = unsafe { bytes(base + RANGE_AT as u64, HEADER_BYTES) };
        read += 1;
    }
    for segment in segments.list() {
        // SAFETY: the request holds the frames.
        let memory = unsafe { bytes(segment.address, segment.bytes as usize) };
        match request.operation.direction() {
            Direction::Out => {
                inputs[read] = memory;
                read += 1;
            }
            Direction::In => {
                outputs[written] = memory;
                written += 1;
            }
            Direction::None => {}
        }
    }
    // SAFETY: the slot's part of the control page, which lives as long as the borrow.
    outputs[written] = unsafe { bytes(base + STATUS_AT as u64, 1) };
    written += 1;
    each(&inputs[..read], &mut outputs[..written])
}

impl<O> core::fmt::Debug for Queue<O> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Queue")
            .field("dead", &self.dead)
            .finish_non_exhaustive()
    }
}
