//! The program's side of a terminal, as a file.

use super::control;
use super::device::{Terminal, breathe, take_turn};
use super::jobs;
use crate::fs::io::{ByteSink, ByteSource};
use crate::fs::owner::{Kind, Recipient};
use crate::fs::poll::{Notifier, PollMask};
use crate::fs::{File, OpenFlags};
use crate::process::signal::{Signal, recipient};
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::errno::{Errno, SysResult};
use logic::tty::Local;
use machine::arch::clock::{self, Nanos};
use machine::sync::WaitEnd;

/// The longest line, and the most bytes that a read moves at once.
const MOST: usize = 4096;
/// The unit of VTIME.
const TENTH: Nanos = Nanos(100_000_000);

/// Returns a buffer of `size` bytes, at most [`MOST`]. Fails with `ENOMEM`.
fn buffer(size: usize) -> Result<Vec<u8>, Errno> {
    let mut buffer = Vec::new();
    let size = size.min(MOST);
    buffer.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
    buffer.resize(size, 0);
    Ok(buffer)
}

/// An open file of the program's side of a terminal.
#[derive(Debug)]
pub(super) struct Line {
    terminal: Arc<Terminal>,
    /// The terminal's generation when it was opened.
    generation: u32,
    /// Whether reads and writes from the background are allowed, as for `/dev/console`.
    free: bool,
}

impl Line {
    /// Opens the program's side of `terminal`. With `free`, reads and writes from the background
    /// are allowed.
    ///
    /// # Errors
    /// Fails with the errors of [`Terminal::enter`].
    pub(super) fn open(terminal: Arc<Terminal>, free: bool) -> Result<Arc<Self>, Errno> {
        // Read before the check whether the master is gone. If the master goes now, the hang-up
        // then affects this file.
        let generation = terminal.generation();
        terminal.enter()?;
        Ok(Arc::new(Self {
            terminal,
            generation,
            free,
        }))
    }

    /// Opens the program's side of `terminal`. The terminal becomes the process's controlling
    /// terminal, if the process leads a session without one and `flags` allow it.
    ///
    /// # Errors
    /// Fails with the errors of [`Terminal::enter`].
    pub(super) fn open_as_own(
        terminal: &Arc<Terminal>,
        flags: OpenFlags,
    ) -> Result<Arc<dyn File>, Errno> {
        let line = Self::open(terminal.clone(), false)?;
        if flags.readable() && !flags.contains(OpenFlags::NO_CTTY) {
            jobs::offer(terminal, line.generation);
        }
        Ok(line)
    }

    fn is_hung_up(&self) -> bool {
        self.terminal.generation() != self.generation
    }

    /// Waits until there may be input or the terminal is hung up. Returns `false` once `deadline`
    /// has passed. Fails with `ERESTARTSYS` at a signal.
    fn wait_for_input(&self, deadline: Option<Nanos>) -> Result<bool, Errno> {
        let ready = || self.is_hung_up() || self.terminal.look(|line| line.is_readable(false));
        let queue = self.terminal.near.queue();
        match deadline {
            None => queue.wait(ready)?,
            Some(deadline) => {
                return Ok(queue.wait_deadline(ready, deadline)? == WaitEnd::Ready);
            }
        }
        Ok(true)
    }

    /// Reads into `to` until there are as many bytes as the terminal's settings require, or their
    /// time is over. Adds the number of bytes read to `done`. Fails with `EAGAIN` instead of
    /// waiting if `flags` are nonblocking, with `ERESTARTSYS` at a signal, with `EIO` once the
    /// master is closed, and with the error of `to`.
    fn gather(
        &self,
        to: &mut dyn ByteSink,
        flags: OpenFlags,
        done: &mut usize,
    ) -> Result<(), Errno> {
        let mut buffer = buffer(to.room())?;
        let size = buffer.len();
        let patience = self.terminal.look(|line| line.patience());
        let after = |tenths: u8| clock::now().saturating_add(Nanos(TENTH.0 * u64::from(tenths)));
        let (least, between, mut deadline) = match patience {
            None => (1, 0, None),
            Some([0, time]) => (1, 0, Some(after(time))),
            Some([least, time]) => (usize::from(least), time, None),
        };
        let at_once = patience == Some([0, 0]);
        loop {
            if self.is_hung_up() {
                // A reader that waits when the master closes gets an error. A later reader gets an
                // end of file.
                return if self.terminal.is_master_gone() {
                    Err(Errno::EIO)
                } else {
                    Ok(())
                };
            }
            let most = to.room().min(size);
            let got = self.terminal.change(|line| line.read(&mut buffer[..most]));
            if let Some(count) = got {
                *done += to.put(&buffer[..count])?;
                if *done >= least || patience.is_none() || to.room() == 0 {
                    return Ok(());
                }
                if between > 0 {
                    deadline = Some(after(between));
                }
                continue;
            }
            if at_once {
                return Ok(());
            }
            if flags.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            if !self.wait_for_input(deadline)? {
                return Ok(());
            }
        }
    }

    /// Writes all of `bytes`, and adds the number of bytes written to `done`. Fails with `EIO` once
    /// the terminal is hung up, with `ENOMEM`, with `EAGAIN` instead of waiting if `flags` are
    /// nonblocking, and with `ERESTARTSYS` at a signal.
    fn put(&self, bytes: &[u8], flags: OpenFlags, done: &mut usize) -> Result<(), Errno> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.is_hung_up() {
                return Err(Errno::EIO);
            }
            let (count, writable) = self
                .terminal
                .change(|line| (line.write(rest), line.is_writable()));
            if count > 0 {
                *done += count;
                rest = &rest[count..];
                continue;
            }
            if writable {
                return Err(Errno::ENOMEM);
            }
            if flags.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            self.terminal
                .near
                .queue()
                .wait(|| self.is_hung_up() || self.terminal.look(|line| line.is_writable()))?;
        }
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.terminal.leave();
    }
}

impl File for Line {
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        if to.room() == 0 || self.is_hung_up() {
            return Ok(0);
        }
        if !self.free {
            jobs::check(&self.terminal, Signal::SIGTTIN)?;
        }
        let mut done = 0;
        match self.gather(to, flags, &mut done) {
            Err(error) if done == 0 => Err(error),
            _ => Ok(done),
        }
    }

    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, flags: OpenFlags) -> SysResult {
        if self.is_hung_up() {
            return Err(Errno::EIO);
        }
        let stops = self
            .terminal
            .look(|line| line.termios().local.contains(Local::TOSTOP));
        if stops && !self.free {
            jobs::check(&self.terminal, Signal::SIGTTOU)?;
        }
        let _turn = take_turn(&self.terminal.writing, flags.nonblocking())?;
        let mut buffer = buffer(from.left())?;
        let mut done = 0;
        while from.left() > 0 {
            let end = from
                .take(&mut buffer)
                .and_then(|taken| self.put(&buffer[..taken], flags, &mut done))
                .and_then(|()| breathe());
            match end {
                Ok(()) => {}
                Err(error) => {
                    self.terminal.note_cut_short();
                    if done == 0 {
                        return Err(error);
                    }
                    break;
                }
            }
        }
        Ok(done)
    }

    fn poll(&self) -> PollMask {
        let hung = PollMask::ERR | PollMask::HUP;
        if self.is_hung_up() {
            return hung | PollMask::READABLE | PollMask::WRITABLE;
        }
        let mut mask = PollMask::empty();
        self.terminal.look(|line| {
            mask.set(PollMask::READABLE, line.is_readable(true));
            mask.set(PollMask::WRITABLE, line.is_writable());
        });
        mask
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.terminal.near.clone())
    }

    fn signals(&self) -> Result<Option<Arc<Notifier>>, Errno> {
        if self.is_hung_up() {
            return Err(Errno::ENOTTY);
        }
        Ok(self.notifier())
    }

    fn usual_owner(&self) -> Option<(Kind, Arc<dyn Recipient>)> {
        match self.terminal.foreground() {
            0 => recipient::caller(),
            group => recipient::find(Kind::Group, group),
        }
    }

    fn ioctl(&self, command: u32, argument: u64) -> SysResult {
        if self.is_hung_up() {
            return Err(control::of_hung_up(command));
        }
        control::ioctl(
            &self.terminal,
            control::Side::Program(self.generation),
            command,
            argument,
        )
    }
}
