//! A queue through which pages enter or leave the balloon.
//!
//! A page in flight is in the batch of one of the two queues and nowhere else: the page source does
//! not have it, and it does not count as in the balloon. It leaves the batch when the device has
//! acknowledged the request, or on a reset. If the queue is dropped before, the page is lost.

use crate::error::{BalloonError, DeviceFault, QueueName};
use crate::page::{Ballooned, OwnedPage};
use crate::queue::RequestQueue;
use core::cmp::min;
use core::ptr::NonNull;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

/// The largest number of pages in one request: 1 MiB of memory, whose page numbers take 1 KiB.
pub const PFNS_PER_REQUEST: usize = 256;

/// Size in bytes of the buffer of page numbers that one queue shares with the device.
pub(crate) const PFN_BUFFER_BYTES: usize = PFNS_PER_REQUEST * size_of::<u32>();

/// Number of descriptors of the inflate and deflate rings. Only one request of one buffer is under
/// way at a time.
const RING_SIZE: usize = 4;

/// The number of a request of one queue. The queue counts its requests from 1 on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct RequestNumber(u64);

/// The inflate or the deflate queue, with the pages that are in flight through it.
pub(crate) struct Transfer<H: Hal, P> {
    requests: RequestQueue<H, RING_SIZE>,
    /// The buffer from which the device reads the page numbers.
    shared: NonNull<[u8]>,
    /// The pages in flight, in the first `held` entries. An entry of these is `None` if the guest
    /// already has its page back: deflation without `MUST_TELL_HOST`.
    batch: [Option<Ballooned<P>>; PFNS_PER_REQUEST],
    /// The number of pages in the request.
    held: usize,
    /// The number of the last request that was sent.
    last: RequestNumber,
}

impl<H: Hal, P: OwnedPage> Transfer<H, P> {
    /// Sets up the queue `index` of the device, without a batch. `shared` must live as long as the
    /// queue and must be used by it alone. Fails if `virtio-drivers` cannot set the queue up.
    /// Panics if `shared` has not [`PFN_BUFFER_BYTES`] bytes.
    pub(crate) fn new(
        transport: &mut impl Transport,
        name: QueueName,
        index: u16,
        shared: NonNull<[u8]>,
    ) -> virtio_drivers::Result<Self> {
        assert_eq!(shared.len(), PFN_BUFFER_BYTES);
        Ok(Self {
            requests: RequestQueue::new(transport, name, index)?,
            shared,
            batch: [const { None }; PFNS_PER_REQUEST],
            held: 0,
            last: RequestNumber::default(),
        })
    }

    /// Returns the virtqueue of the pages and the state of its request.
    pub(crate) fn requests(&self) -> &RequestQueue<H, RING_SIZE> {
        &self.requests
    }

    /// Returns the virtqueue of the pages and the state of its request.
    pub(crate) fn requests_mut(&mut self) -> &mut RequestQueue<H, RING_SIZE> {
        &mut self.requests
    }

    /// Sends the pages that `next` returns in one request: until `next` returns `None`, and at most
    /// `limit` or [`PFNS_PER_REQUEST`]. Returns their number. Sends no request if that is 0.
    ///
    /// The caller has checked the queue ([`RequestQueue::check`]), so that no page is taken for a
    /// faulted one, which may still have a batch. Panics if a batch is in flight.
    ///
    /// Fails if the request cannot be queued. Then the pages stay in the batch, and the caller
    /// takes them back with [`take_batch`](Self::take_batch).
    pub(crate) fn send(
        &mut self,
        transport: &mut impl Transport,
        limit: u32,
        mut next: impl FnMut() -> Option<Ballooned<P>>,
    ) -> Result<u32, BalloonError> {
        assert_eq!(self.held, 0, "one batch at a time");
        let limit = min(
            PFNS_PER_REQUEST,
            usize::try_from(limit).unwrap_or(usize::MAX),
        );
        let mut count = 0;
        for (slot, page) in self.batch[..limit]
            .iter_mut()
            .zip(core::iter::from_fn(&mut next))
        {
            *slot = Some(page);
            self.held += 1;
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: the buffer is valid (see `new`), and the batch was empty, so the device holds no
        // request that uses it.
        let shared = unsafe { self.shared.as_mut() };
        let (entries, _) = shared.as_chunks_mut();
        let pages = self.batch[..self.held].iter().flatten();
        for (entry, page) in entries.iter_mut().zip(pages) {
            *entry = page.number().number().to_le_bytes();
        }
        let used = &shared[..self.held * size_of::<u32>()];
        // SAFETY: the buffer outlives the queue. It is accessed again only when the batch is empty,
        // which is after the request has returned.
        unsafe { self.requests.submit(transport, &[used], &mut []) }?;
        self.last.0 += 1;
        Ok(count)
    }

    /// Returns the number of the request that was sent last.
    pub(crate) fn last_request(&self) -> RequestNumber {
        self.last
    }

    /// Returns whether `request` is in flight: it is the last request, and no call has taken it
    /// back yet. `false` for a faulted queue.
    pub(crate) fn holds(&self, request: RequestNumber) -> bool {
        self.last == request && self.requests.is_held()
    }

    /// Takes the request back if the device has returned it. Returns whether it has; the caller
    /// then calls [`take_batch`](Self::take_batch). Returns `false` if no request is in flight.
    /// Fails if the device broke the protocol, and from then on at every call.
    pub(crate) fn poll(&mut self) -> Result<bool, DeviceFault> {
        // SAFETY: the memory is valid. The device may be reading it, but no byte is read or written
        // through this reference: it only names the buffer.
        let shared = unsafe { self.shared.as_ref() };
        let used = &shared[..self.held * size_of::<u32>()];
        // SAFETY: the same part of the same buffer as in `send`, since `held` has not changed.
        unsafe { self.requests.complete(&[used], &mut []) }
    }

    /// Calls `each` with every page of the batch: the guest gets the pages before the device has
    /// answered. Their number counts in [`take_batch`](Self::take_batch) nonetheless.
    pub(crate) fn hand_over(&mut self, each: impl FnMut(Ballooned<P>)) {
        let pages = self.batch[..self.held].iter_mut();
        pages.filter_map(Option::take).for_each(each);
    }

    /// Empties the batch and returns the number of its pages; 0 if it has none. Calls `each` with
    /// every page, unless [`hand_over`](Self::hand_over) has already passed them on.
    pub(crate) fn take_batch(&mut self, mut each: impl FnMut(Ballooned<P>)) -> u32 {
        let mut count = 0;
        for slot in &mut self.batch[..self.held] {
            if let Some(page) = slot.take() {
                each(page);
            }
            count += 1;
        }
        self.held = 0;
        count
    }
}
