//! A front-end that acts as QEMU and a guest's driver, in one process, for tests and measurements.
#![allow(dead_code, reason = "each of its users needs another part")]
#![allow(
    unreachable_pub,
    missing_debug_implementations,
    missing_docs,
    reason = "no library"
)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may panic"
)]

pub mod log;

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserInflight, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Types of requests, with virtio's numbers.
pub const IN: u32 = 0;
pub const OUT: u32 = 1;
pub const FLUSH: u32 = 4;
pub const GET_ID: u32 = 8;
pub const DISCARD: u32 = 11;
pub const WRITE_ZEROES: u32 = 13;
/// Statuses of answers, with virtio's numbers.
pub const OK: u8 = 0;
pub const IO_ERROR: u8 = 1;
pub const UNSUPPORTED: u8 = 2;

/// Bytes of guest memory.
pub const MEMORY: u64 = 64 << 20;
/// Guest physical address from which data may be stored, behind the rings.
pub const DATA: u64 = 16 << 20;
/// Number of entries of a queue.
pub const QUEUE_SIZE: u16 = 256;
/// Number of requests of three descriptors that fit into a queue.
pub const SLOTS: u16 = QUEUE_SIZE / 3;
/// The status of a request that is not answered.
pub const UNANSWERED: u8 = 0xff;
const QUEUE_SPAN: u64 = 1 << 20;
const FEATURES: u64 = 1 << 32 | 1 << 29 | 1 << 9 | 1 << 12;

/// An error of a test or a measurement.
pub type Failed = Box<dyn std::error::Error>;

struct Ring {
    base: u64,
    kick: EventFd,
    call: EventFd,
    available: u16,
    seen: u16,
    free: Vec<u16>,
}

/// A connected front-end with its guest memory and rings.
pub struct Client {
    pub memory: GuestMemoryMmap,
    pub frontend: Frontend,
    rings: Vec<Ring>,
    inflight: Option<(VhostUserInflight, std::fs::File)>,
    event_idx: bool,
    features: u64,
}

/// A request; in the ring it has a slot.
#[derive(Copy, Clone, Debug)]
pub struct Request {
    pub kind: u32,
    pub sector: u64,
    pub data: u64,
    pub bytes: u32,
}

impl Client {
    /// Connects with new guest memory and `queues` queues.
    pub fn connect(stream: UnixStream, queues: usize) -> Result<Self, Failed> {
        let file = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC)?;
        Self::connect_with(stream, queues, file.into())
    }

    /// Connects with guest memory in `file`, whose size this sets.
    pub fn connect_with(
        stream: UnixStream,
        queues: usize,
        file: std::fs::File,
    ) -> Result<Self, Failed> {
        rustix::fs::ftruncate(&file, MEMORY)?;
        let file = FileOffset::new(file, 0);
        let memory = GuestMemoryMmap::from_ranges_with_files([(
            GuestAddress(0),
            MEMORY as usize,
            Some(file),
        )])?;
        let rings = (0..queues)
            .map(|index| {
                Ok(Ring {
                    base: index as u64 * QUEUE_SPAN,
                    kick: EventFd::new(EFD_NONBLOCK)?,
                    call: EventFd::new(EFD_NONBLOCK)?,
                    available: 0,
                    seen: 0,
                    free: (0..SLOTS).rev().collect(),
                })
            })
            .collect::<Result<_, Failed>>()?;
        let frontend = Frontend::from_stream(stream.try_clone()?, queues as u64);
        let mut client = Self {
            memory,
            frontend,
            rings,
            inflight: None,
            event_idx: false,
            features: 0,
        };
        client.set_up(stream)?;
        Ok(client)
    }

    /// Connects to a new back-end, with the same rings and the requests under way.
    pub fn reconnect(&mut self, stream: UnixStream) -> Result<(), Failed> {
        // The old connection ends first. The new one may lead to the same back-end, which serves
        // one front-end at a time.
        self.frontend = Frontend::from_stream(stream.try_clone()?, self.rings.len() as u64);
        self.set_up(stream)
    }

    fn set_up(&mut self, stream: UnixStream) -> Result<(), Failed> {
        let mut front = Frontend::from_stream(stream, self.rings.len() as u64);
        front.set_owner()?;
        let offered = front.get_features()?;
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        let features = offered & (FEATURES | protocol);
        self.features = features;
        self.event_idx = features & 1 << 29 != 0;
        let wanted = VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::LOG_SHMFD;
        let protocol = front.get_protocol_features()? & wanted;
        front.set_protocol_features(protocol)?;
        if protocol.contains(VhostUserProtocolFeatures::REPLY_ACK) {
            front.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
        }
        front.set_features(features)?;
        let region = self.memory.iter().next().ok_or("no memory")?;
        let start = vm_memory::GuestMemoryRegion::get_host_address(
            region,
            vm_memory::MemoryRegionAddress(0),
        )?;
        let file = vm_memory::GuestMemoryRegion::file_offset(region).ok_or("no file")?;
        front.set_mem_table(&[VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY,
            userspace_addr: start as u64,
            mmap_offset: 0,
            mmap_handle: file.file().as_raw_fd(),
        }])?;
        if protocol.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD) {
            if self.inflight.is_none() {
                let queues = u16::try_from(self.rings.len())?;
                let asked = VhostUserInflight::new(0, 0, queues, QUEUE_SIZE);
                self.inflight = Some(front.get_inflight_fd(&asked)?);
            }
            if let Some((inflight, file)) = &self.inflight {
                front.set_inflight_fd(inflight, file.as_raw_fd())?;
            }
        }
        for (index, ring) in self.rings.iter().enumerate() {
            front.set_vring_num(index, QUEUE_SIZE)?;
            front.set_vring_addr(index, &self.addresses(index, None)?)?;
            // The index of the used ring, as QEMU does after a crash.
            front.set_vring_base(index, self.used_index(index)?)?;
            front.set_vring_call(index, &ring.call)?;
            front.set_vring_kick(index, &ring.kick)?;
        }
        for index in 0..self.rings.len() {
            front.set_vring_enable(index, true)?;
            self.rings[index].kick.write(1)?;
        }
        self.frontend = front;
        Ok(())
    }

    /// Returns the addresses of a queue's rings, and the address at which its used ring is logged.
    fn addresses(&self, queue: usize, log_addr: Option<u64>) -> Result<VringConfigData, Failed> {
        let host = |at| -> Result<u64, Failed> {
            Ok(self.memory.get_host_address(self.at(queue, at))? as u64)
        };
        Ok(VringConfigData {
            queue_max_size: QUEUE_SIZE,
            queue_size: QUEUE_SIZE,
            flags: u32::from(log_addr.is_some()),
            desc_table_addr: host(0)?,
            avail_ring_addr: host(AVAILABLE)?,
            used_ring_addr: host(USED)?,
            log_addr,
        })
    }

    /// Reads `bytes` of the configuration space.
    pub fn config(&mut self, bytes: usize) -> Result<Vec<u8>, Failed> {
        let buffer = vec![0; bytes];
        let flags = VhostUserConfigFlags::WRITABLE;
        Ok(self
            .frontend
            .get_config(0, u32::try_from(bytes)?, flags, &buffer)?
            .1)
    }

    fn used_index(&self, queue: usize) -> Result<u16, Failed> {
        Ok(self
            .memory
            .load(self.at(queue, USED + 2), Ordering::Acquire)?)
    }

    fn at(&self, queue: usize, offset: u64) -> GuestAddress {
        GuestAddress(self.rings[queue].base + offset)
    }

    /// Returns the number of requests that still fit into a queue.
    pub fn room(&self, queue: usize) -> usize {
        self.rings[queue].free.len()
    }

    /// Returns the slot of the next request, or `None` if the queue is full.
    pub fn next_slot(&self, queue: usize) -> Option<u16> {
        self.rings[queue].free.last().copied()
    }

    /// Writes descriptor number `index` of a queue.
    pub fn descriptor(
        &self,
        queue: usize,
        index: u16,
        address: u64,
        bytes: u32,
        flags: u16,
        next: u16,
    ) -> Result<(), Failed> {
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&address.to_le_bytes());
        raw[8..12].copy_from_slice(&bytes.to_le_bytes());
        raw[12..14].copy_from_slice(&flags.to_le_bytes());
        raw[14..].copy_from_slice(&next.to_le_bytes());
        Ok(self
            .memory
            .write_slice(&raw, self.at(queue, u64::from(index) * 16))?)
    }

    /// Writes a request and makes it available. Returns its slot. Fails if the queue is full.
    pub fn submit(&mut self, queue: usize, request: Request) -> Result<u16, Failed> {
        let slot = self.rings[queue].free.pop().ok_or("the queue is full")?;
        let head = slot * 3;
        let header = HEADERS + u64::from(slot) * 32;
        let mut raw = [0; 16];
        raw[..4].copy_from_slice(&request.kind.to_le_bytes());
        raw[8..].copy_from_slice(&request.sector.to_le_bytes());
        self.memory.write_slice(&raw, self.at(queue, header))?;
        self.memory
            .write_obj(UNANSWERED, self.at(queue, header + 16))?;
        let base = self.rings[queue].base;
        let fills = matches!(request.kind, IN | GET_ID);
        if request.bytes == 0 {
            self.descriptor(queue, head, base + header, 16, 1, head + 2)?;
        } else {
            self.descriptor(queue, head, base + header, 16, 1, head + 1)?;
            let flags = if fills { 3 } else { 1 };
            self.descriptor(
                queue,
                head + 1,
                request.data,
                request.bytes,
                flags,
                head + 2,
            )?;
        }
        self.descriptor(queue, head + 2, base + header + 16, 1, 2, 0)?;
        self.offer(queue, head)?;
        Ok(slot)
    }

    /// Makes the chain at `head` available.
    pub fn offer(&mut self, queue: usize, head: u16) -> Result<(), Failed> {
        let next = self.rings[queue].available;
        let entry = AVAILABLE + 4 + u64::from(next % QUEUE_SIZE) * 2;
        self.memory.write_obj(head, self.at(queue, entry))?;
        self.rings[queue].available = next.wrapping_add(1);
        self.set_available(queue, next.wrapping_add(1))
    }

    /// Sets the index of the available ring to any value.
    pub fn set_available(&self, queue: usize, index: u16) -> Result<(), Failed> {
        Ok(self
            .memory
            .store(index, self.at(queue, AVAILABLE + 2), Ordering::Release)?)
    }

    /// Notifies the back-end of requests since the index `before`, unless it has notifications
    /// disabled.
    pub fn kick(&mut self, queue: usize, before: u16) -> Result<(), Failed> {
        fence(Ordering::SeqCst);
        let now = self.rings[queue].available;
        if self.event_idx {
            let event: u16 = self.memory.load(
                self.at(queue, USED + 4 + u64::from(QUEUE_SIZE) * 8),
                Ordering::Relaxed,
            )?;
            if now.wrapping_sub(event).wrapping_sub(1) >= now.wrapping_sub(before) {
                return Ok(());
            }
        }
        Ok(self.rings[queue].kick.write(1)?)
    }

    /// Notifies the back-end in any case.
    pub fn ring(&self, queue: usize) -> Result<(), Failed> {
        Ok(self.rings[queue].kick.write(1)?)
    }

    /// Fills the event counter by which the back-end interrupts, and makes writes to it block.
    pub fn block_call(&self, queue: usize) -> Result<(), Failed> {
        let call = &self.rings[queue].call;
        // SAFETY: `call` is borrowed as long as the descriptor, and keeps it open.
        let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(call.as_raw_fd()) };
        rustix::io::ioctl_fionbio(file, false)?;
        call.write(u64::MAX - 1)?;
        Ok(())
    }

    /// Makes the file of the guest's memory shorter. The caller must not access the memory behind
    /// its new end.
    pub fn cut_memory(&self, bytes: u64) -> Result<(), Failed> {
        let region = self.memory.iter().next().ok_or("no memory")?;
        let file = vm_memory::GuestMemoryRegion::file_offset(region).ok_or("no file")?;
        Ok(rustix::fs::ftruncate(file.file(), bytes)?)
    }

    /// Returns the index of the available ring.
    pub fn available(&self, queue: usize) -> u16 {
        self.rings[queue].available
    }

    /// Takes an answer: slot, status, number of bytes. Returns `None` if there is none.
    pub fn answer(&mut self, queue: usize) -> Result<Option<(u16, u8, u32)>, Failed> {
        let seen = self.rings[queue].seen;
        if self.used_index(queue)? == seen {
            return Ok(None);
        }
        let entry = USED + 4 + u64::from(seen % QUEUE_SIZE) * 8;
        let head: u32 = self.memory.read_obj(self.at(queue, entry))?;
        let bytes: u32 = self.memory.read_obj(self.at(queue, entry + 4))?;
        let slot = u16::try_from(head / 3)?;
        let status: u8 = self
            .memory
            .read_obj(self.at(queue, HEADERS + u64::from(slot) * 32 + 16))?;
        self.rings[queue].seen = seen.wrapping_add(1);
        self.rings[queue].free.push(slot);
        Ok(Some((slot, status, bytes)))
    }

    /// Waits until there may be an answer. Fails after `seconds`.
    pub fn wait(&mut self, queue: usize, seconds: u64) -> Result<(), Failed> {
        if self.wait_for(queue, Duration::from_secs(seconds))? {
            Ok(())
        } else {
            Err("the back-end does not answer".into())
        }
    }

    /// Waits until there may be an answer, at most for `most`. Returns `false` if the time is up.
    pub fn wait_for(&mut self, queue: usize, most: Duration) -> Result<bool, Failed> {
        let seen = self.rings[queue].seen;
        // Has the back-end interrupt at the next answer.
        self.memory.store(
            seen,
            self.at(queue, AVAILABLE + 4 + u64::from(QUEUE_SIZE) * 2),
            Ordering::Relaxed,
        )?;
        fence(Ordering::SeqCst);
        if self.used_index(queue)? != seen {
            return Ok(true);
        }
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        // SAFETY: the ring keeps the descriptor open while it is borrowed here.
        let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(self.rings[queue].call.as_raw_fd()) };
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        let timeout = Timespec::try_from(most)?;
        if poll(&mut fds, Some(&timeout))? == 0 {
            return Ok(false);
        }
        let _ = self.rings[queue].call.read();
        Ok(true)
    }

    /// Sends one request and waits for its answer. Returns the status and the number of bytes.
    pub fn perform(&mut self, queue: usize, request: Request) -> Result<(u8, u32), Failed> {
        let before = self.available(queue);
        let slot = self.submit(queue, request)?;
        self.kick(queue, before)?;
        loop {
            if let Some((answered, status, bytes)) = self.answer(queue)? {
                if answered != slot {
                    return Err("another request was answered".into());
                }
                return Ok((status, bytes));
            }
            self.wait(queue, 300)?;
        }
    }
}

const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x8000;
const HEADERS: u64 = 0x1_0000;
