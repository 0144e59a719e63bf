//! Page numbers of the balloon, the owners of its pages, and [`PageSource`], through which the
//! guest supplies pages.

use core::fmt;
use core::mem::ManuallyDrop;

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

/// A page of the guest that its value owns.
///
/// # Safety
/// The device destroys the contents of the page with the number that [`number`](Self::number)
/// returns. So the page must belong to the value alone for as long as the value exists: no code
/// reads or writes the page, and no reference points to it. That holds for good if the value is
/// forgotten. The number must be the same at each call.
pub unsafe trait OwnedPage {
    /// Returns the page's number.
    fn number(&self) -> Pfn;
}

/// A page that the device has or may have: it is in the balloon, or in a request.
///
/// Only the driver gets the page out of this value again, after the device has let go of the page
/// or has been reset. If the value is dropped, the page is lost: it stays out of use for good,
/// since the device may still use it.
pub struct Ballooned<P>(ManuallyDrop<P>);

impl<P: OwnedPage> Ballooned<P> {
    /// Marks `page` as in the balloon. A [`PageSource`] that keeps its record in another form than
    /// values of this type calls this in [`recall`](PageSource::recall).
    #[must_use]
    pub const fn new(page: P) -> Self {
        Self(ManuallyDrop::new(page))
    }

    /// Returns the page's number.
    #[must_use]
    pub fn number(&self) -> Pfn {
        self.0.number()
    }

    /// Returns the page. Call this only if the device does not have it: the request was not sent,
    /// was to let the page go, or ended with a reset.
    pub(crate) fn into_page(self) -> P {
        ManuallyDrop::into_inner(self.0)
    }
}

impl<P: OwnedPage> fmt::Debug for Ballooned<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ballooned").field(&self.number()).finish()
    }
}

/// The source of the balloon's pages: the guest's allocator, and its record of the pages that are
/// in the balloon.
///
/// The life of a page: [`take_spare`] → (the device acknowledges) → [`remember`] → … → [`recall`] →
/// (the driver tells the device) → [`give_back`]. If a step cannot be finished, the driver calls
/// [`give_back`] for a page from [`take_spare`], and [`remember`] for a page from [`recall`].
/// Between these calls the driver keeps the page.
///
/// A source serves one driver: a page from [`recall`] is one that this driver's device has.
///
/// No method may wait for the balloon. [`recall`], [`remember`] and [`give_back`] are called under
/// memory pressure, so they must not allocate.
///
/// [`take_spare`]: Self::take_spare
/// [`remember`]: Self::remember
/// [`recall`]: Self::recall
/// [`give_back`]: Self::give_back
pub trait PageSource {
    /// A page of the guest.
    type Page: OwnedPage;

    /// Removes one page from use in the guest and returns it for the balloon. Returns `None` if the
    /// guest has no page to spare: the driver then stops inflating, and its caller tries again
    /// later. Keep a margin here (a watermark with hysteresis). Otherwise a balloon that was
    /// deflated for lack of memory would take the pages back at once.
    fn take_spare(&mut self) -> Option<Self::Page>;

    /// Returns `page` to the guest's allocator. Its contents are lost. With
    /// [`FreePages::Filled`](crate::FreePages::Filled) it must be filled before it counts as free.
    fn give_back(&mut self, page: Self::Page);

    /// Records that `page` is in the balloon: the device has acknowledged it, or it could not leave
    /// the balloon.
    fn remember(&mut self, page: Ballooned<Self::Page>);

    /// Removes one page from the record of pages in the balloon and returns it, so that it can
    /// leave the balloon. Returns `None` if the record is empty: the driver then stops deflating.
    fn recall(&mut self) -> Option<Ballooned<Self::Page>>;
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
