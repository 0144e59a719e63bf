//! Pages as the balloon counts them, and where they come from.

/// Size of a page of the balloon in bytes, whatever the guest's own page size is.
pub const PAGE_SIZE: usize = 4096;

/// Shift between an address and a page number.
const PAGE_SHIFT: u32 = PAGE_SIZE.trailing_zeros();

/// Number of a 4 KiB page of guest-physical memory. 32 bits: the balloon reaches the first 16 TiB.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct Pfn(u32);

impl Pfn {
    /// The page with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The page that holds a guest-physical address, or `None` beyond the 16 TiB that the balloon
    /// can name.
    #[must_use]
    pub fn containing(address: u64) -> Option<Self> {
        u32::try_from(address >> PAGE_SHIFT).ok().map(Self)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Its first guest-physical address.
    #[must_use]
    pub const fn address(self) -> u64 {
        (self.0 as u64) << PAGE_SHIFT
    }
}

/// Where the balloon's pages come from and go to: the guest's allocator, and its record of which
/// pages are in the balloon.
///
/// A page goes round: [`take_spare`] → (the device acknowledges) → [`remember`] → … → [`recall`] →
/// (the device is told) → [`give_back`]. Where a step cannot be finished, the page goes back the
/// way it came.
///
/// None of the methods may wait for the balloon, and [`recall`], [`remember`] and [`give_back`] are
/// called under memory pressure: they must not allocate.
///
/// # Safety
/// The device destroys what is in a page. So each page that [`take_spare`] returns must be memory
/// that belongs to the source alone, that nothing reads or writes and no reference points to, from
/// then on until the driver hands it to [`give_back`].
///
/// [`take_spare`]: Self::take_spare
/// [`remember`]: Self::remember
/// [`recall`]: Self::recall
/// [`give_back`]: Self::give_back
pub unsafe trait PageSource {
    /// Takes one page out of use for the balloon. `None`: the guest has none to spare now, the
    /// driver stops inflating and the caller tries again later. Keep a margin here (a watermark
    /// with hysteresis), or a balloon that was deflated for want of memory takes the pages again
    /// at once.
    fn take_spare(&mut self) -> Option<Pfn>;

    /// The page is the guest's again; its contents are lost. With
    /// [`FreePages::Filled`](crate::FreePages::Filled) it must be filled before it counts as free.
    fn give_back(&mut self, page: Pfn);

    /// The page is in the balloon.
    fn remember(&mut self, page: Pfn);

    /// Picks a page that is in the balloon, to be taken out of it. `None`: there is none.
    fn recall(&mut self) -> Option<Pfn>;
}

#[cfg(test)]
mod tests {
    use super::Pfn;

    #[test]
    fn addresses_and_numbers() {
        assert_eq!(Pfn::containing(0x1fff), Some(Pfn::new(1)));
        assert_eq!(Pfn::new(u32::MAX).address(), 0xfff_ffff_f000);
        assert_eq!(Pfn::containing(0xfff_ffff_ffff), Some(Pfn::new(u32::MAX)));
        assert_eq!(Pfn::containing(0x1000_0000_0000), None);
    }
}
