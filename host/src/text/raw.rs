//! The user's terminal in raw mode: each key goes to the guest as it is, whose own terminal makes lines,
//! echo and signals of them.
//!
//! The settings from before come back however ebb ends: by [`Raw`]'s drop, before it exits on a signal, and
//! when it panics. Nothing can be done about SIGKILL; `stty sane` helps then.

use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// How the terminal is set, as far as it is up to ebb.
#[derive(Debug)]
enum State {
    /// As it was found.
    Own,
    /// Raw; with the settings from before.
    Raw(Termios),
    /// The same, for a while: ebb is stopped, or in the background.
    Cooked(Termios),
    /// As it was found, and it stays so.
    Closed,
}

/// Held while the terminal is set.
static STATE: Mutex<State> = Mutex::new(State::Own);

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the terminal is another job's: who sets it in the background is stopped for that.
fn in_background() -> bool {
    // A terminal that does not control this process knows no foreground.
    tcgetpgrp(rustix::stdio::stdin()).is_ok_and(|group| group != rustix::process::getpgrp())
}

fn set(settings: &Termios) -> Result<(), Errno> {
    tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, settings)
}

/// The terminal is raw as long as this exists.
#[derive(Debug)]
pub(crate) struct Raw(());

impl Raw {
    /// Makes the terminal on stdin raw, in the background as soon as [`make_raw`] finds it in the foreground.
    /// After [`close`] it stays as it is.
    pub(crate) fn enter() -> Result<Self, Errno> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                close();
                usual(panic);
            }));
        });
        {
            let mut state = lock();
            if matches!(*state, State::Own) {
                *state = State::Cooked(tcgetattr(rustix::stdio::stdin())?);
            }
        }
        make_raw()?;
        Ok(Self(()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        end(State::Own);
    }
}

/// Makes the terminal raw once more, after [`cook`], unless ebb is in the background.
pub(crate) fn make_raw() -> Result<(), Errno> {
    let mut state = lock();
    if let State::Cooked(before) = &*state
        && !in_background()
    {
        let before = before.clone();
        let mut settings = before.clone();
        settings.make_raw();
        set(&settings)?;
        *state = State::Raw(before);
    }
    Ok(())
}

/// Whether the terminal is to be raw in the foreground.
pub(crate) fn is_used() -> bool {
    matches!(*lock(), State::Raw(_) | State::Cooked(_))
}

/// Puts the settings from before back, for a while.
pub(crate) fn cook() {
    let mut state = lock();
    if let State::Raw(before) = &*state {
        let before = before.clone();
        restore(&before);
        *state = State::Cooked(before);
    }
}

/// A terminal that is gone has no settings, and that of another job has the job's.
fn restore(before: &Termios) {
    if !in_background() {
        let _ = set(before);
    }
}

fn end(last: State) {
    let mut state = lock();
    if let State::Raw(before) = &*state {
        restore(before);
    }
    if !matches!(*state, State::Closed) {
        *state = last;
    }
}

/// Puts the settings from before back, for good.
pub(crate) fn close() {
    end(State::Closed);
}

/// Does that when it is dropped.
#[derive(Debug)]
pub(crate) struct Closing;

impl Drop for Closing {
    fn drop(&mut self) {
        close();
    }
}

/// Rows and columns of the terminal, if there is one; stdin is asked first, then stdout.
pub(crate) fn window() -> Option<(u16, u16)> {
    let asked = [rustix::stdio::stdin(), rustix::stdio::stdout()];
    let mut sizes = asked.into_iter().filter_map(|fd| tcgetwinsize(fd).ok());
    sizes.next().map(|size| (size.ws_row, size.ws_col))
}
