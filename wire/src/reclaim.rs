//! [`Reclaim`]: what a guest does when the host asks it for memory.

/// A step of reclaim that the host asks for, in the order of increasing cost for the guest. After
/// each step, a guest of Ebb's kernel gives all its free blocks of 2 MiB to the host. A Linux guest
/// does the steps through its balloon, page by page, and has no `Compact`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// Gives back memory that is free already.
    Free,
    /// Drops clean pages of the page cache first.
    Cache,
    /// Compacts memory first, so that scattered free frames form whole blocks of 2 MiB. Only Ebb's
    /// kernel.
    Compact,
}

impl Reclaim {
    /// All steps, the cheapest first.
    pub const ALL: [Self; 3] = [Self::Free, Self::Cache, Self::Compact];

    /// Returns the name of the step, as used on command lines and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Cache => "cache",
            Self::Compact => "compact",
        }
    }

    /// Returns the step with this name, in lower case. Returns `None` for any other text.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which() {
        for step in Reclaim::ALL {
            assert_eq!(Reclaim::from_name(step.name()), Some(step));
        }
        assert_eq!(Reclaim::from_name("all"), None);
    }
}
