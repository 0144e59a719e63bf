//! The driver of virtio block devices: `/dev/vda` and those after it.
//!
//! [`Disk::submit`] queues requests, several at a time. An interrupt ends them, and its handler
//! passes the results to the requests' owners. Neither allocates: memory may be short exactly
//! because dirty pages wait to be written here.

mod batch;

pub use batch::Batch;
pub use logic::disk::limits::{Limits, SECTOR_BYTES};
pub use logic::disk::request::{IoError, Operation, chunks, whole_blocks};
pub use machine::virtio::data::{Data, MAX_PAGES};

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use logic::disk::limits::{BadDisk, Features};
use logic::disk::request::ID_BYTES;
use logic::errno::Errno;
use machine::arch::clock::Nanos;
use machine::memory::stats;
use machine::sched::pressure;
use machine::sync::{Once, SpinLock, WaitEnd, WaitQueue};
use machine::virtio::found::Found;
use machine::virtio::requests::{self, Queue, QueueError, Start};
use virtio_drivers::transport::{SomeTransport, Transport};

/// The largest number of disks. A microvm has eight device windows in all.
pub const MAX_DISKS: usize = 8;
/// The largest number of reads of the capacity. Another read is needed if the device changed its
/// configuration during the last one.
const CAPACITY_LOOKS: u32 = 16;

/// A block device.
pub struct Disk {
    number: usize,
    limits: Limits,
    sectors: AtomicU64,
    queue: SpinLock<Queue<Owner>>,
    /// Tasks that wait for space in the queue.
    room: WaitQueue,
    counts: Counts,
}

/// The counters of a disk, for `/proc/diskstats`.
#[derive(Debug, Default)]
pub struct Counts {
    /// Requests to read that succeeded.
    pub reads: AtomicU64,
    /// Sectors that these requests read.
    pub sectors_read: AtomicU64,
    /// Requests to write that succeeded.
    pub writes: AtomicU64,
    /// Sectors that these requests wrote.
    pub sectors_written: AtomicU64,
    /// Discards and requests to write zeros that succeeded.
    pub discards: AtomicU64,
    /// Flushes that succeeded.
    pub flushes: AtomicU64,
    /// Requests that the device is working on.
    pub under_way: AtomicU64,
}

/// An operation of a disk, its memory, and the receiver of its result.
pub type Request = requests::Request<Owner>;

/// Ends `request` with `result`: counts it in the owner's batch, or calls the owner's handler. The
/// caller must not hold a spin lock.
fn finish(request: Request, result: Result<(), IoError>) {
    request.owner.done(request.operation, request.data, result);
}

/// Handles the end of requests for which no task waits. Its functions are called without a spin
/// lock, from interrupts too, so they must not block.
pub trait Finish: Sync {
    /// Handles the end of a request with `result`. Called once for each request. `data` is the
    /// request's memory.
    fn done(&self, operation: Operation, data: Data, result: Result<(), IoError>);
}

/// The receiver of a request's result.
pub enum Owner {
    /// A batch, whose waiting tasks are woken by its last result.
    Batch(Arc<Batch>),
    /// A handler. No task waits for the request.
    Finish(&'static dyn Finish),
}

impl Owner {
    fn done(self, operation: Operation, data: Data, result: Result<(), IoError>) {
        match self {
            Self::Batch(batch) => {
                // The frames first: the waiting task may then free its own references.
                drop(data);
                batch.done(result);
            }
            Self::Finish(owner) => owner.done(operation, data, result),
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batch(_) => "Batch",
            Self::Finish(_) => "Finish",
        })
    }
}

static DISKS: [Once<Disk>; MAX_DISKS] = [const { Once::new() }; MAX_DISKS];
static FOUND: AtomicUsize = AtomicUsize::new(0);

/// Returns all disks, `vda` first.
pub fn all() -> impl Iterator<Item = &'static Disk> {
    DISKS.iter().filter_map(Once::get)
}

/// Initializes the block device `found` as the next disk. On failure it writes a message to the
/// console, and the disk does not exist.
pub(super) fn add(found: Found) {
    // Relaxed: devices are found by one CPU.
    let number = FOUND.fetch_add(1, Ordering::Relaxed);
    let name = Name(number);
    let Some(slot) = DISKS.get(number) else {
        machine::console!("{name}: one disk too many; {MAX_DISKS} are used");
        return;
    };
    if !found.connect(interrupt, number) {
        machine::console!("{name}: no interrupt");
        return;
    }
    match Disk::new(number, found.transport) {
        Ok(disk) => {
            if slot.set(disk).is_err() {
                machine::console!("{name} is there already");
            }
        }
        Err(error) => machine::console!("{name} cannot be used: {error}"),
    }
}

fn interrupt(number: usize) {
    if let Some(disk) = DISKS.get(number).and_then(Once::get) {
        disk.serve(true);
    }
}

/// Reads the number of sectors from the device's configuration. Fails if the configuration is too
/// short.
fn capacity(transport: &SomeTransport<'static>) -> Result<u64, BadDisk> {
    let word = |at| {
        transport
            .read_config_space::<u32>(at)
            .map_err(|_| BadDisk::Config(at + 4))
    };
    let mut last = None;
    for _ in 0..CAPACITY_LOOKS {
        let before = transport.read_config_generation();
        let sectors = u64::from(word(0)?) | u64::from(word(4)?) << 32;
        last = Some(sectors);
        if transport.read_config_generation() == before {
            break;
        }
    }
    // If the device's values never stop changing, the last ones count.
    last.ok_or(BadDisk::Config(8))
}

/// The name of the disk with this number: `vda` for 0, `vdb` for 1, …
#[derive(Copy, Clone, Debug)]
pub struct Name(pub usize);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = u8::try_from(self.0).map_or('?', |n| char::from(b'a'.saturating_add(n)));
        write!(f, "vd{letter}")
    }
}

impl Disk {
    fn new(number: usize, mut transport: SomeTransport<'static>) -> Result<Self, QueueError> {
        let features = transport.begin_init(Features::all());
        let word = |at| transport.read_config_space::<u32>(at).ok();
        let limits = Limits::read(features, word).map_err(QueueError::Bad)?;
        let capacity = capacity(&transport).map_err(QueueError::Bad)?;
        Ok(Self {
            number,
            sectors: AtomicU64::new(limits.usable_sectors(capacity)),
            queue: SpinLock::new(Queue::new(transport, &limits)?),
            limits,
            room: WaitQueue::new(),
            counts: Counts::default(),
        })
    }

    /// Returns the number of the disk, 0 for `vda`.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the name of the disk in `/dev`.
    pub fn name(&self) -> Name {
        Name(self.number)
    }

    /// Returns the features and limits that the device announced.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the usable size in sectors, a multiple of the block size. The device may change it
    /// at any time.
    pub fn sectors(&self) -> u64 {
        // Relaxed: no other data depends on the number.
        self.sectors.load(Ordering::Relaxed)
    }

    /// Returns the usable size in bytes.
    pub fn bytes(&self) -> u64 {
        self.sectors() * SECTOR_BYTES
    }

    /// Returns the counters for `/proc/diskstats`.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Queues `request`, and waits while the queue is full. The request's owner always gets the
    /// result, perhaps before this returns. If the device is not used any more, that is
    /// [`IoError::Gone`]. The caller must not hold a spin lock.
    pub fn submit(&self, request: Request) {
        let mut request = request;
        // Before the request starts: it may end at once, on another CPU. Relaxed: a number to look
        // at.
        self.counts.under_way.fetch_add(1, Ordering::Relaxed);
        // Ends: the queue has room, or the device is not used any more.
        loop {
            let start = self.queue.lock().start(request);
            request = match start {
                Start::Started => return,
                Start::Gone(request) => {
                    self.counts.under_way.fetch_sub(1, Ordering::Relaxed);
                    finish(request, Err(IoError::Gone));
                    return;
                }
                Start::Full(request) => request,
            };
            self.serve(false);
            let _waits = pressure::io_wait();
            self.room
                .wait_uninterruptible(|| self.queue.lock().has_room());
        }
    }

    /// Waits until the queue has space for a request, so that [`Self::submit`] does not wait if no
    /// other task takes the space first. Returns `false` if `deadline` passes first. The caller
    /// must not hold a spin lock.
    pub fn wait_for_room(&self, deadline: Nanos) -> bool {
        self.serve(false);
        let _waits = pressure::io_wait();
        let has_room = || self.queue.lock().has_room();
        self.room.wait_uninterruptible_deadline(has_room, deadline) == WaitEnd::Ready
    }

    /// Carries out a request without data and waits for its end.
    ///
    /// # Errors
    /// Fails with `EIO` if the request failed, with `EOPNOTSUPP` if the device does not support the
    /// operation, and with `ENODEV` if the device is not used any more. Fails with `EINTR` if the
    /// task is being killed. The device still carries the request out then.
    pub fn perform(&self, operation: Operation) -> Result<(), Errno> {
        self.transfer(operation, Data::new())
    }

    /// Carries out one request with `data` and waits for its end.
    ///
    /// # Errors
    /// Fails as [`Self::perform`] does.
    pub fn transfer(&self, operation: Operation, data: Data) -> Result<(), Errno> {
        let request = self.begin(operation, data);
        request.wait().map_err(|_| Errno::EINTR)??;
        Ok(())
    }

    /// Submits one request, and returns a batch that holds it alone.
    fn begin(&self, operation: Operation, data: Data) -> Arc<Batch> {
        let batch = Arc::new(Batch::new(1));
        self.submit(Request {
            operation,
            data,
            owner: Owner::Batch(batch.clone()),
        });
        batch
    }

    /// Flushes all completed writes to stable storage. Does nothing if the device does not support
    /// flushes.
    ///
    /// # Errors
    /// Fails as [`Self::perform`] does.
    pub fn flush(&self) -> Result<(), Errno> {
        if self.limits.flush {
            self.perform(Operation::Flush)
        } else {
            Ok(())
        }
    }

    /// Flushes all completed writes as [`Self::flush`] does, but waits at most until `deadline`.
    /// Does nothing if no write was completed since boot.
    ///
    /// # Errors
    /// Fails with `ETIMEDOUT` if `deadline` passes first, and otherwise as [`Self::perform`] does.
    pub fn flush_until(&self, deadline: Nanos) -> Result<(), Errno> {
        // Relaxed: the caller has seen the end of the writes that it cares for.
        let completed = |count: &AtomicU64| count.load(Ordering::Relaxed) != 0;
        let is_changed = completed(&self.counts.writes) || completed(&self.counts.discards);
        if !self.limits.flush || !is_changed {
            return Ok(());
        }
        if !self.wait_for_room(deadline) {
            return Err(Errno::ETIMEDOUT);
        }
        let request = self.begin(Operation::Flush, Data::new());
        request.wait_until(deadline).ok_or(Errno::ETIMEDOUT)??;
        Ok(())
    }

    /// Reads the name that the host gave to the disk. Returns the bytes of the name, padded with
    /// zeros, and its length.
    ///
    /// # Errors
    /// Fails as [`Self::perform`] does, and with `ENOMEM`.
    pub fn id(&self) -> Result<([u8; ID_BYTES], usize), Errno> {
        let frame = machine::memory::alloc_zeroed(machine::memory::Mobility::Unmovable)?;
        let mut data = Data::new();
        data.push(frame.clone());
        data.cut(ID_BYTES);
        self.transfer(Operation::GetId, data)?;
        let mut id = [0; ID_BYTES];
        frame.read(0, &mut id);
        let len = id.iter().position(|&byte| byte == 0).unwrap_or(ID_BYTES);
        Ok((id, len))
    }

    /// Passes the results of ended requests to their owners. With `interrupted`, acknowledges the
    /// interrupt first, and reads the capacity again if the configuration has changed.
    fn serve(&self, interrupted: bool) {
        if interrupted {
            // Before a look at the queue: a buffer used later interrupts again.
            let mut queue = self.queue.lock();
            let capacity = queue.acknowledge().then(|| capacity(queue.transport()));
            drop(queue);
            if let Some(Ok(capacity)) = capacity {
                let sectors = self.limits.usable_sectors(capacity);
                self.sectors.store(sectors, Ordering::Relaxed);
            }
        }
        let mut any = false;
        // Each turn takes back one queued request, so the loop ends.
        loop {
            let ended = self.queue.lock().next_ended();
            let Some((request, result)) = ended else {
                break;
            };
            any = true;
            self.count(&request, result);
            finish(request, result);
        }
        if any {
            self.room.wake_all();
        }
    }

    fn count(&self, request: &Request, result: Result<(), IoError>) {
        let counts = &self.counts;
        // Relaxed: numbers to look at.
        counts.under_way.fetch_sub(1, Ordering::Relaxed);
        if result.is_err() {
            return;
        }
        let sectors = request.data.bytes() as u64 / SECTOR_BYTES;
        let (requests, moved) = match request.operation {
            Operation::Read { .. } => (&counts.reads, Some(&counts.sectors_read)),
            Operation::Write { .. } => (&counts.writes, Some(&counts.sectors_written)),
            Operation::Discard { .. } | Operation::WriteZeroes { .. } => (&counts.discards, None),
            Operation::Flush => (&counts.flushes, None),
            Operation::GetId => return,
        };
        requests.fetch_add(1, Ordering::Relaxed);
        if let Some(moved) = moved {
            moved.fetch_add(sectors, Ordering::Relaxed);
            stats::count_sectors(
                sectors,
                matches!(request.operation, Operation::Write { .. }),
            );
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("name", &format_args!("{}", self.name()))
            .finish_non_exhaustive()
    }
}
