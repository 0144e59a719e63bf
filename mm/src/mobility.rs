//! The mobility of a frame in use: whether it can be migrated or reclaimed.

/// Whether the contents of a frame in use can be migrated or reclaimed.
///
/// Frames of different mobility are kept in different pageblocks, so that an unmovable frame does
/// not prevent a pageblock of movable ones from becoming a huge page.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Mobility {
    /// The frame stays where it is until it is freed: page tables, kernel memory, memory for
    /// devices.
    Unmovable = 0,
    /// The frame can be migrated: anonymous user memory, pages of files. Other frames of such a
    /// pageblock keep it from being emptied.
    Movable = 1,
    /// The contents can be dropped and restored: caches.
    Reclaimable = 2,
}

impl Mobility {
    /// Number of mobilities.
    pub const COUNT: usize = 3;
    /// All mobilities, by index.
    pub const ALL: [Self; Self::COUNT] = [Self::Unmovable, Self::Movable, Self::Reclaimable];

    /// Returns the mobility as an index, 0 to 2.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the two other mobilities, in the order in which a request of this mobility uses
    /// their pageblocks when its own have no free frames. This is Linux's order.
    pub(crate) const fn fallbacks(self) -> [Self; 2] {
        match self {
            Self::Unmovable => [Self::Reclaimable, Self::Movable],
            Self::Movable => [Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => [Self::Unmovable, Self::Movable],
        }
    }
}
