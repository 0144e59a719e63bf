//! [`Options`], which the driver's owner chooses, and access to the device's configuration space
//! (virtio 1.2, 5.5.4).

use crate::error::ConfigError;
use crate::features::{Features, SUPPORTED};
use crate::stats::Stats;
use virtio_drivers::transport::Transport;

/// Byte offsets in `struct virtio_balloon_config`. All fields are little-endian, also in legacy
/// devices.
const NUM_PAGES: usize = 0;
const ACTUAL: usize = 4;
const POISON_VAL: usize = 12;

/// The choices of the driver's owner, given to [`Balloon::new`](crate::Balloon::new).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// The contents that the guest expects in a free page.
    pub free_pages: FreePages,
    /// The statistics that the guest can supply, with their first values. A statistic that is
    /// `None` here is never sent, since a driver must supply the same subset each time. With
    /// `None`, or with no value at all, the statistics queue is not negotiated.
    pub stats: Option<Stats>,
}

/// The contents that the guest expects in a free page. They decide whether free page reporting is
/// safe, since the device may change the contents of reported pages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FreePages {
    /// The guest expects nothing: if need be, it initialises a page when it allocates it.
    #[default]
    Arbitrary,
    /// The guest expects this 32-bit value, repeated: zero if it clears pages when it frees them,
    /// another value for page poisoning. The driver writes the value to the device's `poison_val`
    /// field. If the device does not offer that, free page reporting is not used. The page source
    /// fills a page that leaves the balloon with the value before the page counts as free
    /// ([`PageSource::give_back`]).
    ///
    /// If the value is not zero, QEMU acknowledges reports but gives no memory back to the host.
    ///
    /// [`PageSource::give_back`]: crate::PageSource::give_back
    Filled(u32),
}

impl Options {
    /// Returns the feature bits that the driver accepts: those of `offered` that are in
    /// [`SUPPORTED`], with three exceptions. `STATS_VQ` is left out if no statistic is supplied,
    /// `PAGE_POISON` if free pages may contain anything, and `REPORTING` if free pages have a value
    /// but `PAGE_POISON` is not offered.
    pub(crate) fn choose(&self, offered: Features) -> Features {
        let mut accepted = offered & SUPPORTED;
        if !self.stats.is_some_and(|stats| stats.supplies_any()) {
            accepted.remove(Features::STATS_VQ);
        }
        match self.free_pages {
            // "If the guest is not initializing freed pages, the driver should reject the
            // VIRTIO_BALLOON_F_PAGE_POISON feature."
            FreePages::Arbitrary => accepted.remove(Features::PAGE_POISON),
            // "If the driver is expecting the pages to retain some initialized value, it MUST NOT
            // accept VIRTIO_BALLOON_F_PAGE_REPORTING unless it also negotiates
            // VIRTIO_BALLOON_F_PAGE_POISON." A value of zero is no exception.
            FreePages::Filled(_) if !accepted.contains(Features::PAGE_POISON) => {
                accepted.remove(Features::REPORTING);
            }
            FreePages::Filled(_) => {}
        }
        accepted
    }
}

/// Reads the number of 4 KiB pages that the device wants in the balloon. The device may show any
/// number, even one beyond the guest's memory, and may change it between two reads. Fails if the
/// transport cannot read the field.
pub(crate) fn read_num_pages(transport: &impl Transport) -> Result<u32, ConfigError> {
    read(transport, NUM_PAGES)
}

/// Writes `actual`, the number of 4 KiB pages in the balloon, to the device. All four bytes go in
/// one access, as legacy devices need it. Fails if the transport cannot write the field.
pub(crate) fn write_actual(transport: &mut impl Transport, actual: u32) -> Result<(), ConfigError> {
    write(transport, ACTUAL, actual)
}

/// Writes `value`, the 32-bit pattern that fills free pages, to the device's field `poison_val`.
/// Call this before `DRIVER_OK` only. Fails if the transport cannot write the field.
pub(crate) fn write_poison(transport: &mut impl Transport, value: u32) -> Result<(), ConfigError> {
    write(transport, POISON_VAL, value)
}

fn read(transport: &impl Transport, offset: usize) -> Result<u32, ConfigError> {
    match transport.read_config_space::<u32>(offset) {
        Ok(value) => Ok(u32::from_le(value)),
        Err(error) => Err(ConfigError { offset, error }),
    }
}

fn write(transport: &mut impl Transport, offset: usize, value: u32) -> Result<(), ConfigError> {
    transport
        .write_config_space(offset, value.to_le())
        .map_err(|error| ConfigError { offset, error })
}

#[cfg(test)]
mod tests {
    use super::{FreePages, Options};
    use crate::features::Features;
    use crate::stats::Stats;

    const ALL: Features = Features::all();

    #[test]
    fn hinting_is_never_accepted() {
        assert!(
            !Options::default()
                .choose(ALL)
                .contains(Features::FREE_PAGE_HINT)
        );
    }

    #[test]
    fn nothing_is_accepted_that_was_not_offered() {
        let options = Options {
            stats: Some(Stats {
                total_bytes: Some(1),
                ..Stats::default()
            }),
            free_pages: FreePages::Filled(7),
        };
        assert_eq!(options.choose(Features::empty()), Features::empty());
    }

    #[test]
    fn statistics_need_at_least_one_value() {
        let none = Options {
            stats: Some(Stats::default()),
            ..Options::default()
        };
        assert!(!none.choose(ALL).contains(Features::STATS_VQ));
        let one = Stats {
            free_bytes: Some(0),
            ..Stats::default()
        };
        let some = Options {
            stats: Some(one),
            ..Options::default()
        };
        assert!(some.choose(ALL).contains(Features::STATS_VQ));
    }

    #[test]
    fn reporting_needs_poison_where_free_pages_have_a_value() {
        for value in [0, 0xaaaa_aaaa] {
            let options = Options {
                free_pages: FreePages::Filled(value),
                ..Options::default()
            };
            assert!(
                options
                    .choose(ALL)
                    .contains(Features::REPORTING | Features::PAGE_POISON)
            );
            let accepted = options.choose(ALL - Features::PAGE_POISON);
            assert!(!accepted.contains(Features::REPORTING));
        }
        let accepted = Options::default().choose(ALL);
        assert!(accepted.contains(Features::REPORTING));
        assert!(!accepted.contains(Features::PAGE_POISON));
    }
}
