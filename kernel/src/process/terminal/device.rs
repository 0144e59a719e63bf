//! A terminal: the state that its two sides share.

use super::{console, devpts, jobs};
use crate::fs::devices::number;
use crate::fs::owner::Band;
use crate::fs::poll::{Notifier, PollMask};
use crate::process::signal::Signal;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use logic::errno::Errno;
use logic::tty::{Discipline, Keys, Termios};
use machine::sched::cond_resched;
use machine::sync::{Mutex, MutexGuard, SpinLock};

/// The number of bytes that are processed during one hold of a terminal's lock. One byte may cause
/// the output of a whole line.
pub(super) const CHUNK: usize = 256;

/// The most times that [`Terminal::change`] takes the lock again to process earlier input.
const CATCHING_UP: usize = 64;

/// The far side of a terminal.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A program at the master of this pseudo-terminal.
    Pseudo(u32),
    /// The host.
    Console,
}

/// The size of a terminal's window (`struct winsize`): rows, columns, width and height in pixels.
pub(super) type Window = [u16; 4];

/// Locks `turn`, so that other writers of the terminal wait. Waits for the lock unless
/// `nonblocking`.
///
/// # Errors
/// Fails with `EAGAIN` if another call writes and `nonblocking` is set, and with `ERESTARTSYS` if a
/// signal arrives.
pub(super) fn take_turn(turn: &Mutex<()>, nonblocking: bool) -> Result<MutexGuard<'_, ()>, Errno> {
    match turn.try_lock() {
        Some(guard) => Ok(guard),
        None if nonblocking => Err(Errno::EAGAIN),
        None => Ok(turn.lock_interruptible()?),
    }
}

/// Yields the CPU if needed, between two pieces of a long write.
///
/// # Errors
/// Fails with `ERESTARTSYS` if a signal is pending.
pub(super) fn breathe() -> Result<(), Errno> {
    cond_resched();
    if machine::sched::current().signal_pending() {
        Err(Errno::ERESTARTSYS)
    } else {
        Ok(())
    }
}

/// The open files of the program's side of a terminal.
#[derive(Copy, Clone, Debug, Default)]
struct Opens {
    count: usize,
    /// Whether the program's side was opened and all its files were closed again. The reader of the
    /// master then gets `EIO`.
    all_closed: bool,
}

/// The changes of a terminal during one call that are notified by signals (`O_ASYNC`).
#[derive(Copy, Clone, Debug)]
struct Signalled {
    /// The number of times that input became readable in the call.
    arrivals: u32,
    /// Whether the call has added output for the far side.
    shown: bool,
    /// Whether the program's side can write after the call.
    writable: bool,
}

/// A terminal: a pseudo-terminal, or the program's terminal on the host.
///
/// The readiness of a terminal depends on `line`, `opens`, `generation` and `master_gone`. Each is
/// changed before a notifier is called, and read after a waiter has registered.
pub struct Terminal {
    /// The far side of the terminal.
    pub(super) kind: Kind,
    line: SpinLock<Discipline>,
    /// The notifier of waiters on the program's side.
    pub(super) near: Arc<Notifier>,
    /// The notifier of waiters on the far side.
    pub(super) far: Arc<Notifier>,
    /// Held by a writer on the program's side, so that the bytes of one call stay together.
    pub(super) writing: Mutex<()>,
    /// Held by a writer on the master's side, so that the bytes of one call stay together.
    pub(super) typing: Mutex<()>,
    window: SpinLock<Window>,
    opens: SpinLock<Opens>,
    /// The number of times that the terminal was hung up. A file that was opened at a lower number
    /// is hung up.
    generation: AtomicU32,
    /// Whether the far side is closed: the master, or the host's end.
    pub(super) master_gone: AtomicBool,
    /// Whether a write on the program's side ended for lack of room with bytes left. If so, a
    /// signal is sent when there is room (`O_ASYNC`).
    pub(super) cut_short: AtomicBool,
    /// Whether the program's side cannot be opened (`TIOCSPTLCK`).
    pub(super) locked: AtomicBool,
    /// Whether the terminal is exclusive (`TIOCEXCL`). Programs can only read this back: no open is
    /// refused because of it.
    pub(super) exclusive: AtomicBool,
    /// The number of the session that the terminal controls; 0 if there is none. Changed under the
    /// process table's lock.
    pub(super) session: AtomicU32,
    /// The number of the foreground process group; 0 if there is none. Changed under the process
    /// table's lock.
    pub(super) foreground: AtomicU32,
}

impl core::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "terminal {:?}", self.kind)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Kind::Pseudo(number) = self.kind {
            devpts::free(number);
        }
    }
}

impl Terminal {
    /// Returns a new terminal of the kind `kind` with the settings `termios`. The program's side of
    /// a pseudo-terminal is locked at first.
    ///
    /// # Errors
    /// Fails with `ENOMEM`.
    pub(super) fn new(kind: Kind, termios: Termios) -> Result<Self, Errno> {
        Ok(Self {
            kind,
            line: SpinLock::new(Discipline::new(termios).map_err(|_| Errno::ENOMEM)?),
            near: Arc::new(Notifier::new()),
            far: Arc::new(Notifier::new()),
            writing: Mutex::new(()),
            typing: Mutex::new(()),
            window: SpinLock::new([0; 4]),
            opens: SpinLock::new(Opens::default()),
            generation: AtomicU32::new(0),
            master_gone: AtomicBool::new(false),
            cut_short: AtomicBool::new(false),
            locked: AtomicBool::new(matches!(kind, Kind::Pseudo(_))),
            exclusive: AtomicBool::new(false),
            session: AtomicU32::new(0),
            foreground: AtomicU32::new(0),
        })
    }

    /// Returns the terminal's device number.
    pub fn device(&self) -> u64 {
        match self.kind {
            Kind::Pseudo(n) => number(devpts::MAJOR, n.into()),
            Kind::Console => console::DEVICE,
        }
    }

    /// Returns the number of the foreground process group; 0 if there is none.
    pub fn foreground(&self) -> u32 {
        // Relaxed: a signal may go to the old group or to the new one.
        self.foreground.load(Ordering::Relaxed)
    }

    // SeqCst (`generation`, `master_gone`): see the type. The lock of `opens` orders `Opens` in the
    // same way.
    /// Returns how often the terminal was hung up.
    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Returns whether the far side is closed: the master of a pseudo-terminal, or the host's end.
    pub(super) fn is_master_gone(&self) -> bool {
        self.master_gone.load(Ordering::SeqCst)
    }

    /// Calls `look` with the line discipline of the terminal, and returns the result of `look`.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Discipline) -> R) -> R {
        look(&self.line.lock())
    }

    /// Calls `change` with the line discipline of the terminal, then processes input that had to
    /// wait. Sends the signals that input causes, and notifies the waiters of both sides. Returns
    /// the result of `change`.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Discipline) -> R) -> R {
        let (result, keys, told) = {
            let mut line = self.line.lock();
            let shown = line.output_bytes();
            let result = change(&mut line);
            let told = Signalled {
                arrivals: line.take_arrivals(),
                shown: line.output_bytes() > shown,
                writable: line.is_writable(),
            };
            (result, line.take_keys(), told)
        };
        self.tell(keys);
        self.signal(told);
        // Another writer that adds input in the meantime does the same, so no input is left.
        for _ in 0..CATCHING_UP {
            let (keys, arrivals) = {
                let mut line = self.line.lock();
                if !line.is_behind() {
                    break;
                }
                line.catch_up();
                (line.take_keys(), line.take_arrivals())
            };
            self.tell(keys);
            for _ in 0..arrivals {
                self.near.signal(Band::In);
            }
            cond_resched();
        }
        result
    }

    /// Notes that a write on the program's side ended with bytes left. Once there is room, the
    /// owners of open files get a signal (`O_ASYNC`).
    pub(super) fn note_cut_short(&self) {
        self.cut_short.store(true, Ordering::SeqCst);
        // Room may have appeared before the flag was set.
        let writable = self.look(|line| line.is_writable());
        self.signal_room(writable);
    }

    fn signal_room(&self, writable: bool) {
        if writable
            && self.cut_short.load(Ordering::SeqCst)
            && self.cut_short.swap(false, Ordering::SeqCst)
        {
            self.near.signal(Band::Out);
        }
    }

    /// Sends the signals that processes have requested.
    fn signal(&self, told: Signalled) {
        for _ in 0..told.arrivals {
            self.near.signal(Band::In);
        }
        if told.shown && !self.is_master_gone() {
            self.far.signal(Band::In);
        }
        self.signal_room(told.writable);
    }

    fn tell(&self, keys: Keys) {
        for (pressed, signal) in [
            (keys.interrupt, Signal::SIGINT),
            (keys.quit, Signal::SIGQUIT),
            (keys.suspend, Signal::SIGTSTP),
        ] {
            if pressed {
                self.signal_foreground(signal);
            }
        }
        if self.kind == Kind::Console {
            console::send_output(self);
        }
        let mut ready = PollMask::empty();
        let mut far_ready = PollMask::empty();
        {
            let line = self.line.lock();
            ready.set(PollMask::READABLE, line.is_readable(false));
            ready.set(PollMask::WRITABLE, line.is_writable());
            far_ready.set(PollMask::READABLE, line.output_bytes() > 0);
            far_ready.set(PollMask::WRITABLE, line.has_input_room());
            far_ready.set(PollMask::PRI, line.has_packet());
        }
        self.near.notify(ready);
        self.far.notify(far_ready);
    }

    /// Returns the number of bytes of output that the host has not taken yet. Returns 0 for a
    /// pseudo-terminal, whose master can read output at once.
    pub(super) fn unsent(&self) -> usize {
        match self.kind {
            Kind::Pseudo(_) => 0,
            Kind::Console => self.look(Discipline::output_bytes),
        }
    }

    /// Waits until the host has taken all output, or the terminal is hung up.
    ///
    /// # Errors
    /// Fails with `ERESTARTSYS` if a signal arrives.
    pub(super) fn drain(&self) -> Result<(), Errno> {
        let generation = self.generation();
        let gone = || self.unsent() == 0 || self.generation() != generation;
        Ok(self.near.queue().wait(gone)?)
    }

    /// Passes `bytes` from the far side to the line discipline. Returns the number of bytes that
    /// the line discipline has taken.
    pub(super) fn type_bytes(&self, bytes: &[u8]) -> usize {
        self.change(|line| line.receive(bytes))
    }

    /// Removes `count` bytes of output that the host has taken.
    pub(super) fn consume_shown(&self, count: usize) {
        self.line.lock().consume_output(count);
    }

    /// Makes the terminal control the session of the process `pid`, whose group becomes the
    /// foreground. The caller holds the process table's lock.
    pub(crate) fn begin_session(&self, pid: u32) {
        self.session.store(pid, Ordering::Relaxed);
        self.foreground.store(pid, Ordering::Relaxed);
    }

    /// Sends `signal` to the foreground process group. Does nothing if there is none.
    pub(super) fn signal_foreground(&self, signal: Signal) {
        let group = self.foreground();
        // Relaxed: a signal may go to the old group or to the new one.
        let session = self.session.load(Ordering::Relaxed);
        if group != 0 {
            jobs::signal_group(session, group, signal);
        }
    }

    /// Returns the size of the terminal's window.
    pub(super) fn window(&self) -> Window {
        *self.window.lock()
    }

    /// Sets the size of the terminal's window. If the size changes, the foreground process group
    /// gets SIGWINCH.
    pub(super) fn set_window(&self, window: Window) {
        let old = core::mem::replace(&mut *self.window.lock(), window);
        if old != window {
            self.signal_foreground(Signal::SIGWINCH);
        }
    }

    /// Counts one more open file of the program's side.
    ///
    /// # Errors
    /// Fails with `EIO` if the far side is closed, or if the master has locked the terminal.
    pub(super) fn enter(&self) -> Result<(), Errno> {
        // Relaxed: the unlock happened before the program learned of the terminal.
        if self.is_master_gone() || self.locked.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        let mut opens = self.opens.lock();
        opens.count += 1;
        opens.all_closed = false;
        Ok(())
    }

    /// Counts one open file less of the program's side, and notifies the far side after the last
    /// one.
    pub(super) fn leave(&self) {
        let last = {
            let mut opens = self.opens.lock();
            opens.count -= 1;
            opens.all_closed |= opens.count == 0;
            opens.count == 0
        };
        if last {
            self.far.notify(PollMask::HUP | PollMask::READABLE);
        }
    }

    /// Returns whether the program's side was opened and all its files are closed again.
    pub(super) fn is_closed(&self) -> bool {
        self.opens.lock().all_closed
    }

    /// Hangs the terminal up. Files of the program's side that are open become dead. The session
    /// loses the terminal, and its leader gets SIGHUP and SIGCONT.
    pub(super) fn hang_up(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        // The owners of files that were open get no signals any more.
        self.near.owners().clear();
        jobs::hang_up(self);
        self.change(|line| line.hang_up(Termios::usual()));
        self.near
            .notify(PollMask::HUP | PollMask::ERR | PollMask::READABLE | PollMask::WRITABLE);
    }
}
