//! The statistics queue (virtio 1.2, 5.5.6.3).
//!
//! Requests go from the device to the driver. The driver leaves one buffer with the device. The
//! device returns it to ask for new values, and the driver fills them in and submits it again.

use crate::error::{BalloonError, QueueName};
use crate::queue::RequestQueue;
use crate::stats::{STAT_TAGS, Stats};
use core::ptr::NonNull;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

/// Size of an entry in bytes: a 16-bit tag and a 64-bit value without padding.
const ENTRY_BYTES: usize = 10;

/// Size in bytes of the buffer that the driver shares with the device: one entry for each
/// statistic.
pub(crate) const STATS_BUFFER_BYTES: usize = STAT_TAGS * ENTRY_BYTES;

/// Number of descriptors of the ring. The standard allows one buffer at a time.
const RING_SIZE: usize = 4;

/// The statistics queue and its one buffer.
pub(crate) struct StatsQueue<H: Hal> {
    requests: RequestQueue<H, RING_SIZE>,
    shared: NonNull<[u8]>,
    /// The values sent last. Which of them are `Some` never changes: "Driver MUST supply the same
    /// subset of statistics in all buffers".
    sent: [Option<u64>; STAT_TAGS],
}

impl<H: Hal> StatsQueue<H> {
    /// Sets up the queue `index` of the device and submits nothing; [`offer`](Self::offer) does.
    /// `first` has the values that the first `offer` sends. A statistic that is `None` there is
    /// never sent. `shared` must live as long as the queue and must be used by it alone.
    ///
    /// Fails if `virtio-drivers` cannot set the queue up. Panics if `shared` has not
    /// [`STATS_BUFFER_BYTES`] bytes.
    pub(crate) fn new(
        transport: &mut impl Transport,
        index: u16,
        shared: NonNull<[u8]>,
        first: &Stats,
    ) -> virtio_drivers::Result<Self> {
        assert_eq!(shared.len(), STATS_BUFFER_BYTES);
        Ok(Self {
            requests: RequestQueue::new(transport, QueueName::Stats, index)?,
            shared,
            sent: first.by_tag(),
        })
    }

    /// Returns the virtqueue of the statistics and the state of its request.
    pub(crate) fn requests(&self) -> &RequestQueue<H, RING_SIZE> {
        &self.requests
    }

    fn bytes(&self) -> usize {
        self.sent.iter().flatten().count() * ENTRY_BYTES
    }

    /// Writes the values sent last, at first those given to [`new`](Self::new), into the buffer and
    /// submits it. The device must not hold the buffer. Fails if the device broke the protocol or
    /// the buffer cannot be queued. Panics if the device holds the buffer.
    pub(crate) fn offer(&mut self, transport: &mut impl Transport) -> Result<(), BalloonError> {
        let bytes = self.bytes();
        // SAFETY: the memory is valid (see `new`), and the device does not hold it: this is the
        // first call, or the device has just returned the buffer.
        let shared = unsafe { self.shared.as_mut() };
        let (entries, _) = shared.as_chunks_mut::<ENTRY_BYTES>();
        let supplied = (0u16..)
            .zip(self.sent)
            .filter_map(|(tag, value)| Some((tag, value?)));
        for (entry, (tag, value)) in entries.iter_mut().zip(supplied) {
            entry[..2].copy_from_slice(&tag.to_le_bytes());
            entry[2..].copy_from_slice(&value.to_le_bytes());
        }
        // SAFETY: the buffer outlives the queue, and is accessed again only after its return.
        unsafe {
            self.requests
                .submit(transport, &[&shared[..bytes]], &mut [])
        }
    }

    /// Takes the buffer back if the device has returned it, and returns whether it has.
    fn asked(&mut self) -> Result<bool, BalloonError> {
        let bytes = self.bytes();
        // SAFETY: the memory is valid, and no byte is read through the reference.
        let shared = unsafe { self.shared.as_ref() };
        // SAFETY: this is the part of the buffer that `offer` submitted, since the subset of values
        // never changes.
        let returned = unsafe { self.requests.complete(&[&shared[..bytes]], &mut []) }?;
        Ok(returned)
    }

    /// Answers the device's request for new values, if there is one. Calls `collect` only then, and
    /// submits the buffer again. A value that `collect` leaves out is sent again as it was. Returns
    /// whether the device had asked. Fails if the device broke the protocol or the buffer cannot be
    /// queued.
    pub(crate) fn answer(
        &mut self,
        transport: &mut impl Transport,
        collect: impl FnOnce() -> Stats,
    ) -> Result<bool, BalloonError> {
        if !self.asked()? {
            return Ok(false);
        }
        for (sent, value) in self.sent.iter_mut().zip(collect().by_tag()) {
            if sent.is_some() && value.is_some() {
                *sent = value;
            }
        }
        self.offer(transport)?;
        Ok(true)
    }
}
