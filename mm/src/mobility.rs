//! What can be done with a frame while it is in use.

/// Whether the contents of a frame can be moved or dropped. Frames of different mobility are kept
/// in different pageblocks, so that one immovable frame does not cost a huge page.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Mobility {
    /// Stays where it is until it is freed: page tables, kernel memory, memory for devices.
    Unmovable = 0,
    /// Can be copied elsewhere: anonymous user memory.
    Movable = 1,
    /// Can be dropped and got back: caches.
    Reclaimable = 2,
}

impl Mobility {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// All of them, by number.
    pub const ALL: [Self; Self::COUNT] = [Self::Unmovable, Self::Movable, Self::Reclaimable];

    /// Its number, as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The other two, in the order in which a request of this mobility takes their blocks when
    /// its own are used up. Linux's order.
    pub(crate) const fn fallbacks(self) -> [Self; 2] {
        match self {
            Self::Unmovable => [Self::Reclaimable, Self::Movable],
            Self::Movable => [Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => [Self::Unmovable, Self::Movable],
        }
    }
}
