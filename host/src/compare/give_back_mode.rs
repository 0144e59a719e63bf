//! How the guests of a comparison give memory back.

use super::guest::Guest;
use crate::machine::GiveBack;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;

/// How memory of a guest goes back to the host: by the guest's own mode, or by the host's balloon.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum GiveBackMode {
    /// The guest's own mode, as in `ebb run --give-back`.
    Guest(GiveBack),
    /// The guest gives nothing back and its RAM is in base pages of the host. Other modes are
    /// compared with this one.
    OffInBasePages,
    /// The host inflates the balloon when the program has freed memory, and deflates it again.
    Balloon,
}

impl GiveBackMode {
    /// The mode in which memory is not given back.
    pub(crate) const OFF: Self = Self::Guest(GiveBack::Off);
    /// The mode free page reporting, the usual one of guests in a comparison.
    pub(crate) const REPORTING: Self = Self::Guest(GiveBack::Reporting);
    /// The mode in which `ebb run` starts a guest of Ebb's kernel if the user names none.
    pub(crate) const DEFAULT: Self = Self::Guest(GiveBack::Shared);
    const OFF_IN_BASE_PAGES: &str = "off-base";
    const BALLOON: &str = "balloon";

    /// Returns all modes, in the order of a table: `off` in base pages, the guest's own modes, the
    /// balloon.
    pub(crate) fn all() -> Vec<Self> {
        let guests = GiveBack::ALL.into_iter().map(Self::Guest);
        let first = std::iter::once(Self::OffInBasePages);
        first.chain(guests).chain([Self::Balloon]).collect()
    }

    /// Returns the mode's name for users and files, such as `reporting` or `off-base`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Guest(mode) => mode.name(),
            Self::OffInBasePages => Self::OFF_IN_BASE_PAGES,
            Self::Balloon => Self::BALLOON,
        }
    }

    /// Returns the mode that [`Self::name`] calls `name`, or `None` if there is none.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|mode| mode.name() == name)
    }

    /// Returns the value of `--give-back` for this mode. It is `off` for the balloon and for base
    /// pages.
    pub(crate) fn mode(self) -> GiveBack {
        match self {
            Self::Guest(mode) => mode,
            Self::OffInBasePages | Self::Balloon => GiveBack::Off,
        }
    }

    /// Returns the value of `--host-pages` for this mode: `base` for [`Self::OffInBasePages`].
    /// Returns `None` for other modes, which use the default of `ebb run`.
    pub(crate) fn host_pages(self) -> Option<&'static str> {
        (self == Self::OffInBasePages).then_some("base")
    }

    /// Returns whether free memory goes back to the host in this mode. Returns `false` if it is
    /// off, also in base pages.
    pub(crate) fn gives_back(self) -> bool {
        !matches!(self, Self::OFF | Self::OffInBasePages)
    }

    /// Returns whether the guest reports its free memory by requests to the balloon, which is so
    /// for reporting and hinting.
    pub(crate) fn reports(self) -> bool {
        matches!(self, Self::Guest(GiveBack::Reporting | GiveBack::Hinting))
    }

    /// Returns whether it takes seconds until memory goes back, which is so for reporting and the
    /// balloon.
    pub(crate) fn is_slow(self) -> bool {
        matches!(self, Self::Guest(GiveBack::Reporting) | Self::Balloon)
    }

    /// Returns whether a comparison can run a guest with this kernel in this mode. The balloon is
    /// for Linux only; Linux knows none of the guest's own modes but `off` and `reporting`.
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

    /// Returns the position in the order of modes. Reporting is first, as the usual mode.
    fn rank(self) -> u32 {
        match self {
            Self::REPORTING => 0,
            Self::OFF => 1,
            Self::Guest(mode) => 2 + mode.number(),
            Self::OffInBasePages => u32::MAX - 1,
            Self::Balloon => u32::MAX,
        }
    }

    /// Returns the label of `guest` when it gives memory back in this mode. The label is the
    /// guest's name. If `many`, the mode follows, except reporting, which is the usual one. `many`
    /// says that guests with the same kernel use several modes.
    pub(crate) fn label(self, guest: Guest, many: bool) -> String {
        match (many, self) {
            (false, _) | (_, Self::REPORTING) => guest.name().to_owned(),
            (_, Self::OFF) => format!("{}, not reporting", guest.name()),
            (_, mode) => format!("{}, {}", guest.name(), mode.name()),
        }
    }

    /// Returns a heading for curves or figures of guests in this mode.
    pub(crate) fn heading(self) -> String {
        match self {
            Self::REPORTING => "Free memory is reported".to_owned(),
            Self::OFF => "Nothing is reported".to_owned(),
            Self::OffInBasePages => "Nothing is reported, in base pages of the host".to_owned(),
            Self::Balloon => "The host inflates the balloon".to_owned(),
            mode => format!("Free memory goes back by {}", mode.caption()),
        }
    }

    /// Returns the mode's name for the head of a column. The default mode is marked as such.
    pub(crate) fn caption(self) -> String {
        match self {
            Self::DEFAULT => format!("{}, the default", self.name()),
            mode => mode.name().to_owned(),
        }
    }
}

impl Ord for GiveBackMode {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for GiveBackMode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for GiveBackMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for GiveBackMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::from_name(&name).ok_or_else(|| {
            serde::de::Error::custom(format_args!("`{name}` is no way to give memory back"))
        })
    }
}

#[cfg(test)]
impl schemars::JsonSchema for GiveBackMode {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GiveBackMode".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let names: Vec<_> = Self::all().into_iter().map(Self::name).collect();
        schemars::json_schema!({
            "description": "How a guest gives memory back.",
            "type": "string",
            "enum": names,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ranks_tell_ways_apart() {
        let all = GiveBackMode::all();
        for (index, mode) in all.iter().enumerate() {
            assert_eq!(GiveBackMode::from_name(mode.name()), Some(*mode));
            let text = serde_json::to_string(mode).expect("a name");
            assert_eq!(
                serde_json::from_str::<GiveBackMode>(&text).expect("its name"),
                *mode
            );
            for other in &all[..index] {
                assert_ne!(mode.cmp(other), Ordering::Equal);
            }
            // At least one guest supports each mode.
            assert!(mode.is_known_to(Guest::Ebb) || mode.is_known_to(Guest::Linux));
        }
        assert_eq!(GiveBackMode::from_name("on"), None);
        assert!(serde_json::from_str::<GiveBackMode>("\"on\"").is_err());
        assert!(
            GiveBackMode::REPORTING < GiveBackMode::OFF
                && GiveBackMode::OFF < GiveBackMode::Balloon
        );
    }
}
