//! What a guest does for a host that asks for memory.

/// A step, and those after it cost the guest more. Each ends with all free blocks at the host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// What is free already.
    Free,
    /// Clean pages of files are dropped.
    Cache,
    /// What is free in pieces is made whole.
    Compact,
}

impl Reclaim {
    /// All steps, the cheapest first.
    pub const ALL: [Self; 3] = [Self::Free, Self::Cache, Self::Compact];

    /// The name by which users and guests know it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Cache => "cache",
            Self::Compact => "compact",
        }
    }

    /// The step of this name.
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
