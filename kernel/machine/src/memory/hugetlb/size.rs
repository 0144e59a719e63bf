//! The sizes of huge pages.

use crate::arch::features::{self, Feature};
use ebb_mm::{Order, PAGEBLOCK_FRAMES};

/// The size of a huge page.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// 2 MiB: a pageblock.
    Mib2,
    /// 1 GiB: 512 pageblocks.
    Gib1,
}

impl PageSize {
    /// All sizes, in ascending order.
    pub const ALL: [Self; 2] = [Self::Mib2, Self::Gib1];

    /// Returns the order of the allocator's blocks that become pages of this size.
    pub const fn order(self) -> Order {
        match self {
            Self::Mib2 => Order::PAGEBLOCK,
            Self::Gib1 => Order::GIB,
        }
    }

    /// Returns the number of frames (4 KiB) in a page of this size.
    pub const fn frames(self) -> u64 {
        self.order().frames()
    }

    /// Returns the number of bytes in a page of this size.
    pub const fn bytes(self) -> u64 {
        self.frames() * 4096
    }

    /// Returns the number of pageblocks in a page of this size.
    pub const fn pageblocks(self) -> u64 {
        self.frames() / PAGEBLOCK_FRAMES
    }

    /// Returns whether the CPUs of this machine support pages of this size.
    pub fn is_supported(self) -> bool {
        self == Self::Mib2 || features::has(Feature::GibPages)
    }

    /// Returns the size of pages of `bytes` bytes. Returns `None` if there is no such size, or this
    /// machine does not support it.
    pub fn of_bytes(bytes: u64) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|size| size.bytes() == bytes && size.is_supported())
    }
}
