//! The statistics queue (virtio 1.2, 5.5.6.3).
//!
//! It runs backwards: the driver leaves one buffer with the device; when the device returns it, it
//! asks for new values, which the driver puts in before it hands the buffer back.

use crate::balloon::Balloon;
use crate::error::{BalloonError, QueueName};
use crate::queue::RequestQueue;
use core::ptr::NonNull;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

/// The number of statistics that the standard defines, with tags from 0 on.
pub const STAT_TAGS: usize = 10;

/// Bytes of an entry: a 16-bit tag, a 64-bit value, no padding.
const ENTRY_BYTES: usize = 10;

/// Bytes of the shared buffer.
pub(crate) const STATS_BUFFER_BYTES: usize = STAT_TAGS * ENTRY_BYTES;

/// The standard allows one buffer at a time.
const RING_SIZE: usize = 4;

/// Memory statistics of the guest. `None`: the guest does not supply this one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Bytes swapped in since boot (tag 0).
    pub swap_in_bytes: Option<u64>,
    /// Bytes swapped out since boot (tag 1).
    pub swap_out_bytes: Option<u64>,
    /// Major page faults since boot (tag 2).
    pub major_faults: Option<u64>,
    /// Minor page faults since boot (tag 3).
    pub minor_faults: Option<u64>,
    /// Bytes that nobody uses: `MemFree` (tag 4).
    pub free_bytes: Option<u64>,
    /// Bytes of memory altogether: `MemTotal` (tag 5).
    pub total_bytes: Option<u64>,
    /// Bytes that new programs could get without swapping: `MemAvailable` (tag 6).
    pub available_bytes: Option<u64>,
    /// Bytes of caches that can be dropped without I/O (tag 7).
    pub cache_bytes: Option<u64>,
    /// Huge pages allocated from the hugetlb pool since boot (tag 8).
    pub huge_page_allocations: Option<u64>,
    /// Failed allocations of huge pages (tag 9).
    pub huge_page_failures: Option<u64>,
}

impl Stats {
    /// The values in the order of their tags.
    fn by_tag(&self) -> [Option<u64>; STAT_TAGS] {
        [
            self.swap_in_bytes,
            self.swap_out_bytes,
            self.major_faults,
            self.minor_faults,
            self.free_bytes,
            self.total_bytes,
            self.available_bytes,
            self.cache_bytes,
            self.huge_page_allocations,
            self.huge_page_failures,
        ]
    }

    pub(crate) fn supplies_any(&self) -> bool {
        self.by_tag().iter().any(Option::is_some)
    }
}

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
}

impl<H: Hal, T: Transport> Balloon<H, T> {
    /// Answers the device if it asks for statistics: whether it did. `collect` is called only then.
    ///
    /// The statistics sent are those that had a value in [`Options::stats`]; where `collect` leaves
    /// one of them out, its last value is sent again.
    ///
    /// [`Options::stats`]: crate::Options::stats
    ///
    /// # Errors
    /// The device broke the protocol, or has been reset.
    pub fn answer_stats(&mut self, collect: impl FnOnce() -> Stats) -> Result<bool, BalloonError> {
        self.check_alive()?;
        let Some(stats) = &mut self.stats else {
            return Ok(false);
        };
        if !stats.asked()? {
            return Ok(false);
        }
        for (sent, value) in stats.sent.iter_mut().zip(collect().by_tag()) {
            if sent.is_some() && value.is_some() {
                *sent = value;
            }
        }
        stats.offer(&mut self.transport)?;
        Ok(true)
    }
}
