//! The ioctls of a terminal (`ioctl_tty(2)`).

use super::device::{Kind, Terminal};
use super::{devpts, jobs};
use crate::fs::OpenFlags;
use crate::process::caller;
use crate::process::signal::Signal;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::ioctl as abi;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use logic::tty::{Characters, Control, Flow, NEW_BYTES, OLD_BYTES, TERMIO_BYTES, Termios, When};
use machine::uaccess::{self, UserPtr};

/// The only line discipline, `N_TTY`.
const N_TTY: u32 = 0;

/// The side of the terminal that an ioctl came from.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The program's side, with the terminal's generation when it was opened.
    Program(u32),
    /// The master's side.
    Master,
}

/// Returns the error of the ioctl `command` on a terminal that was hung up.
pub(super) fn of_hung_up(command: u32) -> Errno {
    if command == abi::TIOCSPGRP {
        Errno::ENOTTY
    } else {
        Errno::EIO
    }
}

fn put(argument: u64, value: u32) -> SysResult {
    uaccess::copy_out(argument, &value.to_ne_bytes())?;
    Ok(0)
}

fn put_count(argument: u64, count: usize) -> SysResult {
    put(argument, u32::try_from(count).unwrap_or(u32::MAX))
}

fn get(argument: u64) -> Result<u32, Errno> {
    UserPtr::<u32>::new(argument).read()
}

/// Runs the ioctl `command` with the argument `argument` on `terminal`. `side` is the side from
/// which the ioctl came. Returns the result of the command.
///
/// # Errors
/// Fails with `ENOTTY` if the command is unknown, and with the errors of the command.
pub(super) fn ioctl(
    terminal: &Arc<Terminal>,
    side: Side,
    command: u32,
    argument: u64,
) -> SysResult {
    match command {
        abi::TCGETS => settings(terminal, argument, OLD_BYTES),
        abi::TCGETS2 => settings(terminal, argument, NEW_BYTES),
        abi::TCSETS => set(terminal, argument, OLD_BYTES, When::Now),
        abi::TCSETSW => set(terminal, argument, OLD_BYTES, When::Drained),
        abi::TCSETSF => set(terminal, argument, OLD_BYTES, When::Flush),
        abi::TCSETS2 => set(terminal, argument, NEW_BYTES, When::Now),
        abi::TCSETSW2 => set(terminal, argument, NEW_BYTES, When::Drained),
        abi::TCSETSF2 => set(terminal, argument, NEW_BYTES, When::Flush),
        abi::TCGETA => {
            let settings = terminal.look(|line| line.termios().to_termio());
            uaccess::copy_out(argument, &settings)?;
            Ok(0)
        }
        abi::TIOCGLCKTRMIOS => {
            let locked = terminal.look(|line| *line.locked());
            uaccess::copy_out(argument, &locked)?;
            Ok(0)
        }
        abi::TIOCSLCKTRMIOS => {
            caller::need(Capabilities::SYS_ADMIN)?;
            let mut locked = [0; OLD_BYTES];
            uaccess::copy_in(&mut locked, argument)?;
            terminal.change(|line| line.set_locked(locked));
            Ok(0)
        }
        abi::TIOCGSOFTCAR => {
            let control = terminal.look(|line| line.termios().control);
            put(argument, control.contains(Control::CLOCAL).into())
        }
        abi::TIOCSSOFTCAR => {
            let local = get(argument)? != 0;
            terminal.change(|line| line.set_local_line(local));
            Ok(0)
        }
        abi::TCSETA => set_termio(terminal, argument, When::Now),
        abi::TCSETAW => set_termio(terminal, argument, When::Drained),
        abi::TCSETAF => set_termio(terminal, argument, When::Flush),
        abi::TIOCGWINSZ => {
            UserPtr::<[u16; 4]>::new(argument).write(&terminal.window())?;
            Ok(0)
        }
        abi::TIOCSWINSZ => {
            terminal.set_window(UserPtr::<[u16; 4]>::new(argument).read()?);
            Ok(0)
        }
        abi::TIOCINQ => {
            let count = terminal.look(|line| match side {
                Side::Program(_) => line.readable_bytes(),
                Side::Master => line.far_readable_bytes(),
            });
            put_count(argument, count)
        }
        abi::TIOCOUTQ => put_count(argument, terminal.unsent()),
        abi::TCFLSH => flush(terminal, side, argument),
        abi::TCXONC => flow(terminal, side, argument),
        // No physical line exists on which a break could be sent.
        abi::TCSBRK | abi::TCSBRKP | abi::TIOCSBRK => {
            changes(terminal, side)?;
            terminal.drain().map_err(|_| Errno::EINTR)?;
            Ok(0)
        }
        abi::TIOCCBRK => {
            changes(terminal, side)?;
            Ok(0)
        }
        abi::TIOCSTI => insert(terminal, side, argument),
        abi::TIOCGETD => put(argument, N_TTY),
        abi::TIOCSETD => {
            let wanted = get(argument)?;
            changes(terminal, side)?;
            if wanted == N_TTY {
                Ok(0)
            } else {
                Err(Errno::EINVAL)
            }
        }
        abi::TIOCEXCL | abi::TIOCNXCL => {
            // Relaxed: the flag is only shown.
            let on = command == abi::TIOCEXCL;
            terminal.exclusive.store(on, Ordering::Relaxed);
            Ok(0)
        }
        abi::TIOCGEXCL => put(argument, terminal.exclusive.load(Ordering::Relaxed).into()),
        abi::TIOCGDEV => {
            // Both device numbers are small.
            let device = match side {
                Side::Program(_) => terminal.device(),
                Side::Master => devpts::MASTER,
            };
            put(argument, u32::try_from(device).unwrap_or(0))
        }
        abi::TIOCVHANGUP => {
            caller::need(Capabilities::SYS_ADMIN)?;
            terminal.hang_up();
            Ok(0)
        }
        _ => session_call(terminal, side, command, argument),
    }
}

/// Runs an ioctl about sessions and jobs. Fails with `ENOTTY` for other ioctls, and if the terminal
/// is not the caller's controlling terminal. Fails with `EFAULT` for a bad address, and with the
/// errors of the request.
fn session_call(terminal: &Arc<Terminal>, side: Side, command: u32, argument: u64) -> SysResult {
    let unseen = side != Side::Master && !jobs::is_own(terminal);
    match command {
        abi::TIOCSCTTY => {
            let generation = match side {
                Side::Program(generation) => generation,
                Side::Master => terminal.generation(),
            };
            jobs::acquire(terminal, generation, argument == 1)
        }
        abi::TIOCNOTTY if side != Side::Master => jobs::give_up(terminal),
        abi::TIOCGPGRP if !unseen => put(argument, terminal.foreground()),
        abi::TIOCSPGRP => {
            match jobs::check(terminal, Signal::SIGTTOU) {
                Err(Errno::EIO) => return Err(Errno::ENOTTY),
                other => other?,
            }
            jobs::set_foreground(terminal, get(argument)?.cast_signed())
        }
        abi::TIOCGSID if !unseen => {
            // Relaxed: no other data depends on the number.
            match terminal.session.load(Ordering::Relaxed) {
                0 => Err(Errno::ENOTTY),
                session => put(argument, session),
            }
        }
        _ if side == Side::Master => master_call(terminal, command, argument),
        _ => Err(Errno::ENOTTY),
    }
}

/// Runs an ioctl that only masters have. Fails with `ENOTTY` for other ioctls and other terminals,
/// with `EINVAL` for a signal that must not be sent, with `EFAULT` for a bad address, and with the
/// errors of opening a terminal.
fn master_call(terminal: &Arc<Terminal>, command: u32, argument: u64) -> SysResult {
    let Kind::Pseudo(number) = terminal.kind else {
        return Err(Errno::ENOTTY);
    };
    match command {
        abi::TIOCGPTN => put(argument, number),
        abi::TIOCSPTLCK => {
            // Relaxed (both): a program that opens the terminal later learns its number later
            // still, so it sees the flag.
            terminal
                .locked
                .store(get(argument)? != 0, Ordering::Relaxed);
            Ok(0)
        }
        abi::TIOCGPTLCK => put(argument, terminal.locked.load(Ordering::Relaxed).into()),
        abi::TIOCGPTPEER => {
            let flags = OpenFlags::from_user(argument);
            let file = devpts::open_peer(terminal, flags)?;
            caller::install(file, flags.contains(OpenFlags::CLOSE_ON_EXEC))
        }
        abi::TIOCPKT => {
            let on = get(argument)? != 0;
            terminal.change(|line| line.set_packet_mode(on));
            Ok(0)
        }
        abi::TIOCGPKT => {
            let on = terminal.look(|line| line.is_in_packet_mode());
            put(argument, on.into())
        }
        abi::TIOCSIG => {
            let wanted = u32::try_from(argument).ok().and_then(Signal::new);
            let allowed = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTSTP];
            let signal = wanted.filter(|signal| allowed.contains(signal));
            terminal.signal_foreground(signal.ok_or(Errno::EINVAL)?);
            Ok(0)
        }
        _ => Err(Errno::ENOTTY),
    }
}

/// Checks that the caller may change the terminal's state. A master always may. A program in the
/// background is stopped by SIGTTOU. Fails as [`jobs::check`] does.
fn changes(terminal: &Terminal, side: Side) -> Result<(), Errno> {
    if side == Side::Master {
        return Ok(());
    }
    jobs::check(terminal, Signal::SIGTTOU)
}

fn settings(terminal: &Terminal, argument: u64, size: usize) -> SysResult {
    let bytes = terminal.look(|line| line.termios().to_bytes());
    uaccess::copy_out(argument, &bytes[..size])?;
    Ok(0)
}

fn set(terminal: &Terminal, argument: u64, size: usize, when: When) -> SysResult {
    // Also for the master, because the settings are those of the program's side.
    jobs::check(terminal, Signal::SIGTTOU)?;
    let mut bytes = [0; NEW_BYTES];
    uaccess::copy_in(&mut bytes[..size], argument)?;
    let termios = Termios::from_bytes(&bytes);
    if when != When::Now {
        terminal.drain()?;
    }
    terminal.change(|line| line.set_termios(termios, when));
    Ok(0)
}

/// Sets the settings that a `struct termio` at `argument` contains. `when` says whether the output
/// is awaited and the input dropped first. Returns 0. Fails as [`jobs::check`] does, with `EFAULT`
/// for a bad address, and with `ERESTARTSYS` if a signal ends the wait.
fn set_termio(terminal: &Terminal, argument: u64, when: When) -> SysResult {
    jobs::check(terminal, Signal::SIGTTOU)?;
    let mut bytes = [0; TERMIO_BYTES];
    uaccess::copy_in(&mut bytes, argument)?;
    if when != When::Now {
        terminal.drain()?;
    }
    terminal.change(|line| {
        let termios = line.termios().with_termio(&bytes);
        line.set_termios(termios, when);
    });
    Ok(0)
}

fn flush(terminal: &Terminal, side: Side, which: u64) -> SysResult {
    const INPUT: u64 = 0;
    const OUTPUT: u64 = 1;
    const BOTH: u64 = 2;
    changes(terminal, side)?;
    if which > BOTH {
        return Err(Errno::EINVAL);
    }
    terminal.change(|line| match side {
        Side::Program(_) => {
            if which != OUTPUT {
                // As on Linux. A change of the settings with `TCSAFLUSH` keeps the backlog.
                line.flush_backlog();
                line.flush_input();
            }
            if which != INPUT {
                line.flush_output();
            }
        }
        Side::Master => {
            if which != OUTPUT {
                line.flush_far();
            }
            if which != INPUT {
                line.flush_backlog();
            }
        }
    });
    Ok(0)
}

/// `tcflow`. Returns 0. Fails with `EINVAL` for an unknown action and for a master, which cannot
/// hold back its own output. Fails as [`changes`] does.
fn flow(terminal: &Terminal, side: Side, action: u64) -> SysResult {
    const OUTPUT_OFF: u64 = 0;
    const OUTPUT_ON: u64 = 1;
    const INPUT_OFF: u64 = 2;
    const INPUT_ON: u64 = 3;
    changes(terminal, side)?;
    if side == Side::Master {
        return Err(Errno::EINVAL);
    }
    terminal.change(|line| match action {
        OUTPUT_OFF => line.set_flow(Flow::Off),
        OUTPUT_ON => line.set_flow(Flow::On),
        INPUT_OFF | INPUT_ON => {
            let which = if action == INPUT_OFF {
                Characters::Stop
            } else {
                Characters::Start
            };
            let c = line.termios().character(which);
            if c != 0 {
                line.insert_output(c);
            }
        }
        _ => {}
    });
    if action > INPUT_ON {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

/// `TIOCSTI`: inserts a byte as if the other side had sent it. Returns 0. Fails with `EPERM` if the
/// terminal is not the caller's controlling terminal and the caller lacks `CAP_SYS_ADMIN`, and with
/// `EFAULT` for a bad address.
fn insert(terminal: &Terminal, side: Side, argument: u64) -> SysResult {
    if !jobs::is_own(terminal) {
        caller::need(Capabilities::SYS_ADMIN)?;
    }
    let mut c = [0];
    uaccess::copy_in(&mut c, argument)?;
    match side {
        Side::Program(_) => {
            terminal.type_bytes(&c);
        }
        Side::Master => terminal.change(|line| line.insert_output(c[0])),
    }
    Ok(0)
}
