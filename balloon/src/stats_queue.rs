//! The statistics queue (virtio 1.2, 5.5.6.3).
//!
//! It runs backwards: the driver leaves one buffer with the device; when the device returns it, it
//! asks for new values, which the driver puts in before it hands the buffer back.

use crate::error::{BalloonError, QueueName};
use crate::queue::RequestQueue;
use crate::stats::{STAT_TAGS, Stats};
use core::ptr::NonNull;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

/// Bytes of an entry: a 16-bit tag, a 64-bit value, no padding.
const ENTRY_BYTES: usize = 10;

/// Bytes of the shared buffer.
pub(crate) const STATS_BUFFER_BYTES: usize = STAT_TAGS * ENTRY_BYTES;

/// The standard allows one buffer at a time.
const RING_SIZE: usize = 4;

/// The queue and its one buffer.
pub(crate) struct StatsQueue<H: Hal> {
    requests: RequestQueue<H, RING_SIZE>,
    shared: NonNull<[u8]>,
    /// The values that were last sent. Which of them are `Some` never changes: "Driver MUST supply
    /// the same subset of statistics in all buffers".
    sent: [Option<u64>; STAT_TAGS],
}

impl<H: Hal> StatsQueue<H> {
    /// `shared`: [`STATS_BUFFER_BYTES`] that live as long as the queue and are used by it alone.
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

    pub(crate) fn requests(&self) -> &RequestQueue<H, RING_SIZE> {
        &self.requests
    }

    fn bytes(&self) -> usize {
        self.sent.iter().flatten().count() * ENTRY_BYTES
    }

    /// Hands the buffer to the device, with the values in `sent`.
    pub(crate) fn offer(&mut self, transport: &mut impl Transport) -> Result<(), BalloonError> {
        let bytes = self.bytes();
        // SAFETY: valid memory (see `new`), and the device does not hold it: this is the first
        // call, or the buffer has just come back.
        let shared = unsafe { self.shared.as_mut() };
        let (entries, _) = shared.as_chunks_mut::<ENTRY_BYTES>();
        let supplied = (0u16..)
            .zip(self.sent)
            .filter_map(|(tag, value)| Some((tag, value?)));
        for (entry, (tag, value)) in entries.iter_mut().zip(supplied) {
            entry[..2].copy_from_slice(&tag.to_le_bytes());
            entry[2..].copy_from_slice(&value.to_le_bytes());
        }
        // SAFETY: the buffer outlives the queue, and is touched again only when it is back.
        unsafe {
            self.requests
                .submit(transport, &[&shared[..bytes]], &mut [])
        }
    }

    /// Whether the device asks for new values.
    fn asked(&mut self) -> Result<bool, BalloonError> {
        let bytes = self.bytes();
        // SAFETY: valid memory; the reference only names the buffer.
        let shared = unsafe { self.shared.as_ref() };
        // SAFETY: the part of the buffer that `offer` handed over: the subset never changes.
        let returned = unsafe { self.requests.complete(&[&shared[..bytes]], &mut []) }?;
        Ok(returned)
    }

    /// Answers the device if it asks for new values: whether it did. `collect` is called only then.
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
