//! The virtqueues of a device, as the source of its requests.

use super::chain::{self, GuestPayload, Limits};
use super::counter;
use super::dirty::{DirtyLog, UsedRing};
use super::inflight::QueueLog;
use super::truncated;
use crate::request::{Incoming, Status, Transport};
use rustix::fs::{FileType, fstat};
use rustix::io::ioctl_fionbio;
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// The data needed to answer a request of a virtqueue.
#[derive(Copy, Clone, Debug)]
pub struct Ticket {
    /// Index of the virtqueue.
    queue: usize,
    /// Index of the chain's first descriptor.
    head: u16,
    /// Guest physical address of the status byte, if the chain has one.
    status: Option<GuestAddress>,
}

/// One virtqueue of a device, with its event counters and logs.
#[derive(Debug)]
pub struct Virtqueue {
    /// The ring's addresses and indices.
    pub queue: Queue,
    /// The event counter by which the driver notifies the device.
    pub kick: Option<File>,
    /// The event counter by which the device notifies the driver.
    pub call: Option<File>,
    /// The event counter that tells the front-end of a broken ring.
    pub err: Option<File>,
    /// Whether the front-end has enabled the ring.
    pub enabled: bool,
    /// Requests that a predecessor left unanswered, by head descriptor. They are done before new
    /// ones.
    pub again: VecDeque<u16>,
    /// The in-flight log, for a successor.
    pub log: Option<QueueLog>,
    /// Guest physical address at which writes to the used ring are logged. `None` if they are not.
    pub used_log: Option<u64>,
    /// Whether requests were answered since the driver was last notified.
    answered: bool,
    /// Whether the ring was found to be invalid. It stays closed until it is set up again.
    broken: bool,
}

impl Virtqueue {
    /// Makes a virtqueue that is not set up. Returns `None` if `max_size` is no valid size.
    fn new(max_size: u16) -> Option<Self> {
        Some(Self {
            queue: Queue::new(max_size).ok()?,
            kick: None,
            call: None,
            err: None,
            enabled: false,
            again: VecDeque::new(),
            log: None,
            used_log: None,
            answered: false,
            broken: false,
        })
    }

    /// Returns whether requests may be taken from the ring: it is started, enabled and not broken.
    pub fn running(&self) -> bool {
        self.answers() && self.enabled
    }

    /// Returns whether requests may be answered in the ring: it is started and not broken. The
    /// front-end disables a ring before it stops it, and requests that are under way end meanwhile.
    fn answers(&self) -> bool {
        self.queue.ready() && !self.broken
    }

    /// Starts the ring, also if it was broken. If it has an in-flight log, takes over the requests
    /// of a predecessor from it, and continues in the available ring behind them. Marks the ring as
    /// broken if its addresses are not valid in `memory`.
    pub fn start(&mut self, memory: &GuestMemoryMmap) {
        self.broken = false;
        self.again.clear();
        if let Some(log) = &mut self.log {
            let used = self.queue.next_used();
            let heads = log.recover(used).heads;
            // Requests that a predecessor took are done again from the log, not from the ring.
            let taken = u16::try_from(heads.len()).unwrap_or(u16::MAX);
            self.queue.set_next_avail(used.wrapping_add(taken));
            self.again = heads.into();
        }
        self.queue.set_ready(true);
        self.broken = !self.queue.is_valid(memory);
    }

    /// Stops the ring and closes its event counters `kick` and `call`. Its addresses and `err`
    /// stay.
    pub fn stop(&mut self) {
        self.queue.set_ready(false);
        self.kick = None;
        self.call = None;
    }

    /// Returns the used ring's address in the log of written pages, or `None` if it is not logged.
    fn used_ring(&self) -> Option<UsedRing> {
        self.used_log.map(|log_address| UsedRing {
            log_address,
            size: self.queue.size(),
        })
    }

    /// Marks the field by which the device enables or disables notifications as written.
    fn mark_asked(&self, dirty: Option<&DirtyLog>) {
        if let Some(dirty) = dirty
            && let Some(ring) = self.used_ring()
        {
            ring.asked(dirty, self.queue.event_idx_enabled());
        }
    }

    /// Marks the ring as broken and tells the front-end.
    fn break_ring(&mut self) {
        self.broken = true;
        notify(self.err.as_ref());
    }
}

/// All virtqueues of a device, and the guest memory that contains them.
#[derive(Debug)]
pub struct Queues {
    /// The guest's memory. `None` until the front-end has passed it.
    pub memory: Option<Arc<GuestMemoryMmap>>,
    /// The virtqueues, by ring number.
    pub queues: Vec<Virtqueue>,
    /// The log of written pages, while the front-end wants one.
    pub dirty: Option<Arc<DirtyLog>>,
    limits: Limits,
    /// The queue from which the next request is taken first, so that a busy queue does not starve
    /// others.
    turn: usize,
}

impl Queues {
    /// Makes `count` queues of at most `max_size` entries that are not set up yet, for the disk
    /// that `limits` describes. Makes none if `max_size` is no power of two.
    pub fn new(count: u16, max_size: u16, limits: Limits) -> Self {
        let queues = (0..count)
            .filter_map(|_| Virtqueue::new(max_size))
            .collect();
        Self {
            memory: None,
            queues,
            dirty: None,
            limits,
            turn: 0,
        }
    }

    /// Disables the driver's notifications for all running rings, while the thread checks them
    /// anyway. A ring whose memory cannot be written is marked as broken.
    pub fn disable_notifications(&mut self) {
        let dirty = self.dirty.clone();
        self.each(Virtqueue::running, |queue, memory| {
            let asked = queue.queue.disable_notification(memory).is_ok();
            // With the event index nothing is written.
            if !queue.queue.event_idx_enabled() {
                queue.mark_asked(dirty.as_deref());
            }
            asked
        });
    }

    /// Enables the driver's notifications for all running rings. Returns whether a request is
    /// already available, for which no notification may come. A ring whose memory cannot be
    /// accessed is marked as broken.
    pub fn enable_notifications(&mut self) -> bool {
        let mut more = false;
        let dirty = self.dirty.clone();
        self.each(Virtqueue::running, |queue, memory| {
            let asked = queue.queue.enable_notification(memory);
            queue.mark_asked(dirty.as_deref());
            more |= asked.as_ref().is_ok_and(|waiting| *waiting) || !queue.again.is_empty();
            asked.is_ok()
        });
        more
    }

    /// Marks all logged used rings as written, as a whole. Call this when logging begins, because a
    /// predecessor may have died between an answer and its mark. Does nothing without a log.
    pub fn mark_rings(&self) {
        let Some(dirty) = &self.dirty else { return };
        let rings = self.queues.iter().filter_map(Virtqueue::used_ring);
        rings.for_each(|ring| ring.all(dirty));
    }

    /// Returns whether a running ring has a request to take, a new one or one of a predecessor.
    /// Also returns `true` if a ring's index cannot be read.
    pub fn has_requests(&self) -> bool {
        let Some(memory) = &self.memory else {
            return false;
        };
        let mut running = self.queues.iter().filter(|queue| queue.running());
        running.any(|queue| !queue.again.is_empty() || !is_empty(&queue.queue, memory))
    }

    /// Calls `add` with the event counter `kick` of each running ring. A ring for which `add`
    /// returns `false`, or which has no counter, is marked as broken.
    pub(crate) fn each_kick(&mut self, mut add: impl FnMut(&File) -> bool) {
        for queue in self.queues.iter_mut().filter(|queue| queue.running()) {
            if !queue.kick.as_ref().is_some_and(&mut add) {
                queue.break_ring();
            }
        }
    }

    /// Notifies the drivers of rings that have answered requests since the last call, if they have
    /// notifications enabled. A ring whose memory cannot be read is marked as broken.
    pub fn announce(&mut self) {
        self.each(Virtqueue::answers, |queue, memory| {
            if !std::mem::take(&mut queue.answered) {
                return true;
            }
            match queue.queue.needs_notification(memory) {
                Ok(true) => {
                    notify(queue.call.as_ref());
                    true
                }
                Ok(false) => true,
                Err(_) => false,
            }
        });
    }

    /// Calls `visit` for each ring that `is_meant`. A ring for which `visit` returns `false` is
    /// marked as broken.
    fn each(
        &mut self,
        is_meant: impl Fn(&Virtqueue) -> bool,
        mut visit: impl FnMut(&mut Virtqueue, &GuestMemoryMmap) -> bool,
    ) {
        let Some(memory) = self.memory.clone() else {
            return;
        };
        for queue in self.queues.iter_mut().filter(|queue| is_meant(queue)) {
            if !visit(queue, &memory) {
                queue.break_ring();
            }
        }
    }

    /// Takes the next request of queue number `index`. Returns `None` if there is none or the ring
    /// does not run.
    fn take(&mut self, index: usize) -> Option<Incoming<Ticket, GuestPayload>> {
        let limits = self.limits;
        let virtqueue = &mut self.queues[index];
        if !virtqueue.running() {
            return None;
        }
        let memory = self.memory.clone()?;
        let (head, parsed) = if let Some(head) = virtqueue.again.pop_front() {
            // The ring's entry for it may have been overwritten. The descriptors may not.
            let chain = chain_at(&virtqueue.queue, &memory, head);
            (head, chain::parse(&memory, chain, limits))
        } else {
            if is_empty(&virtqueue.queue, &memory) {
                return None;
            }
            let available = virtqueue.queue.iter(&*memory);
            // The index is invalid, or the entry is not in the guest's memory.
            let Some(chain) = available.ok().and_then(|mut available| available.next()) else {
                virtqueue.break_ring();
                return None;
            };
            let head = chain.head_index();
            (head, chain::parse(&memory, chain, limits))
        };
        if let Some(log) = &mut virtqueue.log {
            log.taken(head);
        }
        let ticket = Ticket {
            queue: index,
            head,
            status: parsed.status,
        };
        Some(Incoming {
            ticket,
            request: parsed.request,
        })
    }
}

/// Returns whether the available ring has no new entry. Returns `false` if its index cannot be
/// read.
fn is_empty(queue: &Queue, memory: &GuestMemoryMmap) -> bool {
    // Acquire: pairs with the driver's Release of the index.
    let index = queue.avail_idx(memory, Ordering::Acquire);
    index.is_ok_and(|index| index.0 == queue.next_avail())
}

/// Returns the descriptors of the chain that begins at `head`. [`Queue`] returns only chains that
/// the available ring names, so this function follows the chain itself.
fn chain_at<'a>(
    queue: &Queue,
    memory: &'a GuestMemoryMmap,
    head: u16,
) -> impl Iterator<Item = virtio_queue::desc::split::Descriptor> + 'a {
    use virtio_queue::desc::split::Descriptor;
    let entry = size_of::<Descriptor>() as u64;
    let mut table = (queue.desc_table(), u32::from(queue.size()), false);
    let mut next = Some(u32::from(head));
    // Limited to slightly more descriptors than the parser reads.
    let mut left = chain::MAX_DESCRIPTORS + 2;
    std::iter::from_fn(move || {
        loop {
            let index = next.filter(|index| *index < table.1 && left > 0)?;
            left -= 1;
            let address = table.0.checked_add(u64::from(index) * entry)?;
            let descriptor: Descriptor = memory.read_obj(GuestAddress(address)).ok()?;
            if descriptor.refers_to_indirect_table() {
                let count = descriptor.len() / u32::try_from(entry).ok()?;
                if table.2
                    || u64::from(descriptor.len()) % entry != 0
                    || count > u32::from(u16::MAX)
                {
                    return None;
                }
                table = (descriptor.addr().0, count, true);
                next = Some(0);
                continue;
            }
            next = descriptor.has_next().then(|| u32::from(descriptor.next()));
            return Some(descriptor);
        }
    })
}

impl Transport for Queues {
    type Ticket = Ticket;
    type Payload = GuestPayload;

    fn next_request(&mut self) -> Option<Incoming<Ticket, GuestPayload>> {
        let count = self.queues.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            if let Some(incoming) = self.take(index) {
                self.turn = index;
                return Some(incoming);
            }
        }
        self.turn = (self.turn + 1) % count.max(1);
        None
    }

    fn filled(&mut self, payload: &GuestPayload) {
        if let Some(dirty) = &self.dirty {
            for segment in payload.segments() {
                dirty.mark(segment.address.0, segment.bytes.into());
            }
        }
    }

    fn lost(&mut self, _: &GuestPayload) {
        // The addresses were checked, so the front-end has truncated the memory since.
        truncated::lost_to_kernel();
    }

    fn answer(&mut self, ticket: Ticket, status: Status, written: u32) {
        let Some(memory) = &self.memory else { return };
        let virtqueue = &mut self.queues[ticket.queue];
        let mut bytes = written;
        if let Some(address) = ticket.status {
            // If the status cannot be written, the driver has named a wrong address.
            let told = memory.store(status as u8, address, Ordering::Relaxed);
            bytes = bytes.saturating_add(u32::from(told.is_ok()));
            if let Some(dirty) = &self.dirty {
                dirty.mark(address.0, 1);
            }
        }
        if let Some(log) = &mut virtqueue.log {
            log.answering(ticket.head);
        }
        let index = virtqueue.queue.next_used();
        match virtqueue.queue.add_used(&**memory, ticket.head, bytes) {
            Ok(()) => virtqueue.answered = true,
            Err(_) => virtqueue.break_ring(),
        }
        if let Some(dirty) = &self.dirty
            && let Some(ring) = virtqueue.used_ring()
        {
            ring.answered(dirty, index);
        }
        if let Some(log) = &mut virtqueue.log {
            log.answered(ticket.head, virtqueue.queue.next_used());
        }
    }
}

/// Returns `file`, made non-blocking, if it is an event counter, so that writing to a full one does
/// not block. [`counter`] handles a front-end that changes this. Fails for files of other types,
/// because their file systems decide what a write or a wait does.
pub(super) fn event_counter(file: File) -> std::io::Result<File> {
    let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
    // Anonymous inodes, which event counters are, have no type.
    if kind != FileType::Unknown {
        return Err(std::io::Error::other(format!(
            "a file of type {kind:?} instead of an event counter"
        )));
    }
    ioctl_fionbio(&file, true)?;
    Ok(file)
}

/// Adds one to `file`, if there is one.
fn notify(file: Option<&File>) {
    if let Some(file) = file {
        counter::add_one(file);
    }
}

#[cfg(test)]
#[path = "queues_tests.rs"]
mod tests;
