//! Page numbers of the balloon, and [`PageSource`], through which the guest supplies pages.

/// Size of a page of the balloon in bytes. It does not depend on the guest's page size.
pub const PAGE_SIZE: usize = 4096;

/// Number of bits by which to shift an address to get its page number.
const PAGE_SHIFT: u32 = PAGE_SIZE.trailing_zeros();

/// The number of a 4 KiB page of guest-physical memory. It has 32 bits, so the balloon can hold
/// pages of the first 16 TiB only.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct Pfn(u32);

impl Pfn {
    /// Returns the page with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the page that contains a guest-physical `address`. Returns `None` if `address` is
    /// beyond the first 16 TiB.
    #[must_use]
    pub fn containing(address: u64) -> Option<Self> {
        u32::try_from(address >> PAGE_SHIFT).ok().map(Self)
    }

    /// Returns the page's number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns the guest-physical address of the page's first byte.
    #[must_use]
    pub const fn address(self) -> u64 {
        (self.0 as u64) << PAGE_SHIFT
    }
}

/// The source of the balloon's pages: the guest's allocator, and its record of the pages that are
/// in the balloon.
///
/// The life of a page: [`take_spare`] → (the device acknowledges) → [`remember`] → … → [`recall`] →
/// (the driver tells the device) → [`give_back`]. If a step cannot be finished, the driver calls
/// [`give_back`] for a page from [`take_spare`], and [`remember`] for a page from [`recall`].
///
/// No method may wait for the balloon. [`recall`], [`remember`] and [`give_back`] are called under
/// memory pressure, so they must not allocate.
///
/// # Safety
/// The device destroys the contents of the pages. Each page that [`take_spare`] returns must belong
/// to the source alone. From then on, until the driver passes it to [`give_back`], no code may read
/// or write it and no reference may point to it.
///
/// [`take_spare`]: Self::take_spare
/// [`remember`]: Self::remember
/// [`recall`]: Self::recall
/// [`give_back`]: Self::give_back
pub unsafe trait PageSource {
    /// Removes one page from use in the guest and returns it for the balloon. Returns `None` if the
    /// guest has no page to spare: the driver then stops inflating, and its caller tries again
    /// later. Keep a margin here (a watermark with hysteresis). Otherwise a balloon that was
    /// deflated for lack of memory would take the pages back at once.
    fn take_spare(&mut self) -> Option<Pfn>;

    /// Returns `page` to the guest's allocator. Its contents are lost. With
    /// [`FreePages::Filled`](crate::FreePages::Filled) it must be filled before it counts as free.
    fn give_back(&mut self, page: Pfn);

    /// Records that `page` is in the balloon: the device has acknowledged it, or it could not leave
    /// the balloon.
    fn remember(&mut self, page: Pfn);

    /// Removes one page from the record of pages in the balloon and returns it, so that it can
    /// leave the balloon. Returns `None` if the record is empty: the driver then stops deflating.
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
