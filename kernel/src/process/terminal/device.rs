//! A terminal: what its two sides share.

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

/// Bytes that one hold of a terminal's lock serves: a byte may have a whole line shown again.
pub(super) const CHUNK: usize = 256;

/// Holds of the lock at most after which all is looked at that was typed before the first.
const CATCHING_UP: usize = 64;

/// Who is on the far side.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A program at the master of this pseudo-terminal.
    Pseudo(u32),
    /// The host.
    Console,
}

/// Rows, columns, and the same in pixels: `struct winsize`.
pub(super) type Window = [u16; 4];

/// Takes the turn to write.
///
/// # Errors
/// `EAGAIN`: another call writes, and this one does not wait; `ERESTARTSYS`: a signal came.
pub(super) fn take_turn(turn: &Mutex<()>, nonblocking: bool) -> Result<MutexGuard<'_, ()>, Errno> {
    match turn.try_lock() {
        Some(guard) => Ok(guard),
        None if nonblocking => Err(Errno::EAGAIN),
        None => Ok(turn.lock_interruptible()?),
    }
}

/// Between two pieces of a long write.
///
/// # Errors
/// `ERESTARTSYS`: a signal waits.
pub(super) fn breathe() -> Result<(), Errno> {
    cond_resched();
    if machine::sched::current().signal_pending() {
        Err(Errno::ERESTARTSYS)
    } else {
        Ok(())
    }
}

/// Who has the program's side open.
#[derive(Copy, Clone, Debug, Default)]
struct Opens {
    count: usize,
    /// All who had it are gone: the master's reader learns of it.
    all_closed: bool,
}

/// What signals tell of a change.
#[derive(Copy, Clone, Debug)]
struct Signalled {
    /// How often that something can be read.
    arrivals: u32,
    /// Something is shown.
    shown: bool,
    /// The program may write.
    writable: bool,
}

/// A terminal.
///
/// `line`, `opens`, `generation` and `master_gone` are what readiness depends on. Each is changed before
/// a notifier is called, and read after a waiter has registered.
pub struct Terminal {
    pub(super) kind: Kind,
    line: SpinLock<Discipline>,
    /// The program's side.
    pub(super) near: Arc<Notifier>,
    /// The far side.
    pub(super) far: Arc<Notifier>,
    /// Held by who writes, so that what one call writes stays together: on the program's side, and on the
    /// master's.
    pub(super) writing: Mutex<()>,
    pub(super) typing: Mutex<()>,
    window: SpinLock<Window>,
    opens: SpinLock<Opens>,
    /// How often it was hung up: who opened it before has nothing of it any more.
    generation: AtomicU32,
    pub(super) master_gone: AtomicBool,
    /// A write of the program's ended with bytes left: a signal tells when there is room.
    pub(super) cut_short: AtomicBool,
    /// `TIOCSPTLCK`: the program's side cannot be opened.
    pub(super) locked: AtomicBool,
    /// `TIOCEXCL`: shown, and refuses nothing to root.
    pub(super) exclusive: AtomicBool,
    /// The session that it controls, and its process group in the foreground; 0: none. Changed under
    /// the process table's lock.
    pub(super) session: AtomicU32,
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

    /// Its device number.
    pub fn device(&self) -> u64 {
        match self.kind {
            Kind::Pseudo(n) => number(devpts::MAJOR, n.into()),
            Kind::Console => console::DEVICE,
        }
    }

    /// The process group in the foreground; 0: none.
    pub fn foreground(&self) -> u32 {
        // Relaxed: a signal that comes a moment later meets the new group.
        self.foreground.load(Ordering::Relaxed)
    }

    // SeqCst (generation, `master_gone`), as `Opens` by its lock: see the type.
    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::SeqCst)
    }

    pub(super) fn is_master_gone(&self) -> bool {
        self.master_gone.load(Ordering::SeqCst)
    }

    /// Looks at the line.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Discipline) -> R) -> R {
        look(&self.line.lock())
    }

    /// Does something to the line, and tells of it whoever waits.
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
        // Whoever types meanwhile does the same, so nothing is left.
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

    /// A write of the program's ended with bytes left: once there is room, a signal tells.
    pub(super) fn note_cut_short(&self) {
        self.cut_short.store(true, Ordering::SeqCst);
        // Room that came before is told of here.
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

    /// Tells by signals, where somebody has asked for them.
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

    /// Bytes of output that are not the far side's yet. A master has them at once.
    pub(super) fn unsent(&self) -> usize {
        match self.kind {
            Kind::Pseudo(_) => 0,
            Kind::Console => self.look(Discipline::output_bytes),
        }
    }

    /// Waits until there are none.
    ///
    /// # Errors
    /// `ERESTARTSYS`: a signal came.
    pub(super) fn drain(&self) -> Result<(), Errno> {
        let generation = self.generation();
        let gone = || self.unsent() == 0 || self.generation() != generation;
        Ok(self.near.queue().wait(gone)?)
    }

    /// Somebody at the far side types; gives how many bytes were taken.
    pub(super) fn type_bytes(&self, bytes: &[u8]) -> usize {
        self.change(|line| line.receive(bytes))
    }

    /// The host has taken so many bytes of what is shown.
    pub(super) fn consume_shown(&self, count: usize) {
        self.line.lock().consume_output(count);
    }

    /// It controls the session of this process, whose group is in the foreground. The table is locked.
    pub(crate) fn begin_session(&self, pid: u32) {
        self.session.store(pid, Ordering::Relaxed);
        self.foreground.store(pid, Ordering::Relaxed);
    }

    /// Sends a signal to the jobs in the foreground.
    pub(super) fn signal_foreground(&self, signal: Signal) {
        let group = self.foreground();
        // Relaxed: as `foreground`.
        let session = self.session.load(Ordering::Relaxed);
        if group != 0 {
            jobs::signal_group(session, group, signal);
        }
    }

    /// How large it is.
    pub(super) fn window(&self) -> Window {
        *self.window.lock()
    }

    /// Sets that, and tells the jobs in the foreground if it changed.
    pub(super) fn set_window(&self, window: Window) {
        let old = core::mem::replace(&mut *self.window.lock(), window);
        if old != window {
            self.signal_foreground(Signal::SIGWINCH);
        }
    }

    /// The program's side is opened.
    ///
    /// # Errors
    /// `EIO`: the master is gone, or has it locked.
    pub(super) fn enter(&self) -> Result<(), Errno> {
        // Relaxed: whoever unlocked it did so before.
        if self.is_master_gone() || self.locked.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        let mut opens = self.opens.lock();
        opens.count += 1;
        opens.all_closed = false;
        Ok(())
    }

    /// It is closed.
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

    /// Whether all who had the program's side open are gone.
    pub(super) fn is_closed(&self) -> bool {
        self.opens.lock().all_closed
    }

    /// Takes it from everybody: who has it open gets nothing more of it, and its session learns of that.
    pub(super) fn hang_up(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        // Who had it open is told nothing more.
        self.near.owners().clear();
        jobs::hang_up(self);
        self.change(|line| line.hang_up(Termios::usual()));
        self.near
            .notify(PollMask::HUP | PollMask::ERR | PollMask::READABLE | PollMask::WRITABLE);
    }
}
