//! What can be set at run time, for each instance.

use crate::pool::{
    DEFAULT_BUFFER_SQUEEZE_DURATION_MS, DEFAULT_MAX_BUFFER_PAGES, MAX_BUFFER_SQUEEZE_DURATION_MS,
    MAX_POOL_PAGES,
};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Grants of a disk that stay mapped unless told otherwise (`xen-blkback`'s default).
pub const DEFAULT_MAX_PERSISTENT_GRANTS: u32 = 1056;
/// The most that can be set.
pub const MAX_PERSISTENT_GRANTS: u32 = 65_536;
/// Seconds after which a grant that nobody used goes unless told otherwise (`xen-blkback`'s
/// default); 0 is never.
pub const DEFAULT_PERSISTENT_GRANT_UNUSED_SECONDS: u32 = 60;
/// The most that can be set: a day.
pub const MAX_PERSISTENT_GRANT_UNUSED_SECONDS: u32 = 86_400;

/// A knob by its name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Knob {
    /// Free pages kept when idle, 0 to [`MAX_POOL_PAGES`].
    MaxBufferPages,
    /// Milliseconds for which a pressure event keeps that limit at 0, to which
    /// [`WARY`](crate::pool::WARY) is added; 0 is "not at all", at most
    /// [`MAX_BUFFER_SQUEEZE_DURATION_MS`].
    BufferSqueezeDurationMs,
    /// Grants of a Xen front-end that stay mapped, 0 to [`MAX_PERSISTENT_GRANTS`].
    MaxPersistentGrants,
    /// Seconds after which one of them goes that nobody used; 0 is never, at most
    /// [`MAX_PERSISTENT_GRANT_UNUSED_SECONDS`].
    PersistentGrantUnusedSeconds,
}

/// Why a knob was not set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KnobError {
    /// No knob has this name.
    #[error(
        "`{0}` is not a knob; there are max_buffer_pages, buffer_squeeze_duration_ms, \
         max_persistent_grants and persistent_grant_unused_seconds"
    )]
    Unknown(String),
    /// The value is above the knob's range.
    #[error("{knob}={value} is over {most}, the most it can be")]
    TooLarge {
        /// Which.
        knob: Knob,
        /// What was asked for.
        value: u32,
        /// The most there can be.
        most: u32,
    },
}

impl Knob {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::MaxBufferPages,
        Self::BufferSqueezeDurationMs,
        Self::MaxPersistentGrants,
        Self::PersistentGrantUnusedSeconds,
    ];

    /// The name by which users know it: the one of Linux's `xen-blkback`.
    pub fn name(self) -> &'static str {
        match self {
            Self::MaxBufferPages => "max_buffer_pages",
            Self::BufferSqueezeDurationMs => "buffer_squeeze_duration_ms",
            Self::MaxPersistentGrants => "max_persistent_grants",
            Self::PersistentGrantUnusedSeconds => "persistent_grant_unused_seconds",
        }
    }

    fn most(self) -> u32 {
        match self {
            Self::MaxBufferPages => MAX_POOL_PAGES,
            Self::BufferSqueezeDurationMs => MAX_BUFFER_SQUEEZE_DURATION_MS,
            Self::MaxPersistentGrants => MAX_PERSISTENT_GRANTS,
            Self::PersistentGrantUnusedSeconds => MAX_PERSISTENT_GRANT_UNUSED_SECONDS,
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Knob {
    type Err = KnobError;

    fn from_str(name: &str) -> Result<Self, KnobError> {
        let found = Self::ALL.into_iter().find(|knob| knob.name() == name);
        found.ok_or_else(|| KnobError::Unknown(name.to_owned()))
    }
}

/// The knobs of one instance. Each is read by its worker and set by anybody.
#[derive(Debug)]
pub struct Knobs {
    max_buffer_pages: AtomicU32,
    buffer_squeeze_duration_ms: AtomicU32,
    max_persistent_grants: AtomicU32,
    persistent_grant_unused_seconds: AtomicU32,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            max_buffer_pages: AtomicU32::new(DEFAULT_MAX_BUFFER_PAGES),
            buffer_squeeze_duration_ms: AtomicU32::new(DEFAULT_BUFFER_SQUEEZE_DURATION_MS),
            max_persistent_grants: AtomicU32::new(DEFAULT_MAX_PERSISTENT_GRANTS),
            persistent_grant_unused_seconds: AtomicU32::new(
                DEFAULT_PERSISTENT_GRANT_UNUSED_SECONDS,
            ),
        }
    }
}

impl Clone for Knobs {
    fn clone(&self) -> Self {
        let copy = Self::default();
        copy.copy(self);
        copy
    }
}

impl Knobs {
    fn cell(&self, knob: Knob) -> &AtomicU32 {
        match knob {
            Knob::MaxBufferPages => &self.max_buffer_pages,
            Knob::BufferSqueezeDurationMs => &self.buffer_squeeze_duration_ms,
            Knob::MaxPersistentGrants => &self.max_persistent_grants,
            Knob::PersistentGrantUnusedSeconds => &self.persistent_grant_unused_seconds,
        }
    }

    /// Sets all of them to those of `others`.
    pub(crate) fn copy(&self, others: &Self) {
        for knob in Knob::ALL {
            // Relaxed: see `get`.
            self.cell(knob).store(others.get(knob), Ordering::Relaxed);
        }
    }

    /// The value of `knob`.
    pub fn get(&self, knob: Knob) -> u32 {
        // Relaxed: a number by itself; nothing else is read because of it.
        self.cell(knob).load(Ordering::Relaxed)
    }

    /// Sets `knob`. The worker goes by it from its next look on.
    ///
    /// # Errors
    /// If `value` is out of range.
    pub fn set(&self, knob: Knob, value: u32) -> Result<(), KnobError> {
        let most = knob.most();
        if value > most {
            return Err(KnobError::TooLarge { knob, value, most });
        }
        // Relaxed: see `get`.
        self.cell(knob).store(value, Ordering::Relaxed);
        Ok(())
    }

    /// How long an event squeezes, without [`WARY`](crate::pool::WARY).
    pub fn squeeze_duration(&self) -> Duration {
        Duration::from_millis(self.get(Knob::BufferSqueezeDurationMs).into())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_named() {
        let knobs = Knobs::default();
        let error = knobs
            .set(Knob::MaxBufferPages, MAX_POOL_PAGES + 1)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "max_buffer_pages=16385 is over 16384, the most it can be"
        );
        assert_eq!(knobs.get(Knob::MaxBufferPages), DEFAULT_MAX_BUFFER_PAGES);
        assert!("max_pages".parse::<Knob>().is_err());
        for knob in Knob::ALL {
            assert_eq!(knob.name().parse(), Ok(knob));
        }
    }
}
