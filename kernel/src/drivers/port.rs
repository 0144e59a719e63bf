//! Byte streams to and from the host, with one virtio console for each port.

use alloc::boxed::Box;
use bitflags::bitflags;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ebb_wire::port::{CONTROL, FIRST_WINDOW, OUT, PORTS};
use logic::errno::{Errno, SysResult};
use machine::arch::clock::{self, Nanos};
use machine::arch::serial;
use machine::sync::{Once, SpinLock, WaitQueue};
use machine::virtio::found::Found;
use machine::virtio::receive::{self, Input};
use machine::virtio::send::{self, Output};
use virtio_drivers::transport::{SomeTransport, Transport};

/// The time after which [`Port::flush`] gives up if the host takes no byte.
const FLUSH_PATIENCE: Nanos = Nanos::from_secs(30);

bitflags! {
    /// The features of the console device that the driver uses.
    #[derive(Copy, Clone, Debug)]
    struct Features: u64 {
        /// The device follows the virtio 1.0 standard.
        const VERSION_1 = 1 << 32;
    }
}

/// A byte stream to the host and one from it.
pub struct Port {
    /// The console device. If `None`, output goes to the serial console, and there is no input.
    device: Option<Device>,
    readers: WaitQueue,
    writers: WaitQueue,
    /// The host has stopped reading the output.
    closed: AtomicBool,
    /// Called when the port may have become readable or writable.
    observer: Once<Box<dyn Fn() + Send + Sync>>,
}

/// The device, in two halves. A notification takes as long as the host takes for the buffers, and
/// other CPUs need the queues in that time. A task that holds the queues does not take the
/// registers.
struct Device {
    registers: SpinLock<SomeTransport<'static>>,
    queues: SpinLock<Queues>,
}

struct Queues {
    input: Input,
    output: Output,
}

/// The largest number of ports: those of every guest, one for files, and one for the host's tree.
const MOST: usize = PORTS + 2;

static PORT: [Once<Port>; MOST] = [const { Once::new() }; MOST];
const _: () = assert!(
    OUT == PORTS,
    "the port for files follows those that each guest has"
);
static FOUND: AtomicUsize = AtomicUsize::new(0);
/// The number of the port for the host's tree; [`MOST`] if there is none.
static ROOT: AtomicUsize = AtomicUsize::new(MOST);

/// The port for stdio and stderr of a machine without a virtio console. It writes to the serial
/// console.
static SERIAL: Port = Port {
    device: None,
    readers: WaitQueue::new(),
    writers: WaitQueue::new(),
    closed: AtomicBool::new(false),
    observer: Once::new(),
};

/// Returns the port for the program's standard input and output.
pub fn stdio() -> &'static Port {
    PORT[0].get().unwrap_or(&SERIAL)
}

/// Returns the port for the program's standard error.
pub fn stderr() -> &'static Port {
    PORT[1].get().unwrap_or(&SERIAL)
}

/// Returns the port for the host's control lines, or `None` without one.
pub fn control() -> Option<&'static Port> {
    PORT[CONTROL].get()
}

/// Returns the port for files that the guest sends to the host, or `None` if the host wants none.
pub fn out() -> Option<&'static Port> {
    // Relaxed: set once, by the first CPU, before there are tasks.
    if ROOT.load(Ordering::Relaxed) == OUT {
        return None;
    }
    PORT[OUT].get()
}

/// Returns the port for questions about the host's tree and volumes, or `None` without one.
pub(super) fn root() -> Option<&'static Port> {
    PORT.get(ROOT.load(Ordering::Relaxed))?.get()
}

/// Sets the number of the port for the host's tree and volumes. An impossible number causes a
/// message on the console and changes nothing.
pub(super) fn set_root(number: usize) {
    if (OUT..MOST).contains(&number) {
        ROOT.store(number, Ordering::Relaxed);
    } else {
        machine::console!("port {number} cannot be that of the host's tree");
    }
}

/// Returns the port for the program's output with the number that the host uses: 0 for stdio, 1 for
/// stderr. Returns `None` for another number or without such a port.
pub(super) fn output_port(number: usize) -> Option<&'static Port> {
    PORT.get(..CONTROL)?.get(number)?.get()
}

/// Initializes the console device `found` as the next port. On failure it writes a message to the
/// console, and the port does not exist.
pub(super) fn add(found: Found) {
    // Relaxed: devices are found by one CPU.
    let number = FOUND.fetch_add(1, Ordering::Relaxed);
    let Some(slot) = PORT.get(number) else {
        machine::console!("console device {number} is one too many");
        return;
    };
    if !found.connect(interrupt, number) {
        machine::console!("port {number}: no interrupt");
        return;
    }
    match Device::new(found.transport) {
        Ok(device) => {
            let port = Port {
                device: Some(device),
                readers: WaitQueue::new(),
                writers: WaitQueue::new(),
                closed: AtomicBool::new(false),
                observer: Once::new(),
            };
            if slot.set(port).is_err() {
                machine::console!("port {number} is there already");
            }
        }
        Err(error) => machine::console!("port {number}: {error}"),
    }
    if number == CONTROL {
        // Only a host with control lines says how much it takes.
        (0..CONTROL)
            .filter_map(output_port)
            .for_each(|port| port.raise_window(FIRST_WINDOW));
    }
}

impl Device {
    fn new(mut transport: SomeTransport<'static>) -> Result<Self, virtio_drivers::Error> {
        transport.begin_init(Features::all());
        let mut input = Input::new(&mut transport)?;
        let output = Output::new(&mut transport)?;
        transport.finish_init();
        if !input.open() {
            return Err(virtio_drivers::Error::DmaError);
        }
        if input.post() {
            transport.notify(receive::QUEUE);
        }
        Ok(Self {
            registers: SpinLock::new(transport),
            queues: SpinLock::new(Queues { input, output }),
        })
    }

    /// Notifies the device of buffers in `queue`.
    fn tell(&self, queue: u16) {
        self.registers.lock().notify(queue);
    }
}

/// Handles an interrupt of the device of a port.
fn interrupt(number: usize) {
    if let Some(port) = PORT.get(number).and_then(Once::get) {
        port.serve(true);
    }
}

/// Waits until the host has taken all output of all ports, as [`Port::flush`] does.
pub fn flush_all() {
    PORT.iter().filter_map(Once::get).for_each(Port::flush);
}

impl Port {
    /// Takes back the buffers that the device has used, sends waiting bytes, and wakes readers and
    /// writers. With `interrupted`, acknowledges the interrupt first.
    fn serve(&self, interrupted: bool) {
        let Some(device) = &self.device else { return };
        if interrupted {
            // Before a look at the queues: a buffer used later interrupts again.
            device.registers.lock().ack_interrupt();
        }
        let (came, sends) = {
            let mut queues = device.queues.lock();
            queues.output.reap();
            (queues.input.reap(), queues.output.submit())
        };
        if sends {
            device.tell(send::QUEUE);
        }
        // If other writers have taken the room again, there is no news for waiting ones. Without
        // any room the device interrupts.
        let (went, broken) = {
            let output = &mut device.queues.lock().output;
            (output.is_writable(), output.is_broken())
        };
        if came || broken {
            self.readers.wake_all();
        }
        if went {
            self.writers.wake_all();
        }
        if came || went {
            self.tell_observer();
        }
    }

    /// Queues `bytes` for the host, waits while the queue is full, and returns the number queued.
    /// With `more` set, bytes may stay in the queue until the next write or [`Self::send`].
    ///
    /// # Errors
    /// Fails only if no byte was queued: with `EAGAIN` if `nonblocking` is set and the queue is
    /// full, with `EPIPE` if the host has stopped reading, with `ERESTARTSYS` at a signal, and with
    /// `ENOMEM`.
    pub fn write(&self, bytes: &[u8], nonblocking: bool, more: bool) -> SysResult {
        let Some(device) = &self.device else {
            serial::write(bytes);
            return Ok(bytes.len());
        };
        let mut done = 0;
        while done < bytes.len() {
            if self.is_closed() {
                return if done > 0 {
                    Ok(done)
                } else {
                    Err(Errno::EPIPE)
                };
            }
            let sends = {
                let output = &mut device.queues.lock().output;
                if output.room() < bytes.len() - done {
                    output.reap();
                }
                match output.put(&bytes[done..]) {
                    Some(taken) => done += taken,
                    None if done > 0 => return Ok(done),
                    None => return Err(Errno::ENOMEM),
                }
                // Larger pieces need fewer notifications of the device.
                (!more || output.room() == 0) && output.submit()
            };
            if sends {
                device.tell(send::QUEUE);
            }
            if done == bytes.len() {
                break;
            }
            let end = if nonblocking {
                Err(Errno::EAGAIN)
            } else {
                self.writers
                    .wait(|| self.writable())
                    .map_err(|_| Errno::ERESTARTSYS)
            };
            match end {
                Ok(()) => {}
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Sends the bytes that writes with `more` have left in the queue.
    pub fn send(&self) {
        if let Some(device) = &self.device {
            let sends = device.queues.lock().output.submit();
            if sends {
                device.tell(send::QUEUE);
            }
        }
    }

    /// Moves received bytes to `buffer` and returns their number. Waits for the first byte. Returns
    /// 0 at the end of the stream.
    ///
    /// # Errors
    /// Fails with `EAGAIN` if `nonblocking` is set and no byte has arrived, and with `ERESTARTSYS`
    /// at a signal.
    pub fn read(&self, buffer: &mut [u8], nonblocking: bool) -> SysResult {
        let Some(device) = &self.device else {
            return Ok(0);
        };
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let (taken, at_end, posted) = {
                let input = &mut device.queues.lock().input;
                input.reap();
                let taken = input.take(buffer);
                (taken, input.is_at_end(), input.post())
            };
            if posted {
                device.tell(receive::QUEUE);
            }
            if taken > 0 || at_end {
                return Ok(taken);
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            self.readers
                .wait(|| self.readable())
                .map_err(|_| Errno::ERESTARTSYS)?;
        }
    }

    /// Moves received bytes to `buffer` and returns their number. Waits for the first byte, even if
    /// the task has a signal. Returns 0 at the end of the stream, and if the device broke the
    /// protocol of the output: the host may not know then what the caller waits for.
    pub(super) fn read_steadily(&self, buffer: &mut [u8]) -> usize {
        let broken = || {
            self.device
                .as_ref()
                .is_some_and(|device| device.queues.lock().output.is_broken())
        };
        loop {
            match self.read(buffer, true) {
                Ok(taken) => return taken,
                Err(_) if broken() => return 0,
                Err(_) => self
                    .readers
                    .wait_uninterruptible(|| self.readable() || broken()),
            }
        }
    }

    /// Returns whether a read would not wait.
    pub fn readable(&self) -> bool {
        self.device
            .as_ref()
            .is_none_or(|device| device.queues.lock().input.is_ready())
    }

    /// Returns whether the host has closed the input and all of it was read.
    pub fn at_end(&self) -> bool {
        self.device
            .as_ref()
            .is_none_or(|device| device.queues.lock().input.is_at_end())
    }

    /// Returns whether a write would not wait.
    pub fn writable(&self) -> bool {
        self.is_closed()
            || self
                .device
                .as_ref()
                .is_none_or(|device| device.queues.lock().output.is_writable())
    }

    /// Returns whether the host has stopped reading the output.
    pub fn is_closed(&self) -> bool {
        // Relaxed: a writer that misses the change sees it at its next write. For waiting writers,
        // the lock of the wait queue orders the store before the wake-up.
        self.closed.load(Ordering::Relaxed)
    }

    /// Records that the host has stopped reading the output, and wakes waiting writers. From now on
    /// [`Self::write`] fails with `EPIPE`.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.writers.wake_all();
        self.tell_observer();
    }

    /// Sets the function to call whenever the port may have become readable or writable. It is also
    /// called from interrupts. Returns `false` if the port has an observer already.
    pub fn observe(&self, observer: Box<dyn Fn() + Send + Sync>) -> bool {
        self.observer.set(observer).is_ok()
    }

    fn tell_observer(&self) {
        if let Some(observer) = self.observer.get() {
            observer();
        }
    }

    /// Sets the number of bytes since boot after which the input ends, and wakes waiting readers.
    pub(super) fn set_end(&self, total: u64) {
        if let Some(device) = &self.device {
            device.queues.lock().input.set_end(total);
            self.readers.wake_all();
            self.tell_observer();
        }
    }

    /// Sets the number of bytes of output since boot that the host accepts, and sends waiting
    /// bytes. A `total` that is smaller than an earlier one has no effect.
    pub(super) fn raise_window(&self, total: u64) {
        if let Some(device) = &self.device {
            device.queues.lock().output.raise_limit(total);
            self.serve(false);
        }
    }

    /// Waits until the host has taken all output. Gives up if the host takes no byte for
    /// `FLUSH_PATIENCE`. Time in which the host does not accept more bytes does not count, since a
    /// reader on the host must take some first.
    pub fn flush(&self) {
        let Some(device) = &self.device else { return };
        let mut last = (u64::MAX, clock::now());
        loop {
            self.serve(false);
            {
                let output = &device.queues.lock().output;
                if output.is_empty() {
                    return;
                }
                let now = clock::now();
                if output.done() != last.0 || output.is_held_back() {
                    last = (output.done(), now);
                } else if now.saturating_sub(last.1) > FLUSH_PATIENCE {
                    machine::console!(
                        "the host does not take the program's output; the rest is lost"
                    );
                    return;
                }
            }
            super::control::poll();
            machine::arch::ipi::poll_mailbox();
            core::hint::spin_loop();
        }
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("virtio", &self.device.is_some())
            .finish_non_exhaustive()
    }
}
