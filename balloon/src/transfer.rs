//! A queue by which pages come into the balloon or leave it.
//!
//! A page on its way is in the batch of one of the two queues and nowhere else: not with the
//! source, not in the balloon. It leaves the batch when the device has acknowledged the request, or
//! with a reset.

use crate::error::{BalloonError, DeviceFault, QueueName};
use crate::page::Pfn;
use crate::queue::RequestQueue;
use core::cmp::min;
use core::ptr::NonNull;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

/// The most pages in one request: 1 MiB of memory, named by 1 KiB of numbers.
pub const PFNS_PER_REQUEST: usize = 256;

/// Bytes of the shared buffer of one queue.
pub(crate) const PFN_BUFFER_BYTES: usize = PFNS_PER_REQUEST * size_of::<u32>();

/// Ring size of the inflate and deflate queues: one request of one buffer is under way at a time.
const RING_SIZE: usize = 4;

/// One of the two queues, with the pages that are on their way through it.
pub(crate) struct Transfer<H: Hal> {
    requests: RequestQueue<H, RING_SIZE>,
    /// Where the device reads the page numbers.
    shared: NonNull<[u8]>,
    /// The same pages, where it cannot reach them. `held` of them are under way.
    batch: [Pfn; PFNS_PER_REQUEST],
    held: usize,
    /// The pages under way are already with the guest again: deflation without `MUST_TELL_HOST`.
    handed_over: bool,
}

impl<H: Hal> Transfer<H> {
    /// `shared`: [`PFN_BUFFER_BYTES`] that live as long as the transfer and are used by it alone.
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
            batch: [Pfn::default(); PFNS_PER_REQUEST],
            held: 0,
            handed_over: false,
        })
    }

    pub(crate) fn requests(&self) -> &RequestQueue<H, RING_SIZE> {
        &self.requests
    }

    pub(crate) fn requests_mut(&mut self) -> &mut RequestQueue<H, RING_SIZE> {
        &mut self.requests
    }

    /// Sends up to `limit` of the pages that `next` yields: how many. On an error the pages stay in
    /// the batch for the caller to take back with [`take_batch`](Self::take_batch).
    pub(crate) fn send(
        &mut self,
        transport: &mut impl Transport,
        limit: u32,
        mut next: impl FnMut() -> Option<Pfn>,
    ) -> Result<u32, BalloonError> {
        // Before any page is taken: a faulted queue is not worth it.
        self.requests.check()?;
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
            *slot = page;
            self.held += 1;
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: the buffer is valid (see `new`), and the device holds no request that uses it,
        // since the batch was empty.
        let shared = unsafe { self.shared.as_mut() };
        let (entries, _) = shared.as_chunks_mut();
        for (entry, page) in entries.iter_mut().zip(&self.batch[..self.held]) {
            *entry = page.number().to_le_bytes();
        }
        let used = &shared[..self.held * size_of::<u32>()];
        // SAFETY: the buffer outlives the queue, and it is touched again only when the batch is
        // empty, which is when the request is back.
        unsafe { self.requests.submit(transport, &[used], &mut []) }?;
        Ok(count)
    }

    /// Whether the device has returned the batch; its pages are then for
    /// [`take_batch`](Self::take_batch).
    pub(crate) fn poll(&mut self) -> Result<bool, DeviceFault> {
        // SAFETY: valid memory, that only the device may be using: nothing is read through this
        // reference or written, it only names the buffer.
        let shared = unsafe { self.shared.as_ref() };
        let used = &shared[..self.held * size_of::<u32>()];
        // SAFETY: the same part of the same buffer as in `send`, since `held` has not changed.
        unsafe { self.requests.complete(&[used], &mut []) }
    }

    /// Shows `each` the pages of the batch, which are with the guest again from here on.
    pub(crate) fn hand_over(&mut self, each: impl FnMut(Pfn)) {
        self.batch[..self.held].iter().copied().for_each(each);
        self.handed_over = true;
    }

    /// Empties the batch, and shows `each` the pages that are not with the guest yet.
    pub(crate) fn take_batch(&mut self, mut each: impl FnMut(Pfn)) -> u32 {
        let mut count = 0;
        for &page in &self.batch[..self.held] {
            if !self.handed_over {
                each(page);
            }
            count += 1;
        }
        self.held = 0;
        self.handed_over = false;
        count
    }
}
