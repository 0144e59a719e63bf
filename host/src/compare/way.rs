//! How the guests of a comparison give memory back.

use super::guest::Guest;
use crate::machine::GiveBack;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;

/// A way to give memory back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// The guest does it by itself, as `ebb run --give-back` says.
    Guest(GiveBack),
    /// The guest gives nothing back and its RAM is in base pages of the host. Other ways are compared
    /// with this one.
    OffInBasePages,
    /// The host takes it by the balloon: inflates it when the program has freed memory, and lets
    /// it go again.
    Balloon,
}

impl Way {
    /// Not at all.
    pub(crate) const OFF: Self = Self::Guest(GiveBack::Off);
    /// Free page reporting, as guests do it unless told otherwise.
    pub(crate) const REPORTING: Self = Self::Guest(GiveBack::Reporting);
    const OFF_IN_BASE_PAGES: &str = "off-base";
    const BALLOON: &str = "balloon";

    /// All ways, those first that a table begins with.
    pub(crate) fn all() -> Vec<Self> {
        let guests = GiveBack::ALL.into_iter().map(Self::Guest);
        let first = std::iter::once(Self::OffInBasePages);
        first.chain(guests).chain([Self::Balloon]).collect()
    }

    /// Its name for users and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Guest(mode) => mode.name(),
            Self::OffInBasePages => Self::OFF_IN_BASE_PAGES,
            Self::Balloon => Self::BALLOON,
        }
    }

    /// The way of this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|way| way.name() == name)
    }

    /// The value of `--give-back` for it.
    pub(crate) fn mode(self) -> GiveBack {
        match self {
            Self::Guest(mode) => mode,
            Self::OffInBasePages | Self::Balloon => GiveBack::Off,
        }
    }

    /// The value of `--host-pages` for it; `None`: what `ebb run` takes by itself.
    pub(crate) fn host_pages(self) -> Option<&'static str> {
        (self == Self::OffInBasePages).then_some("base")
    }

    /// Whether memory goes back at all.
    pub(crate) fn gives_back(self) -> bool {
        !matches!(self, Self::OFF | Self::OffInBasePages)
    }

    /// Whether it takes the guest's kernel seconds to come to it.
    pub(crate) fn is_slow(self) -> bool {
        matches!(self, Self::Guest(GiveBack::Reporting) | Self::Balloon)
    }

    /// Whether a guest with this kernel can do it.
    pub(crate) fn is_known_to(self, guest: Guest) -> bool {
        match (guest, self) {
            (_, Self::OffInBasePages)
            | (Guest::Ebb, Self::Guest(_))
            | (Guest::Linux, Self::Guest(GiveBack::Off | GiveBack::Reporting) | Self::Balloon) => {
                true
            }
            (Guest::Ebb, Self::Balloon) | (Guest::Linux, Self::Guest(_)) => false,
        }
    }

    /// The place among other ways: reporting first, as it is how guests run unless told otherwise.
    fn rank(self) -> u32 {
        match self {
            Self::REPORTING => 0,
            Self::OFF => 1,
            Self::Guest(mode) => 2 + mode.number(),
            Self::OffInBasePages => u32::MAX - 1,
            Self::Balloon => u32::MAX,
        }
    }

    /// A guest that gives memory back in this way, as labels have it; `many` says that others do
    /// it in another way.
    pub(crate) fn label(self, guest: Guest, many: bool) -> String {
        match (many, self) {
            (false, _) | (_, Self::REPORTING) => guest.name().to_owned(),
            (_, Self::OFF) => format!("{}, not reporting", guest.name()),
            (_, way) => format!("{}, {}", guest.name(), way.name()),
        }
    }

    /// What happens with free memory, as a heading.
    pub(crate) fn heading(self) -> String {
        match self {
            Self::REPORTING => "Free memory is reported".to_owned(),
            Self::OFF => "Nothing is reported".to_owned(),
            Self::OffInBasePages => "Nothing is reported, in base pages of the host".to_owned(),
            Self::Balloon => "The host inflates the balloon".to_owned(),
            way => format!("Free memory goes back by {}", way.name()),
        }
    }
}

impl Ord for Way {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Way {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for Way {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Way {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::from_name(&name).ok_or_else(|| {
            serde::de::Error::custom(format_args!("`{name}` is no way to give memory back"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ranks_tell_ways_apart() {
        let all = Way::all();
        for (index, way) in all.iter().enumerate() {
            assert_eq!(Way::from_name(way.name()), Some(*way));
            let text = serde_json::to_string(way).expect("a name");
            assert_eq!(serde_json::from_str::<Way>(&text).expect("its name"), *way);
            for other in &all[..index] {
                assert_ne!(way.cmp(other), Ordering::Equal);
            }
            // A guest somewhere does it.
            assert!(way.is_known_to(Guest::Ebb) || way.is_known_to(Guest::Linux));
        }
        assert_eq!(Way::from_name("on"), None);
        assert!(serde_json::from_str::<Way>("\"on\"").is_err());
        assert!(Way::REPORTING < Way::OFF && Way::OFF < Way::Balloon);
    }
}
