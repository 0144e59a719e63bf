//! Settings of an instance that users can change at run time.

use crate::pool::{
    DEFAULT_BUFFER_SQUEEZE_DURATION_MS, DEFAULT_MAX_BUFFER_PAGES, DEFAULT_SQUEEZE_HOLD_MS,
    MAX_BUFFER_SQUEEZE_DURATION_MS, MAX_POOL_PAGES, MAX_SQUEEZE_HOLD_MS, SqueezeTimes,
};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Default value of `max_persistent_grants`: the maximum number of a disk's grants that stay mapped
/// (`xen-blkback`'s default).
pub const DEFAULT_MAX_PERSISTENT_GRANTS: u32 = 1056;
/// Largest value of the setting `max_persistent_grants`, a number of grants.
pub const MAX_PERSISTENT_GRANTS: u32 = 65_536;
/// Default value of `persistent_grant_unused_seconds`: the number of seconds after which an unused
/// persistent grant is unmapped (`xen-blkback`'s default).
pub const DEFAULT_PERSISTENT_GRANT_UNUSED_SECONDS: u32 = 60;
/// Largest value of `persistent_grant_unused_seconds`: a day.
pub const MAX_PERSISTENT_GRANT_UNUSED_SECONDS: u32 = 86_400;

/// One of the settings of an instance. Its value is a number of 32 bits.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Knob {
    /// Maximum number of free pages that a batch of requests leaves in an instance's pool, 0 to
    /// [`MAX_POOL_PAGES`]. Pages of requests under way are not counted.
    MaxBufferPages,
    /// Milliseconds after a pressure event in which no batch of requests leaves a free page. 0
    /// means that pressure events are ignored. At most [`MAX_BUFFER_SQUEEZE_DURATION_MS`].
    BufferSqueezeDurationMs,
    /// Milliseconds after a pressure event until which free pages that no request needs are
    /// returned. Counts from the event on, as [`Self::BufferSqueezeDurationMs`] does. At most
    /// [`MAX_SQUEEZE_HOLD_MS`].
    SqueezeHoldMs,
    /// Maximum number of a Xen front-end's grants that stay mapped, 0 to [`MAX_PERSISTENT_GRANTS`].
    MaxPersistentGrants,
    /// Seconds after which a mapped grant that no request used is unmapped. 0 means never. At most
    /// [`MAX_PERSISTENT_GRANT_UNUSED_SECONDS`].
    PersistentGrantUnusedSeconds,
    /// Whether the instance writes its numbers of requests to stderr every ten seconds: 0 or 1.
    LogStats,
}

/// The reason why a setting was not changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KnobError {
    /// No setting has this name.
    #[error(
        "`{0}` is not a knob; there are max_buffer_pages, buffer_squeeze_duration_ms, \
         squeeze_hold_ms, max_persistent_grants, \
         persistent_grant_unused_seconds and log_stats"
    )]
    Unknown(String),
    /// A text has no `=` between a setting and its value.
    #[error("`{0}` lacks `=`; write it like max_buffer_pages=1024")]
    NoValue(String),
    /// The value is not a number of 32 bits without a sign.
    #[error("{knob}={value}: `{value}` is not a whole number from 0 to {most}")]
    NotANumber {
        /// The setting.
        knob: Knob,
        /// The text in place of its value.
        value: String,
        /// The maximum.
        most: u32,
    },
    /// The setting has no effect on the disk: it is for disks of Xen's domains.
    #[error("`{setting}` has no effect here: {knob} is for disks of Xen's domains")]
    ForXenAlone {
        /// The text of the setting.
        setting: String,
        /// The setting.
        knob: Knob,
    },
    /// The value is above the maximum of the setting.
    #[error("{knob}={value} is over {most}, the most it can be")]
    TooLarge {
        /// The setting.
        knob: Knob,
        /// The requested value.
        value: u32,
        /// The maximum.
        most: u32,
    },
}

impl Knob {
    /// All settings, in the order of the variants.
    pub const ALL: [Self; 6] = [
        Self::MaxBufferPages,
        Self::BufferSqueezeDurationMs,
        Self::SqueezeHoldMs,
        Self::MaxPersistentGrants,
        Self::PersistentGrantUnusedSeconds,
        Self::LogStats,
    ];

    /// Returns the name of the setting for users. All but `squeeze_hold_ms` are named as in Linux's
    /// `xen-blkback`.
    pub fn name(self) -> &'static str {
        match self {
            Self::MaxBufferPages => "max_buffer_pages",
            Self::BufferSqueezeDurationMs => "buffer_squeeze_duration_ms",
            Self::SqueezeHoldMs => "squeeze_hold_ms",
            Self::MaxPersistentGrants => "max_persistent_grants",
            Self::PersistentGrantUnusedSeconds => "persistent_grant_unused_seconds",
            Self::LogStats => "log_stats",
        }
    }

    /// Returns whether the setting has no effect but on disks of Xen's domains.
    pub fn is_for_xen_alone(self) -> bool {
        matches!(
            self,
            Self::MaxPersistentGrants | Self::PersistentGrantUnusedSeconds
        )
    }

    fn most(self) -> u32 {
        match self {
            Self::MaxBufferPages => MAX_POOL_PAGES,
            Self::BufferSqueezeDurationMs => MAX_BUFFER_SQUEEZE_DURATION_MS,
            Self::SqueezeHoldMs => MAX_SQUEEZE_HOLD_MS,
            Self::MaxPersistentGrants => MAX_PERSISTENT_GRANTS,
            Self::PersistentGrantUnusedSeconds => MAX_PERSISTENT_GRANT_UNUSED_SECONDS,
            Self::LogStats => 1,
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

/// A setting and a value that is valid for it. Written as `KNOB=VALUE`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    knob: Knob,
    value: u32,
}

impl Setting {
    /// Makes the setting of `knob` to `value`.
    ///
    /// # Errors
    /// Fails with [`KnobError::TooLarge`] if `value` is above the maximum of `knob`.
    pub fn new(knob: Knob, value: u32) -> Result<Self, KnobError> {
        let most = knob.most();
        if value > most {
            return Err(KnobError::TooLarge { knob, value, most });
        }
        Ok(Self { knob, value })
    }

    /// Returns the setting without its value.
    pub fn knob(self) -> Knob {
        self.knob
    }

    /// Returns the value, in the unit that [`Knob`] gives.
    pub fn value(self) -> u32 {
        self.value
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.knob, self.value)
    }
}

impl FromStr for Setting {
    type Err = KnobError;

    fn from_str(text: &str) -> Result<Self, KnobError> {
        let Some((knob, value)) = text.split_once('=') else {
            return Err(KnobError::NoValue(text.to_owned()));
        };
        let knob: Knob = knob.parse()?;
        let number = value.parse().map_err(|_| KnobError::NotANumber {
            knob,
            value: value.to_owned(),
            most: knob.most(),
        })?;
        Self::new(knob, number)
    }
}

/// The settings of one instance. Any thread may set them, and the instance's thread reads them.
#[derive(Debug)]
pub struct Knobs {
    max_buffer_pages: AtomicU32,
    buffer_squeeze_duration_ms: AtomicU32,
    squeeze_hold_ms: AtomicU32,
    max_persistent_grants: AtomicU32,
    persistent_grant_unused_seconds: AtomicU32,
    log_stats: AtomicU32,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            max_buffer_pages: AtomicU32::new(DEFAULT_MAX_BUFFER_PAGES),
            buffer_squeeze_duration_ms: AtomicU32::new(DEFAULT_BUFFER_SQUEEZE_DURATION_MS),
            squeeze_hold_ms: AtomicU32::new(DEFAULT_SQUEEZE_HOLD_MS),
            max_persistent_grants: AtomicU32::new(DEFAULT_MAX_PERSISTENT_GRANTS),
            persistent_grant_unused_seconds: AtomicU32::new(
                DEFAULT_PERSISTENT_GRANT_UNUSED_SECONDS,
            ),
            log_stats: AtomicU32::new(0),
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
            Knob::SqueezeHoldMs => &self.squeeze_hold_ms,
            Knob::MaxPersistentGrants => &self.max_persistent_grants,
            Knob::PersistentGrantUnusedSeconds => &self.persistent_grant_unused_seconds,
            Knob::LogStats => &self.log_stats,
        }
    }

    /// Sets all settings of `self` to the values of `others`, one after the other.
    pub(crate) fn copy(&self, others: &Self) {
        for knob in Knob::ALL {
            // Relaxed: as in `get`.
            self.cell(knob).store(others.get(knob), Ordering::Relaxed);
        }
    }

    /// Returns the value of the setting `knob`, in the unit that [`Knob`] gives.
    pub fn get(&self, knob: Knob) -> u32 {
        // Relaxed: the number is independent of other memory.
        self.cell(knob).load(Ordering::Relaxed)
    }

    /// Sets the setting `knob` to `value`, as [`Self::apply`] does.
    ///
    /// # Errors
    /// Fails with [`KnobError::TooLarge`] if `value` is above the maximum of the setting, which
    /// then keeps its value.
    pub fn set(&self, knob: Knob, value: u32) -> Result<(), KnobError> {
        self.apply(Setting::new(knob, value)?);
        Ok(())
    }

    /// Changes a setting. The instance's thread uses the value the next time that it reads it; this
    /// does not wake the thread.
    pub fn apply(&self, setting: Setting) {
        // Relaxed: as in `get`.
        self.cell(setting.knob)
            .store(setting.value, Ordering::Relaxed);
    }

    /// Returns the times of a squeeze that begins now. Returns `None` if
    /// `buffer_squeeze_duration_ms` is 0, so that squeezing is off.
    pub fn squeeze_times(&self) -> Option<SqueezeTimes> {
        let duration = self.get(Knob::BufferSqueezeDurationMs);
        let longest = duration.max(self.get(Knob::SqueezeHoldMs));
        (duration > 0).then(|| SqueezeTimes {
            every_batch: Duration::from_millis(duration.into()),
            all: Duration::from_millis(longest.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_squeeze_lasts_as_long_as_the_longer_setting_says() {
        let knobs = Knobs::default();
        let lasts = |duration, hold| {
            knobs.set(Knob::BufferSqueezeDurationMs, duration).unwrap();
            knobs.set(Knob::SqueezeHoldMs, hold).unwrap();
            let times = knobs.squeeze_times();
            times.map(|times| (times.every_batch.as_millis(), times.all.as_millis()))
        };
        assert_eq!(lasts(1, 0), Some((1, 1)));
        assert_eq!(lasts(100, 0), Some((100, 100)));
        assert_eq!(lasts(100, 10_000), Some((100, 10_000)));
        assert_eq!(lasts(20_000, 10_000), Some((20_000, 20_000)));
        assert_eq!(lasts(3_600_000, 10_000), Some((3_600_000, 3_600_000)));
        let most = u128::from(u32::MAX);
        assert_eq!(lasts(u32::MAX, 10_000), Some((most, most)));
        assert_eq!(lasts(0, 10_000), None);
    }

    #[test]
    fn the_documentation_has_each_setting_with_its_default_and_range() {
        let page = include_str!("../../docs/knobs.md");
        let knobs = Knobs::default();
        for knob in Knob::ALL {
            let (name, default, most) = (knob.name(), knobs.get(knob), knob.most());
            let row = format!("| `{name}` | {default} | 0–{most} | ");
            assert!(page.lines().any(|line| line.starts_with(&row)), "{row}");
        }
    }

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
        let refused = |text: &str| text.parse::<Setting>().unwrap_err().to_string();
        assert!(refused("max_buffer_pages").starts_with("`max_buffer_pages` lacks `=`"));
        for value in ["", "-1", "1K", "4294967296"] {
            assert_eq!(
                refused(&format!("log_stats={value}")),
                format!("log_stats={value}: `{value}` is not a whole number from 0 to 1")
            );
        }
        assert_eq!(
            refused("log_stats=2"),
            "log_stats=2 is over 1, the most it can be"
        );
        assert!(refused("max_pages=1").starts_with("`max_pages` is not a knob"));
        for knob in Knob::ALL {
            assert_eq!(knob.name().parse(), Ok(knob));
        }
    }
}
