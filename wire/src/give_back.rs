//! [`GiveBack`]: how the memory that a guest frees goes back to the host.

/// The mode in which free memory goes back to the host. Exactly one is active at a time, and it can
/// be changed while the guest runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum GiveBack {
    /// Free memory stays with the guest.
    Off,
    /// Free page reporting: the guest scans for free memory two seconds after memory was freed.
    #[default]
    Reporting,
    /// Free page hinting: the guest records freed memory and reports it at once.
    Hinting,
    /// The host reads the guest allocator's bitmaps in shared memory and takes free memory itself.
    Shared,
}

impl GiveBack {
    /// All modes, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Off, Self::Reporting, Self::Hinting, Self::Shared];

    /// Returns the name of the mode, as used on command lines and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Reporting => "reporting",
            Self::Hinting => "hinting",
            Self::Shared => "shared",
        }
    }

    /// Returns the mode with this name, in lower case. Returns `None` for any other text.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    /// Returns the number of the mode, 0 to 3, as in
    /// [`GuestHeader::give_back`](crate::header::GuestHeader::give_back).
    pub const fn number(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::Reporting => 1,
            Self::Hinting => 2,
            Self::Shared => 3,
        }
    }

    /// Returns the mode with this number. Returns `None` if the number is above 3.
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
