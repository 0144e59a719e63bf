//! What the caller chooses, and the device's configuration space (virtio 1.2, 5.5.4).

use crate::error::ConfigError;
use crate::features::{Features, SUPPORTED};
use crate::stats::Stats;
use virtio_drivers::transport::Transport;

/// Byte offsets in `struct virtio_balloon_config`. All fields are little-endian, legacy included.
const NUM_PAGES: usize = 0;
const ACTUAL: usize = 4;
const POISON_VAL: usize = 12;

/// What the caller tells the driver when it starts it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// What the guest expects to find in its free pages.
    pub free_pages: FreePages,
    /// The statistics the guest can supply, with their first values: the ones that are `None` here
    /// are never sent, since a driver must supply the same subset each time. `None`, or no value at
    /// all: the statistics queue is not negotiated.
    pub stats: Option<Stats>,
}

/// What the guest expects to find in a page that was free: it decides whether free page reporting
/// is safe, since the device may change reported pages.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FreePages {
    /// Nothing in particular: a page is initialised when it is allocated, if need be.
    #[default]
    Arbitrary,
    /// This value, repeated: zero for a guest that clears pages when it frees them, another value
    /// for page poisoning. The device is told through `poison_val`; where it cannot be told, free
    /// page reporting is not used. Whoever owns the pages fills a page that the balloon gave back
    /// with the value before it counts as free ([`PageSource::give_back`]).
    ///
    /// QEMU acknowledges reports when the value is not zero, but gives no memory back then.
    ///
    /// [`PageSource::give_back`]: crate::PageSource::give_back
    Filled(u32),
}

impl Options {
    /// The features to accept of those that the device offers.
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

/// The number of pages that the device wants in the balloon. Any value is possible, also one
/// beyond the guest's memory, and it may change from one read to the next.
pub(crate) fn read_num_pages(transport: &impl Transport) -> Result<u32, ConfigError> {
    read(transport, NUM_PAGES)
}

/// Tells the device how many pages are in the balloon: all four bytes in one access, as legacy
/// devices need.
pub(crate) fn write_actual(transport: &mut impl Transport, actual: u32) -> Result<(), ConfigError> {
    write(transport, ACTUAL, actual)
}

/// Tells the device what free pages are filled with; only before `DRIVER_OK`.
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
