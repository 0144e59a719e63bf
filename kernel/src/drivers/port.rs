//! Byte streams to and from the host: one virtio console a port.

use super::found::Found;
use super::input::{self, Input};
use super::output::{self, Output};
use alloc::boxed::Box;
use bitflags::bitflags;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ebb_wire::port::{CONTROL, FIRST_WINDOW, OUT, PORTS};
use logic::errno::{Errno, SysResult};
use machine::arch::clock::{self, Nanos};
use machine::arch::serial;
use machine::sync::{Once, SpinLock, WaitQueue};
use virtio_drivers::transport::{SomeTransport, Transport};

/// How long the host may take nothing before the VM ends with output unsent.
const FLUSH_PATIENCE: Nanos = Nanos::from_secs(30);

bitflags! {
    /// Features of the console device that are used, and those of every device.
    #[derive(Copy, Clone, Debug)]
    struct Features: u64 {
        /// Made after the standard.
        const VERSION_1 = 1 << 32;
    }
}

/// A byte stream to the host, and from it.
pub struct Port {
    /// `None`: output goes to the serial console, and there is no input.
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

/// Ports at most: those that each guest has, one for files, one for the host's tree.
const MOST: usize = PORTS + 2;

static PORT: [Once<Port>; MOST] = [const { Once::new() }; MOST];
const _: () = assert!(
    OUT == PORTS,
    "the port for files follows those that each guest has"
);
static FOUND: AtomicUsize = AtomicUsize::new(0);
/// The number of the port for the host's tree; [`MOST`] if there is none.
static ROOT: AtomicUsize = AtomicUsize::new(MOST);

/// The serial port, for machines without a virtio console.
static SERIAL: Port = Port {
    device: None,
    readers: WaitQueue::new(),
    writers: WaitQueue::new(),
    closed: AtomicBool::new(false),
    observer: Once::new(),
};

/// Standard input and output of the program.
pub fn stdio() -> &'static Port {
    PORT[0].get().unwrap_or(&SERIAL)
}

/// Standard error of the program.
pub fn stderr() -> &'static Port {
    PORT[1].get().unwrap_or(&SERIAL)
}

/// The host's control lines.
pub fn control() -> Option<&'static Port> {
    PORT[CONTROL].get()
}

/// Where files for the host go, if it wants any.
pub fn out() -> Option<&'static Port> {
    // Relaxed: set once, by the first CPU, before there are tasks.
    if ROOT.load(Ordering::Relaxed) == OUT {
        return None;
    }
    PORT[OUT].get()
}

/// Where questions about the host's tree go, if the guest has one.
pub(super) fn root() -> Option<&'static Port> {
    PORT.get(ROOT.load(Ordering::Relaxed))?.get()
}

/// Notes which port the host's tree has.
pub(super) fn set_root(number: usize) {
    if (OUT..MOST).contains(&number) {
        ROOT.store(number, Ordering::Relaxed);
    } else {
        machine::console!("port {number} cannot be that of the host's tree");
    }
}

/// The output port with a number of the host's: 0 stdio, 1 stderr.
pub(super) fn output_port(number: usize) -> Option<&'static Port> {
    PORT.get(..CONTROL)?.get(number)?.get()
}

/// Takes a console device as the next port.
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
            transport.notify(input::QUEUE);
        }
        Ok(Self {
            registers: SpinLock::new(transport),
            queues: SpinLock::new(Queues { input, output }),
        })
    }

    /// Tells the device that a queue has buffers for it.
    fn tell(&self, queue: u16) {
        self.registers.lock().notify(queue);
    }
}

/// The device of a port has used buffers.
fn interrupt(number: usize) {
    if let Some(port) = PORT.get(number).and_then(Once::get) {
        port.serve(true);
    }
}

/// Waits, within reason, until the host has taken all output.
pub fn flush_all() {
    PORT.iter().filter_map(Once::get).for_each(Port::flush);
}

impl Port {
    /// Takes back what the device has used and sends what waits.
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
            device.tell(output::QUEUE);
        }
        // If other writers have taken the room again, there is no news for waiting ones. Without
        // any room the device interrupts.
        let went = device.queues.lock().output.is_writable();
        if came {
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
    /// `EAGAIN` if `nonblocking` and not a byte fits; `EPIPE` if the host has stopped reading;
    /// `ERESTARTSYS` if a signal came before the first byte.
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
                device.tell(output::QUEUE);
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
                device.tell(output::QUEUE);
            }
        }
    }

    /// Moves received bytes to `buffer` and returns their number. Waits for the first byte. Returns
    /// 0 at the end of the stream.
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
                device.tell(input::QUEUE);
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

    /// Reads like [`Self::read`], but signals do not end the wait.
    pub(super) fn read_steadily(&self, buffer: &mut [u8]) -> usize {
        loop {
            match self.read(buffer, true) {
                Ok(taken) => return taken,
                Err(_) => self.readers.wait_uninterruptible(|| self.readable()),
            }
        }
    }

    /// Whether a read would not wait.
    pub fn readable(&self) -> bool {
        self.device
            .as_ref()
            .is_none_or(|device| device.queues.lock().input.is_ready())
    }

    /// Whether all input was read and the host has closed it.
    pub fn at_end(&self) -> bool {
        self.device
            .as_ref()
            .is_none_or(|device| device.queues.lock().input.is_at_end())
    }

    /// Whether a write would not wait.
    pub fn writable(&self) -> bool {
        self.is_closed()
            || self
                .device
                .as_ref()
                .is_none_or(|device| device.queues.lock().output.is_writable())
    }

    /// Returns whether the host has stopped reading the output.
    pub fn is_closed(&self) -> bool {
        // Relaxed: a writer who misses it by a moment learns of it at the next write, as one who
        // was a moment earlier; the wake-up that follows orders those who wait.
        self.closed.load(Ordering::Relaxed)
    }

    /// Records that the host has stopped reading the output.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.writers.wake_all();
        self.tell_observer();
    }

    /// Has a function called whenever the port may have become readable or writable, from
    /// interrupts too. One observer a port: a second one is refused.
    pub fn observe(&self, observer: Box<dyn Fn() + Send + Sync>) -> bool {
        self.observer.set(observer).is_ok()
    }

    fn tell_observer(&self) {
        if let Some(observer) = self.observer.get() {
            observer();
        }
    }

    /// Records that the input ends after `total` bytes since boot.
    pub(super) fn set_end(&self, total: u64) {
        if let Some(device) = &self.device {
            device.queues.lock().input.set_end(total);
            self.readers.wake_all();
            self.tell_observer();
        }
    }

    /// Records that the host takes `total` bytes of output since boot.
    pub(super) fn raise_window(&self, total: u64) {
        if let Some(device) = &self.device {
            device.queues.lock().output.raise_limit(total);
            self.serve(false);
        }
    }

    /// Waits until the host has taken everything: as long as it keeps taking, or holds the window
    /// closed, which only a reader behind it opens.
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
