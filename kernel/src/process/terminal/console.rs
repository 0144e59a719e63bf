//! The terminal behind which the host is: the program's, if it is to have one (`ebb run -t`).
//!
//! A kernel thread carries what the host sends to the line. What is shown goes to the host at once,
//! or, where the port is full, when its interrupt says that there is room.

use super::device::{CHUNK, Kind, Terminal};
use super::line::Line;
use crate::drivers::port;
use crate::fs::devices::number;
use crate::fs::node::NewNode;
use crate::fs::poll::PollMask;
use crate::fs::{self, File, OpenFile, OpenFlags, stdio};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use ebb_wire::terminal::{Size, WORD};
use logic::errno::Errno;
use logic::tty::{Input, Termios};
use machine::arch::BootInfo;
use machine::sync::{Once, SpinLock};

/// Its number, as Linux has a virtio console: `hvc0`.
pub(super) const DEVICE: u64 = number(229, 0);
/// Its path.
const PATH: &[u8] = b"/dev/hvc0";

static TERMINAL: Once<Arc<Terminal>> = Once::new();

/// The terminal, if the host has one for the program.
pub(super) fn terminal() -> Option<&'static Arc<Terminal>> {
    TERMINAL.get()
}

/// `/dev/console`: the terminal, or the program's streams. It is nobody's own by this.
pub(super) fn open_console() -> Result<Arc<dyn File>, Errno> {
    match terminal() {
        Some(terminal) => Ok(Line::open(terminal.clone(), true)?),
        None => Ok(stdio::stream(stdio::Stream::InputOutput)),
    }
}

/// Makes the terminal, if the boot line names one; before there are programs.
pub fn start(boot: &BootInfo) {
    let Some(size) = boot.option(WORD).map(Size::parse) else {
        return;
    };
    let mut termios = Termios::usual();
    termios.input |= Input::IUTF8;
    let made = Terminal::new(Kind::Console, termios).and_then(|terminal| {
        let dev = fs::root().lookup(b"dev").map(fs::lookup::through_mounts)?;
        dev.create(b"hvc0", NewNode::Character(DEVICE), 0o620)?;
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
    }));
    crate::drivers::control::set_resize(resize);
    machine::sched::spawn_kernel("kttyd", carry_input);
}

fn window(size: Size) -> super::device::Window {
    [size.rows, size.columns, 0, 0]
}

/// The host's window has another size.
fn resize(size: Size) {
    if let Some(terminal) = terminal() {
        terminal.set_window(window(size));
    }
}

/// A terminal, and an open file of it.
type OpenTerminal = (Arc<Terminal>, Arc<OpenFile>);

/// Opens the terminal for descriptors 0, 1 and 2 of the first program, if it has one.
///
/// # Errors
/// As `open`.
pub fn open_for_program(context: &fs::Context) -> Result<Option<OpenTerminal>, Errno> {
    let Some(terminal) = terminal() else {
        return Ok(None);
    };
    let flags = OpenFlags::READ_WRITE | OpenFlags::NO_CTTY;
    let file = fs::open_path(context, PATH, flags, 0)?;
    Ok(Some((terminal.clone(), file)))
}

/// Sends what the line shows to the host, as much as it takes now.
pub(super) fn send_output(terminal: &Terminal) {
    /// Held while bytes move, so that they keep their order.
    static SENDING: SpinLock<()> = SpinLock::new(());
    let port = port::stdio();
    let mut buffer = [0; CHUNK];
    let mut sent = false;
    {
        let _alone = SENDING.lock();
        loop {
            let count = terminal.look(|line| line.peek_output(&mut buffer));
            if count == 0 {
                break;
            }
            // Nobody reads any more: what is shown is shown to nobody.
            let taken = match port.write(&buffer[..count], true, true) {
                Err(Errno::EPIPE) => count,
                Ok(taken) if taken > 0 => taken,
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
                // Kernel threads have no signals; whatever it was, ask again.
                machine::sched::yield_now();
                continue;
            }
        };
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let taken = terminal.type_bytes(rest);
            rest = &rest[taken..];
            if taken == 0 {
                let room = || terminal.look(|line| line.has_input_room());
                terminal.far.queue().wait_uninterruptible(room);
            }
        }
    }
    // The host's terminal is gone.
    terminal.master_gone.store(true, Ordering::SeqCst);
    terminal.hang_up();
}
