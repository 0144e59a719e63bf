//! The virtqueues of a device, as a door.

use super::chain::{self, GuestPayload, Limits};
use super::counter;
use super::dirty::{DirtyLog, UsedRing};
use super::inflight::QueueLog;
use super::truncated;
use crate::request::{Door, Incoming, Status};
use rustix::fs::{FileType, fstat};
use rustix::io::ioctl_fionbio;
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

/// What is needed to answer a request of a virtqueue.
#[derive(Copy, Clone, Debug)]
pub struct Ticket {
    queue: usize,
    head: u16,
    status: Option<GuestAddress>,
}

/// One virtqueue.
#[derive(Debug)]
pub struct Virtqueue {
    /// Ring addresses and indices.
    pub queue: Queue,
    /// Written by the driver's notification.
    pub kick: Option<File>,
    /// Written to interrupt the driver.
    pub call: Option<File>,
    /// Written when the ring is broken.
    pub err: Option<File>,
    /// Whether the front-end lets requests through.
    pub enabled: bool,
    /// What a predecessor left, to be done before anything new.
    pub again: VecDeque<u16>,
    /// For a successor.
    pub log: Option<QueueLog>,
    /// Where writes to the used ring are logged, if they are to be.
    pub used_log: Option<u64>,
    /// Something was answered since the driver was last told.
    answered: bool,
    /// The ring made no sense; it stays shut until it is set up again.
    broken: bool,
}

impl Virtqueue {
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

    /// Whether requests are to be taken.
    pub fn running(&self) -> bool {
        self.queue.ready() && self.enabled && !self.broken
    }

    /// Starts the ring: the front-end handed in the kick.
    pub fn start(&mut self, memory: &GuestMemoryMmap) {
        self.broken = false;
        self.again.clear();
        if let Some(log) = &mut self.log {
            let used = self.queue.next_used();
            let heads = log.recover(used).heads;
            // What a predecessor took is done again from the log, not from the ring.
            let taken = u16::try_from(heads.len()).unwrap_or(u16::MAX);
            self.queue.set_next_avail(used.wrapping_add(taken));
            self.again = heads.into();
        }
        self.queue.set_ready(true);
        self.broken = !self.queue.is_valid(memory);
    }

    /// Stops it.
    pub fn stop(&mut self) {
        self.queue.set_ready(false);
        self.kick = None;
        self.call = None;
    }

    /// The used ring as the log of written pages knows it.
    fn used_ring(&self) -> Option<UsedRing> {
        self.used_log.map(|log_address| UsedRing {
            log_address,
            size: self.queue.size(),
        })
    }

    /// What the ring asks its driver about notifications was written.
    fn mark_asked(&self, dirty: Option<&DirtyLog>) {
        if let Some(dirty) = dirty
            && let Some(ring) = self.used_ring()
        {
            ring.asked(dirty, self.queue.event_idx_enabled());
        }
    }

    fn break_ring(&mut self) {
        self.broken = true;
        notify(self.err.as_ref());
    }
}

/// All virtqueues, and the memory that they are in.
#[derive(Debug)]
pub struct Queues {
    /// The guest's memory; `None` before the front-end handed it in.
    pub memory: Option<Arc<GuestMemoryMmap>>,
    /// The queues.
    pub queues: Vec<Virtqueue>,
    /// Where pages that are written are marked, while the front-end wants that.
    pub dirty: Option<Arc<DirtyLog>>,
    limits: Limits,
    /// Which queue is asked first next time, so that a busy one starves no other.
    turn: usize,
}

impl Queues {
    /// Queues that are not set up yet.
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

    /// Asks drivers not to notify while we look anyway.
    pub fn quiet(&mut self) {
        let dirty = self.dirty.clone();
        self.each_running(|queue, memory| {
            let asked = queue.queue.disable_notification(memory).is_ok();
            // With the event index there is nothing to write.
            if !queue.queue.event_idx_enabled() {
                queue.mark_asked(dirty.as_deref());
            }
            asked
        });
    }

    /// Asks drivers to notify again. Returns whether there is something to do already.
    pub fn listen(&mut self) -> bool {
        let mut more = false;
        let dirty = self.dirty.clone();
        self.each_running(|queue, memory| {
            let asked = queue.queue.enable_notification(memory);
            queue.mark_asked(dirty.as_deref());
            more |= asked.as_ref().is_ok_and(|waiting| *waiting) || !queue.again.is_empty();
            asked.is_ok()
        });
        more
    }

    /// Marks all used rings that are logged. To be done when logging begins: a predecessor may
    /// have died between an answer and its mark.
    pub fn mark_rings(&self) {
        let Some(dirty) = &self.dirty else { return };
        let rings = self.queues.iter().filter_map(Virtqueue::used_ring);
        rings.for_each(|ring| ring.all(dirty));
    }

    /// Whether a driver has made something available.
    pub fn has_requests(&self) -> bool {
        let Some(memory) = &self.memory else {
            return false;
        };
        let mut running = self.queues.iter().filter(|queue| queue.running());
        running.any(|queue| !queue.again.is_empty() || !is_empty(&queue.queue, memory))
    }

    /// Hands out the descriptors by which drivers notify. A ring whose descriptor cannot be waited
    /// for is shut.
    pub(crate) fn each_kick(&mut self, mut add: impl FnMut(&File) -> bool) {
        for queue in self.queues.iter_mut().filter(|queue| queue.running()) {
            if !queue.kick.as_ref().is_some_and(&mut add) {
                queue.break_ring();
            }
        }
    }

    /// Tells drivers of answers where they want to be told.
    pub fn announce(&mut self) {
        self.each_running(|queue, memory| {
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

    fn each_running(&mut self, mut visit: impl FnMut(&mut Virtqueue, &GuestMemoryMmap) -> bool) {
        let Some(memory) = self.memory.clone() else {
            return;
        };
        for queue in self.queues.iter_mut().filter(|queue| queue.running()) {
            if !visit(queue, &memory) {
                queue.break_ring();
            }
        }
    }

    fn take(&mut self, index: usize) -> Option<Incoming<Ticket, GuestPayload>> {
        let limits = self.limits;
        let virtqueue = &mut self.queues[index];
        if !virtqueue.running() {
            return None;
        }
        let memory = self.memory.clone()?;
        let (head, parsed) = if let Some(head) = virtqueue.again.pop_front() {
            // The ring's own entry for it may have been overwritten; the descriptors may not.
            let chain = chain_at(&virtqueue.queue, &memory, head);
            (head, chain::parse(&memory, chain, limits))
        } else {
            if is_empty(&virtqueue.queue, &memory) {
                return None;
            }
            let available = virtqueue.queue.iter(&*memory);
            // An index that makes no sense, or an entry that is not in the guest's memory.
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

/// Whether the available ring has nothing new, by its own account.
fn is_empty(queue: &Queue, memory: &GuestMemoryMmap) -> bool {
    // Acquire: pairs with the driver's release of the index.
    let index = queue.avail_idx(memory, Ordering::Acquire);
    index.is_ok_and(|index| index.0 == queue.next_avail())
}

/// The chain that begins at `head`, as if the ring had just offered it: by way of a queue of our
/// own whose available ring is out of the guest's reach there is none, so it is walked here.
fn chain_at<'a>(
    queue: &Queue,
    memory: &'a GuestMemoryMmap,
    head: u16,
) -> impl Iterator<Item = virtio_queue::desc::split::Descriptor> + 'a {
    use virtio_queue::desc::split::Descriptor;
    let entry = size_of::<Descriptor>() as u64;
    let mut table = (queue.desc_table(), u32::from(queue.size()), false);
    let mut next = Some(u32::from(head));
    // Bounded: no chain is followed for longer than a parser would look at it.
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

impl Door for Queues {
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
        // Where it lies was checked: the front-end cut it since.
        truncated::lost_to_kernel();
    }

    fn answer(&mut self, ticket: Ticket, status: Status, written: u32) {
        let Some(memory) = &self.memory else { return };
        let virtqueue = &mut self.queues[ticket.queue];
        let mut bytes = written;
        if let Some(address) = ticket.status {
            // A status that cannot be written is the driver's own doing.
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

/// Accepts an event counter of the front-end's. A full one that stays as it is made here wakes its
/// reader without a wait; see [`counter`] for one that does not stay so. Files of other kinds are
/// refused: what they do when they are written to or waited for is up to their file system.
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

/// Adds one to an event counter, if there is one.
fn notify(file: Option<&File>) {
    if let Some(file) = file {
        counter::add_one(file);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "queues_tests.rs"]
mod tests;
