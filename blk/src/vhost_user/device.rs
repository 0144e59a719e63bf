//! The vhost-user protocol of one device. One thread handles messages and queues, so no data is
//! shared.

use super::budget::{self, Share};
use super::chain::Limits;
use super::config::{self, MAX_QUEUE_SIZE, MAX_QUEUES};
use super::dirty::DirtyLog;
use super::inflight::{Area, check_span};
use super::queues::{Queues, Virtqueue, event_counter};
use super::truncated;
use crate::engine::Engine;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vhost::vhost_user::message::{
    VhostUserInflight, VhostUserLog, VhostUserMemoryRegion, VhostUserVringAddrFlags,
};
use vhost::vhost_user::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use virtio_bindings::virtio_blk::VIRTIO_BLK_F_FLUSH;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use virtio_queue::QueueT;
use vm_memory::{
    GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
    MemoryRegionAddress,
};

/// The address of a region of guest memory in the front-end's address space, by which messages name
/// rings.
#[derive(Copy, Clone, Debug)]
struct Mapping {
    /// First address in the front-end's address space.
    front: u64,
    /// Length in bytes.
    bytes: u64,
    /// Guest physical address of the first byte.
    guest: u64,
}

/// The vhost-user block device of one disk: its virtqueues, its engine, and the values that the
/// front-end has set.
#[derive(Debug)]
pub struct Device {
    /// The virtqueues.
    pub queues: Queues,
    /// The engine that carries out the virtqueues' requests.
    pub engine: Engine<Queues>,
    mappings: Vec<Mapping>,
    /// The bytes of guest memory that count against the limits of the disk and the process.
    share: Option<Share>,
    inflight: Option<Area>,
    /// The log of written pages that the front-end gave. It is used while `VHOST_F_LOG_ALL` is
    /// negotiated.
    dirty: Option<Arc<DirtyLog>>,
    /// The feature bits that the front-end has acknowledged.
    acked: u64,
}

/// The reason why a message of the front-end failed.
#[derive(Debug)]
pub enum MessageError {
    /// The message is refused. The front-end gets this answer if it asked for one, and the
    /// connection goes on.
    Refused(io::Error),
    /// The connection must be closed: the front-end cannot be served any more, or waits for an
    /// answer that cannot be given.
    Disconnect(io::Error),
}

type Result<T> = std::result::Result<T, MessageError>;

impl Device {
    /// Makes a device that no front-end has set up yet, whose requests `engine` will carry out.
    pub fn new(engine: Engine<Queues>) -> Self {
        Self {
            queues: Self::fresh_queues(&engine),
            engine,
            mappings: Vec::new(),
            share: None,
            inflight: None,
            dirty: None,
            acked: 0,
        }
    }

    /// Makes the queues of a device that is not set up.
    fn fresh_queues(engine: &Engine<Queues>) -> Queues {
        let image = engine.image();
        let limits = Limits {
            bytes: image.bytes(),
            read_only: image.read_only(),
        };
        Queues::new(MAX_QUEUES, MAX_QUEUE_SIZE, limits)
    }

    /// Finishes all requests under way and returns the device to its initial state, because the
    /// front-end is gone or asks for it. Unmaps the guest's memory. Keeps the image locked.
    ///
    /// # Errors
    /// Fails if the kernel takes no more operations.
    pub fn reset(&mut self) -> io::Result<()> {
        self.engine.drain(&mut self.queues)?;
        self.queues = Self::fresh_queues(&self.engine);
        self.mappings.clear();
        self.share = None;
        self.inflight = None;
        self.dirty = None;
        self.acked = 0;
        self.engine.set_write_through(false);
        self.watch();
        Ok(())
    }

    /// Registers all mappings that the front-end could truncate with [`truncated::watch`]. Returns
    /// `false` if they are too many.
    fn watch(&self) -> bool {
        let memory = self.queues.memory.iter().flat_map(|memory| memory.iter());
        let regions = memory.filter_map(|region| {
            let start = region.get_host_address(MemoryRegionAddress(0)).ok()?;
            Some((start, usize::try_from(region.len()).ok()?))
        });
        let area = self.inflight.as_ref().map(Area::span);
        let log = self.dirty.as_ref().map(|log| log.span());
        truncated::watch(regions.chain(area).chain(log))
    }

    /// Starts or stops the logging of written pages, according to the feature bits and the log.
    fn log_writes(&mut self) {
        let logging = self.acked & VhostUserVirtioFeatures::LOG_ALL.bits() != 0;
        self.queues.dirty = self.dirty.clone().filter(|_| logging);
        self.queues.mark_rings();
    }

    /// Returns the virtqueue `index`. Fails with `Refused` if there is none.
    fn queue(&mut self, index: u32) -> Result<&mut Virtqueue> {
        let there = self.queues.queues.get_mut(index as usize);
        there.ok_or_else(|| refused(no_ring(index)))
    }

    /// Translates an address of the front-end to a guest physical address. Fails with `Refused` if
    /// it is not in guest memory.
    fn guest_address(&self, front: u64) -> Result<u64> {
        let inside = |m: &&Mapping| front >= m.front && front - m.front < m.bytes;
        let mapping = self.mappings.iter().find(inside);
        let address = mapping.and_then(|m| m.guest.checked_add(front - m.front));
        address.ok_or_else(|| refused(format!("{front:#x} is no address of the guest's memory")))
    }

    /// Returns whether the feature bit number `bit` was acknowledged.
    fn acked(&self, bit: u32) -> bool {
        self.acked & (1 << bit) != 0
    }
}

/// Makes an error that refuses a message with the reason `why`.
fn refused(why: impl Into<String>) -> MessageError {
    MessageError::Refused(io::Error::other(why.into()))
}

const NO_MEMORY: &str = "a ring comes before the guest's memory";

/// Checks the number and the size of queues in a message about in-flight memory.
fn check_inflight(area: &VhostUserInflight) -> io::Result<()> {
    let (queues, size) = (area.num_queues, area.queue_size);
    if queues > MAX_QUEUES || size > MAX_QUEUE_SIZE {
        return Err(io::Error::other(format!(
            "in-flight memory for {queues} queues of {size}; {MAX_QUEUES} of {MAX_QUEUE_SIZE} there can be"
        )));
    }
    Ok(())
}

/// Returns the error text for a ring number that is too large.
fn no_ring(index: u32) -> String {
    let last = MAX_QUEUES - 1;
    format!("there is no ring {index}; the last one is {last}")
}

/// The handlers of messages. Each refuses ring numbers that are too large, features that were not
/// offered, and malformed values, with a reason.
impl Device {
    /// Returns the feature bits that the device offers: those of virtio and of vhost-user.
    pub(super) fn features(&self) -> u64 {
        let own = VhostUserVirtioFeatures::PROTOCOL_FEATURES | VhostUserVirtioFeatures::LOG_ALL;
        config::features(self.engine.image()) | own.bits()
    }

    /// Returns the vhost-user protocol features that the device offers.
    pub(super) fn protocol_features() -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::RESET_DEVICE
    }

    /// Returns the maximum number of rings of the device.
    pub(super) fn queue_num() -> u64 {
        MAX_QUEUES.into()
    }

    /// Sets the acknowledged feature bits. Without flush, writes become durable before their
    /// answer. Without protocol features, enables all rings. Starts or stops the logging of written
    /// pages. Fails with `Refused` if a bit was not offered; nothing changes then.
    pub(super) fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !self.features();
        if unknown != 0 {
            return Err(refused(format!("features {unknown:#x} were not offered")));
        }
        self.acked = features;
        let event_idx = self.acked(VIRTIO_RING_F_EVENT_IDX);
        let protocol = features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0;
        for virtqueue in &mut self.queues.queues {
            virtqueue.queue.set_event_idx(event_idx);
            // Without protocol features there is no message to enable a ring.
            virtqueue.enabled |= !protocol;
        }
        let flush = self.acked(VIRTIO_BLK_F_FLUSH);
        self.engine.set_write_through(!flush);
        self.log_writes();
        Ok(())
    }

    /// Maps `files` as the guest's memory, one for each of `regions`, in place of the earlier
    /// memory. All requests under way are finished before. Fails with `Refused` if a region cannot
    /// be mapped, overlaps another, or exceeds a limit, or if the requests cannot be finished. The
    /// earlier memory then stays, except if there are too many regions to watch for truncation.
    pub(super) fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
    ) -> Result<()> {
        let bytes = regions.iter().map(|region| region.memory_size);
        let bytes = bytes.fold(0, u64::saturating_add);
        let share = budget::OF_PROCESS.take(bytes);
        let share = share.map_err(MessageError::Refused)?;
        let mut mapped = Vec::with_capacity(regions.len());
        let mut mappings = Vec::with_capacity(regions.len());
        for (region, file) in regions.iter().zip(files) {
            let span = check_span(&file, region.mmap_offset, region.memory_size);
            span.map_err(MessageError::Refused)?;
            let mapping = region.mmap_region(file);
            let mapping = mapping.map_err(|why| refused(why.to_string()))?;
            let start = GuestAddress(region.guest_phys_addr);
            let placed = GuestRegionMmap::new(mapping, start);
            mapped.push(placed.ok_or_else(|| {
                let (bytes, start) = (region.memory_size, region.guest_phys_addr);
                refused(format!("a region of {bytes} bytes at {start:#x}"))
            })?);
            mappings.push(Mapping {
                front: region.user_addr,
                bytes: region.memory_size,
                guest: region.guest_phys_addr,
            });
        }
        let memory = GuestMemoryMmap::from_regions(mapped).map_err(io::Error::other);
        let memory = memory.map_err(MessageError::Refused)?;
        // After the answer the front-end may take the old memory away.
        self.engine
            .drain(&mut self.queues)
            .map_err(MessageError::Refused)?;
        self.queues.announce();
        self.queues.memory = Some(Arc::new(memory));
        self.mappings = mappings;
        self.share = Some(share);
        if !self.watch() {
            self.queues.memory = None;
            self.share = None;
            self.watch();
            let count = regions.len();
            return Err(refused(format!("{count} regions of memory are too many")));
        }
        Ok(())
    }

    /// Sets the number of entries of ring `index` to `num`. Fails with `Refused` if `num` is no
    /// power of two or above [`MAX_QUEUE_SIZE`], or the ring does not exist.
    pub(super) fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let queue = &mut self.queue(index)?.queue;
        let set = u16::try_from(num).is_ok_and(|size| queue.try_set_size(size).is_ok());
        set.then_some(()).ok_or_else(|| {
            let most = queue.max_size();
            refused(format!(
                "ring {index} of {num} entries; a power of two up to {most} it can be"
            ))
        })
    }

    /// Sets the addresses of ring `index`, which are in the front-end's address space. `log` is the
    /// guest physical address at which its used ring is logged if `flags` ask for it. Reads the
    /// index of the next answer from the used ring, unless the ring runs. Fails with `Refused` if
    /// the ring does not exist, or an address is malformed or not in guest memory.
    pub(super) fn set_vring_addr(
        &mut self,
        index: u32,
        flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        log: u64,
    ) -> Result<()> {
        let descriptor = GuestAddress(self.guest_address(descriptor)?);
        let available = GuestAddress(self.guest_address(available)?);
        let used = GuestAddress(self.guest_address(used)?);
        let memory = self.queues.memory.clone();
        let memory = memory.ok_or_else(|| refused(NO_MEMORY))?;
        let virtqueue = self.queue(index)?;
        let queue = &mut virtqueue.queue;
        let running = queue.ready() && queue.used_ring() == used.0;
        let set = queue
            .try_set_desc_table_address(descriptor)
            .and_then(|()| queue.try_set_avail_ring_address(available))
            .and_then(|()| queue.try_set_used_ring_address(used));
        set.map_err(|why| refused(format!("ring {index}: {why}")))?;
        // For a running ring only the log address may change. Otherwise the index in the used ring
        // tells how far it was answered; the base that the front-end sets is that of the available
        // ring.
        if !running {
            let next = queue.used_idx(&*memory, Ordering::Acquire);
            let next = next.map_err(|why| refused(format!("ring {index}: {why}")))?;
            queue.set_next_used(next.0);
        }
        let logged = flags.contains(VhostUserVringAddrFlags::VHOST_VRING_F_LOG);
        virtqueue.used_log = logged.then_some(log);
        self.queues.mark_rings();
        Ok(())
    }

    /// Sets the index of the next entry to take from the available ring of ring `index`. Fails with
    /// `Refused` if `base` has more than 16 bits or the ring does not exist.
    pub(super) fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| {
            refused(format!(
                "ring {index} from {base} on; its indices have 16 bits"
            ))
        })?;
        self.queue(index)?.queue.set_next_avail(base);
        Ok(())
    }

    /// Stops ring `index`, closes its event counters, and returns the index of its next available
    /// entry. Finishes the requests of all rings before. If pages are being logged and this was the
    /// last running ring, makes writes durable and unlocks the image for the back-end at the
    /// destination. Fails if the ring does not exist, or the engine or the image fails.
    pub(super) fn get_vring_base(&mut self, index: u32) -> io::Result<u16> {
        if index >= u32::from(MAX_QUEUES) {
            return Err(io::Error::other(no_ring(index)));
        }
        // The front-end takes the ring back, so no request of it may be under way.
        self.engine.drain(&mut self.queues)?;
        self.queues.announce();
        let virtqueue = &mut self.queues.queues[index as usize];
        let next = virtqueue.queue.next_avail();
        virtqueue.stop();
        let running = |virtqueue: &Virtqueue| virtqueue.queue.ready();
        if self.queues.dirty.is_some() && !self.queues.queues.iter().any(running) {
            // The migration has copied all memory, so the guest continues at the destination with
            // this image.
            self.engine.image().hand_over()?;
        }
        Ok(next)
    }

    /// Sets `file`, the event counter by which the driver notifies ring `index`, and starts the
    /// ring. Locks the image, which may take two seconds, and takes over the requests in the
    /// in-flight log. Fails with `Refused` if `file` is `None` or no event counter, if the ring
    /// does not exist, or if there is no guest memory yet. Fails with `Disconnect` if the image
    /// cannot be locked.
    pub(super) fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        // A ring without an event counter would have to be polled for ever.
        let file = file.ok_or_else(|| refused(format!("ring {index} would have to be polled")))?;
        let kick = event_counter(file).map_err(MessageError::Refused)?;
        let memory = self.queues.memory.clone();
        let memory = memory.ok_or_else(|| refused(NO_MEMORY))?;
        let size = self.queue(index.into())?.queue.size();
        // The image may have been released for a migration, or not been locked yet by its
        // destination.
        let locked = self.engine.image().lock();
        locked.map_err(|why| {
            MessageError::Disconnect(match why.kind() {
                io::ErrorKind::WouldBlock => io::Error::other("another back-end has the image"),
                _ => why,
            })
        })?;
        // QEMU makes the area for the queue size in its configuration, and drivers on virtio-mmio
        // may choose a larger one. Such a ring has no in-flight log.
        let area = self.inflight.as_ref();
        let log = area.and_then(|area| area.queue(index.into(), size));
        let virtqueue = self.queue(index.into())?;
        virtqueue.kick = Some(kick);
        virtqueue.log = log;
        virtqueue.start(&memory);
        Ok(())
    }

    /// Sets `file`, the event counter that notifies the driver of answers in ring `index`. `None`
    /// removes it. Fails with `Refused` if it is no event counter or the ring does not exist.
    pub(super) fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let file = file
            .map(event_counter)
            .transpose()
            .map_err(MessageError::Refused)?;
        self.queue(index.into())?.call = file;
        Ok(())
    }

    /// Sets `file`, the event counter that tells the front-end that ring `index` is broken. `None`
    /// removes it. Fails with `Refused` if it is no event counter or the ring does not exist.
    pub(super) fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let file = file
            .map(event_counter)
            .transpose()
            .map_err(MessageError::Refused)?;
        self.queue(index.into())?.err = file;
        Ok(())
    }

    /// Checks the acknowledged protocol features, but does not store them. Fails with `Refused` if
    /// one was not offered.
    pub(super) fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !Self::protocol_features().bits();
        if unknown != 0 {
            return Err(refused(format!(
                "protocol features {unknown:#x} were not offered"
            )));
        }
        Ok(())
    }

    /// Enables or disables ring `index`. Requests of a disabled ring are not taken. Fails with
    /// `Refused` if it does not exist.
    pub(super) fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.queue(index)?.enabled = enable;
        Ok(())
    }

    /// Returns `size` bytes of the device's configuration space from `offset` on. Bytes behind its
    /// end are zero.
    pub(super) fn config(&self, offset: u32, size: u32) -> Vec<u8> {
        config::read(&config::space(self.engine.image()), offset, size)
    }

    /// Makes a file for the in-flight log of as many queues as `asked` says. Returns its
    /// description and the file. Does not use the log yet. Fails if the number or the size of the
    /// queues is too large, or the system refuses.
    pub(super) fn get_inflight_fd(
        &self,
        asked: &VhostUserInflight,
    ) -> io::Result<(VhostUserInflight, File)> {
        check_inflight(asked)?;
        let (file, bytes) = Area::create(asked.num_queues, asked.queue_size)?;
        Ok((
            VhostUserInflight::new(bytes, 0, asked.num_queues, asked.queue_size),
            file,
        ))
    }

    /// Maps `file` as the in-flight log, which an earlier back-end or this one made, for rings that
    /// start later. Rings that run have no log afterwards, even on failure. Fails with `Refused` if
    /// `given` has too many or too large queues, or the file cannot be mapped or is too small.
    pub(super) fn set_inflight_fd(&mut self, given: &VhostUserInflight, file: File) -> Result<()> {
        check_inflight(given).map_err(MessageError::Refused)?;
        let area = Area::map(
            file,
            given.mmap_offset,
            given.mmap_size,
            given.num_queues,
            given.queue_size,
        );
        // No ring may go on with an area that the device does not use any more.
        for virtqueue in &mut self.queues.queues {
            virtqueue.log = None;
        }
        self.inflight = Some(area.map_err(MessageError::Refused)?);
        if !self.watch() {
            self.inflight = None;
            return Err(refused("regions of memory are too many"));
        }
        Ok(())
    }

    /// Maps `file` as the log of written pages, and begins to log if the feature was acknowledged.
    /// Fails if it cannot be mapped, or does not cover the guest's present memory; nothing changes
    /// then.
    pub(super) fn set_log_base(&mut self, given: &VhostUserLog, file: File) -> io::Result<()> {
        let log = DirtyLog::map(file, given.mmap_offset, given.mmap_size)?;
        // A page without a bit would be missing at the destination.
        let memory = self.queues.memory.as_deref();
        let last = memory.map_or(0, |memory| memory.last_addr().0);
        if !log.covers(last) {
            let bytes = given.mmap_size;
            return Err(io::Error::other(format!(
                "a log of {bytes} bytes for memory that ends at {last:#x}"
            )));
        }
        self.dirty = Some(Arc::new(log));
        self.log_writes();
        self.watch();
        Ok(())
    }
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
