//! Handles Ctrl-C and other signals that end a comparison: the running guest is ended, then the
//! report is made of the runs so far.

use crate::failure::Failure;
use crate::system::without_ignored_hangup;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A flag that records the last signal which asked to end the comparison.
#[derive(Debug)]
pub(crate) struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Installs handlers for SIGINT, SIGTERM, SIGHUP and SIGQUIT, which only set the flag. They
    /// stay when this is dropped. SIGHUP stays ignored if it is, as under nohup(1). Fails if the
    /// host refuses.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let caught = Arc::new(AtomicUsize::new(0));
        for signal in without_ignored_hangup([SIGINT, SIGTERM, SIGHUP, SIGQUIT]) {
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

    /// Returns the number of the last signal that arrived, or `None` if none has. Does not clear
    /// the flag.
    pub(crate) fn signal(&self) -> Option<u8> {
        // Relaxed: no other memory is read because of this value.
        match u8::try_from(self.0.load(Ordering::Relaxed)) {
            Ok(0) | Err(_) => None,
            Ok(signal) => Some(signal),
        }
    }
}
