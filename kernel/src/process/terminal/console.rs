//! The program's terminal on the host, if it gets one (`ebb run -t`).
//!
//! A kernel thread carries input from the host to the line. Output goes to the host at once. If the
//! port is full, output continues when the port's interrupt reports room.

use super::device::{CHUNK, Kind, Terminal};
use super::line::Line;
use crate::drivers::port;
use crate::fs::devices::number;
use crate::fs::node::{AttributeChange, NewNode};
use crate::fs::poll::PollMask;
use crate::fs::{self, File, OpenFile, OpenFlags, stdio};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use ebb_wire::terminal::{PARAMETER, Size};
use logic::credentials::Credentials;
use logic::credentials::attributes::Beginning;
use logic::errno::Errno;
use logic::tty::{Input, Termios};
use machine::arch::BootInfo;
use machine::arch::clock::{self, Nanos};
use machine::sched;
use machine::sync::{Once, SpinLock, WaitQueue};

/// The device number of the program's terminal: that of `hvc0`, which Linux gives a virtio console.
pub(super) const DEVICE: u64 = number(229, 0);
/// The path of the program's terminal.
const PATH: &[u8] = b"/dev/hvc0";

/// The wait before the next attempt after an allocation failed.
const RETRY: Nanos = Nanos(10_000_000);

/// Whether an allocation failed while output was sent.
static STALLED: AtomicBool = AtomicBool::new(false);
/// Waits until `STALLED` is set, or until the host has closed the port.
static TENDED: WaitQueue = WaitQueue::new();

static TERMINAL: Once<Arc<Terminal>> = Once::new();

/// Returns the program's terminal, or `None` if the host provides none.
pub(super) fn terminal() -> Option<&'static Arc<Terminal>> {
    TERMINAL.get()
}

/// Opens `/dev/console`: the program's terminal or, without one, the program's streams. This does
/// not make the terminal the caller's controlling terminal.
///
/// # Errors
/// Fails with `EIO` if the host has closed the terminal.
pub(super) fn open_console(flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
    match terminal() {
        Some(terminal) => Ok(Line::open(terminal.clone(), true)?),
        None => Ok(stdio::stream(stdio::Stream::InputOutput, flags)),
    }
}

/// Creates the program's terminal and its device file, if the boot line has the option for it.
/// Called before there are programs.
///
/// # Panics
/// Panics if the terminal cannot be created.
pub fn start(boot: &BootInfo) {
    let Some(size) = boot.option(PARAMETER).map(Size::parse) else {
        return;
    };
    let mut termios = Termios::usual();
    termios.input |= Input::IUTF8;
    let made = Terminal::new(Kind::Console, termios).and_then(|terminal| {
        let dev = fs::root().lookup(b"dev").map(fs::lookup::through_mounts)?;
        dev.create(
            b"hvc0",
            NewNode::Character(DEVICE),
            Beginning::of_root(0o620),
        )?;
        Ok(Arc::new(terminal))
    });
    let made = match made {
        Ok(made) => made,
        Err(error) => panic!("the program's terminal cannot be made: {error}"),
    };
    made.set_window(window(size.unwrap_or_default()));
    assert!(TERMINAL.set(made).is_ok(), "terminals start once");
    port::stdio().observe(Box::new(|| {
        if let Some(terminal) = terminal() {
            send_output(terminal);
            terminal.near.notify(PollMask::WRITABLE);
        }
        if port::stdio().is_closed() {
            TENDED.wake_all();
        }
    }));
    crate::drivers::control::set_resize(resize);
    sched::spawn_kernel("kttyd", carry_input);
    sched::spawn_kernel("ktty_output", tend_output);
}

fn window(size: Size) -> super::device::Window {
    [size.rows, size.columns, 0, 0]
}

/// Sets the terminal's size when the host's window changes.
fn resize(size: Size) {
    if let Some(terminal) = terminal() {
        terminal.set_window(window(size));
    }
}

/// A terminal, and an open file of it.
type OpenTerminal = (Arc<Terminal>, Arc<OpenFile>);

/// Opens the program's terminal, and makes the user of `who` the owner of its device file. Returns
/// the terminal, and the open file for descriptors 0, 1 and 2 of the first program. Returns `None`
/// if the program has no terminal.
///
/// # Errors
/// Fails with the errors of opening the device file and of changing its owner.
pub fn open_for_program(
    context: &fs::Context,
    who: &Credentials,
) -> Result<Option<OpenTerminal>, Errno> {
    let Some(terminal) = terminal() else {
        return Ok(None);
    };
    let flags = OpenFlags::READ_WRITE | OpenFlags::NO_CTTY;
    let file = fs::open_path(context, &Credentials::root(), PATH, flags, 0)?;
    file.node().change(&AttributeChange {
        uid: Some(who.users.file),
        ..AttributeChange::default()
    })?;
    Ok(Some((terminal.clone(), file)))
}

/// Sends the output of `terminal` to the host, up to the amount that the port takes now. Drops the
/// output if the host does not read any more.
pub(super) fn send_output(terminal: &Terminal) {
    /// Held while bytes move, so that they keep their order.
    static SENDING: SpinLock<()> = SpinLock::new(());
    let port = port::stdio();
    let mut buffer = [0; CHUNK];
    let (mut sent, mut stalled) = (false, false);
    {
        let _alone = SENDING.lock();
        loop {
            let count = terminal.look(|line| line.peek_output(&mut buffer));
            if count == 0 {
                break;
            }
            // The host does not read any more, so the output is dropped.
            let taken = match port.write(&buffer[..count], true, true) {
                Err(Errno::EPIPE) => count,
                Ok(taken) if taken > 0 => taken,
                Err(Errno::ENOMEM) => {
                    stalled = true;
                    break;
                }
                _ => break,
            };
            sent = true;
            terminal.consume_shown(taken);
        }
        port.send();
    }
    if sent {
        terminal.near.notify(PollMask::WRITABLE);
    }
    if stalled {
        STALLED.store(true, Ordering::SeqCst);
        TENDED.wake_all();
    }
}

fn wait_for_memory() {
    sched::sleep_until(clock::now().saturating_add(RETRY));
}

/// Retries output after a failed allocation. Hangs the terminal up once the host has closed its
/// end.
fn tend_output() {
    let Some(terminal) = terminal() else { return };
    let is_closed = || port::stdio().is_closed();
    while !is_closed() {
        // SeqCst (also above): set before the wake-up, and read after the waiter has registered.
        TENDED.wait_uninterruptible(|| is_closed() || STALLED.load(Ordering::SeqCst));
        if STALLED.swap(false, Ordering::SeqCst) {
            wait_for_memory();
            send_output(terminal);
        }
    }
    terminal.master_gone.store(true, Ordering::SeqCst);
    terminal.hang_up();
}

fn carry_input() {
    let Some(terminal) = terminal() else { return };
    let port = port::stdio();
    let mut buffer = [0; CHUNK];
    loop {
        let count = match port.read(&mut buffer, false) {
            Ok(0) => break,
            Ok(count) => count,
            Err(_) => {
                // Kernel threads get no signals. Retry after any error.
                wait_for_memory();
                continue;
            }
        };
        let mut rest = &buffer[..count];
        // Input to a terminal whose host end is closed is dropped.
        while !rest.is_empty() && !terminal.is_master_gone() {
            let taken = terminal.type_bytes(rest);
            rest = &rest[taken..];
            let has_room = || terminal.look(|line| line.has_input_room());
            if taken == 0 && has_room() {
                wait_for_memory();
            } else if taken == 0 {
                let ready = || has_room() || terminal.is_master_gone();
                terminal.far.queue().wait_uninterruptible(ready);
            }
            sched::cond_resched();
        }
    }
    // The host has closed its end.
    terminal.master_gone.store(true, Ordering::SeqCst);
    terminal.hang_up();
}
