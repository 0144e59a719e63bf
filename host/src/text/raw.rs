//! The user's terminal in raw mode. Each key goes to the guest unchanged. The guest's own terminal
//! does line editing, echo and signals.
//!
//! The earlier settings are restored however ebb ends: when [`Raw`] is dropped, before ebb exits on
//! a signal, and when it panics. SIGKILL cannot be handled. `stty sane` helps then.

use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The state of the terminal's settings.
#[derive(Debug)]
enum State {
    /// ebb has not changed the settings.
    Own,
    /// The terminal is raw. The earlier settings are kept here.
    Raw(Termios),
    /// The earlier settings are restored for a while, because ebb is stopped or in the background.
    Restored(Termios),
    /// The earlier settings are restored for good.
    Closed,
}

/// The state of the terminal on stdin. Its lock is held while the settings change.
static STATE: Mutex<State> = Mutex::new(State::Own);

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether another job owns the terminal. The kernel stops a background process that
/// changes the settings.
fn in_background() -> bool {
    // A terminal that does not control this process has no foreground group.
    tcgetpgrp(rustix::stdio::stdin()).is_ok_and(|group| group != rustix::process::getpgrp())
}

fn set(settings: &Termios) -> Result<(), Errno> {
    tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, settings)
}

/// Keeps the terminal on stdin raw until it is dropped. Then the earlier settings are restored.
#[derive(Debug)]
pub(crate) struct Raw(());

impl Raw {
    /// Makes the terminal on stdin raw. In the background this happens later, when [`make_raw`]
    /// finds ebb in the foreground. After [`close`], the terminal stays as it is. Also installs a
    /// panic hook that restores the earlier settings.
    ///
    /// # Errors
    /// If stdin is no terminal or its settings cannot be changed.
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
                *state = State::Restored(tcgetattr(rustix::stdio::stdin())?);
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

/// Makes the terminal raw again after [`restore_temporarily`], or after [`Raw::enter`] in the
/// background. Does nothing if ebb is in the background, the terminal is raw already, or ebb has
/// not taken it over. Fails if the settings cannot be changed.
pub(crate) fn make_raw() -> Result<(), Errno> {
    let mut state = lock();
    if let State::Restored(before) = &*state
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

/// Returns whether a [`Raw`] exists: the terminal is raw now, or its earlier settings are restored
/// for a while. Returns `false` after [`close`].
pub(crate) fn is_taken_over() -> bool {
    matches!(*lock(), State::Raw(_) | State::Restored(_))
}

/// Restores the earlier settings of a raw terminal until [`make_raw`] is called. In the background
/// it leaves the settings alone. Does nothing if the terminal is not raw. Ignores errors.
pub(crate) fn restore_temporarily() {
    let mut state = lock();
    if let State::Raw(before) = &*state {
        let before = before.clone();
        restore(&before);
        *state = State::Restored(before);
    }
}

/// Sets the terminal to `before`, unless another job owns it. Ignores errors, because the terminal
/// may be gone.
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

/// Restores the earlier settings of a raw terminal for good: [`make_raw`] and [`Raw::enter`] do not
/// change them any more. In the background it leaves the settings alone. Ignores errors.
pub(crate) fn close() {
    end(State::Closed);
}

/// Restores the terminal's earlier settings for good, as [`close`] does, when it is dropped.
#[derive(Debug)]
pub(crate) struct Closing;

impl Drop for Closing {
    fn drop(&mut self) {
        close();
    }
}

/// Returns the number of rows and columns of the terminal on stdin, or else on stdout. Returns
/// `None` if neither is a terminal.
pub(crate) fn window() -> Option<(u16, u16)> {
    let asked = [rustix::stdio::stdin(), rustix::stdio::stdout()];
    let mut sizes = asked.into_iter().filter_map(|fd| tcgetwinsize(fd).ok());
    sizes.next().map(|size| (size.ws_row, size.ws_col))
}
