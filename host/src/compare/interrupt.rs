//! Ctrl-C and its like end a comparison in order: the guest that runs, then a report of what was.

use crate::failure::Failure;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether somebody wants an end.
#[derive(Debug)]
pub(crate) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Catches the signals from here on.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let caught = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            signal_hook::flag::register_usize(
                signal,
                Arc::clone(&caught),
                usize::try_from(signal).unwrap_or(0),
            )
            .map_err(|source| Failure::Setup {
                what: "signal handlers",
                source,
            })?;
        }
        Ok(Self(caught))
    }

    /// The signal that came, if one did.
    pub(crate) fn signal(&self) -> Option<u8> {
        // Relaxed: nobody reads other memory on the strength of it.
        match u8::try_from(self.0.load(Ordering::Relaxed)) {
            Ok(0) | Err(_) => None,
            Ok(signal) => Some(signal),
        }
    }
}
