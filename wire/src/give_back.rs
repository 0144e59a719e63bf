//! How memory that a guest frees goes back to the host.

/// The ways. One holds at a time, and it can be changed while the guest runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum GiveBack {
    /// Not at all.
    Off,
    /// By free page reporting: a scan, two seconds after memory was freed.
    #[default]
    Reporting,
    /// By page hinting: what is freed is noted, and sent at once.
    Hinting,
    /// The host takes what is free, by the words of the guest's allocator.
    Shared,
}

impl GiveBack {
    /// All ways.
    pub const ALL: [Self; 4] = [Self::Off, Self::Reporting, Self::Hinting, Self::Shared];

    /// The name by which users and kernels know it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Reporting => "reporting",
            Self::Hinting => "hinting",
            Self::Shared => "shared",
        }
    }

    /// The way of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    /// The number that stands for it in the guest's header.
    pub const fn number(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::Reporting => 1,
            Self::Hinting => 2,
            Self::Shared => 3,
        }
    }

    /// The way of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_say_which() {
        for way in GiveBack::ALL {
            assert_eq!(GiveBack::from_name(way.name()), Some(way));
            assert_eq!(GiveBack::from_number(way.number()), Some(way));
        }
        assert_eq!(GiveBack::from_name("Hinting"), None);
        assert_eq!(GiveBack::from_number(4), None);
    }
}
