//! The user's terminal in raw mode: each key goes to the guest as it is, whose own terminal makes lines,
//! echo and signals of them.
//!
//! The settings from before come back however ebb ends: by [`Raw`]'s drop, before it exits on a signal, and
//! when it panics. Nothing can be done about SIGKILL; `stty sane` helps then.

use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The settings from before.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

fn before() -> MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The terminal is raw as long as this exists.
#[derive(Debug)]
pub(crate) struct Raw(());

impl Raw {
    /// Makes the terminal on stdin raw.
    pub(crate) fn enter() -> Result<Self, Errno> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                cook();
                usual(panic);
            }));
        });
        let stdin = rustix::stdio::stdin();
        let settings = tcgetattr(stdin)?;
        *before() = Some(settings);
        make_raw()?;
        Ok(Self(()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        leave();
    }
}

/// Makes the terminal raw once more, after [`cook`].
pub(crate) fn make_raw() -> Result<(), Errno> {
    let Some(mut settings) = before().clone() else {
        return Ok(());
    };
    settings.make_raw();
    tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &settings)
}

/// Puts the settings from before back, for a while.
pub(crate) fn cook() {
    if let Some(settings) = before().as_ref() {
        // A terminal that is gone has no settings.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, settings);
    }
}

/// Puts the settings from before back, for good.
pub(crate) fn leave() {
    cook();
    *before() = None;
}

/// Rows and columns of the terminal, if there is one; stdin is asked first, then stdout.
pub(crate) fn window() -> Option<(u16, u16)> {
    let asked = [rustix::stdio::stdin(), rustix::stdio::stdout()];
    let mut sizes = asked.into_iter().filter_map(|fd| tcgetwinsize(fd).ok());
    sizes.next().map(|size| (size.ws_row, size.ws_col))
}
