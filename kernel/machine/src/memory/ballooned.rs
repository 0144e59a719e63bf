//! The frames of the balloon: those on their way, each a [`BalloonFrame`], and those in it, in one
//! list.
//!
//! Each frame of the list is linked to its neighbours by its descriptor, so the list needs no
//! memory of its own, and compaction can take out any frame. The contents of the frames are the
//! host's.
//!
//! The fields of the descriptor of a frame of [`Kind::Balloon`]:
//!
//! | field | in the list | on its way in or out |
//! |---|---|---|
//! | `owner` | [`LISTED`] | 0 |
//! | `next`, `previous` | a neighbour, as its frame number plus 1; 0 at an end | 0 |

use super::allocator::allocator;
use super::frame::FrameRef;
use super::memmap::{self, Descriptor, Kind};
use super::targets::{Target, Targets};
use crate::arch::header::HEADER;
use crate::sync::{Once, SpinLock};
use core::num::NonZero;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_balloon::{Ballooned, OwnedPage, Pfn};
use ebb_mm::{Frame, Mobility, Reserve};

/// The owner word of a frame in the list.
const LISTED: u64 = 1;

/// The first frame of the list. Held while links change.
static FIRST: SpinLock<Option<Frame>> = SpinLock::new(None);

/// A frame of [`Kind::Balloon`], with its only reference. Dropping it frees the frame.
///
/// The value is the frame's number, which fits in 32 bits and is not 0.
#[derive(Debug)]
pub struct BalloonFrame(NonZero<u32>);

impl BalloonFrame {
    /// Takes over `frame`, the only reference to a frame of [`Kind::Balloon`]. Returns `None` and
    /// frees the frame if the balloon cannot hold it.
    fn new(frame: FrameRef) -> Option<Self> {
        let number = number_of(frame.frame())?;
        let _ = frame.into_counted();
        Some(Self(number))
    }

    /// Puts `target` into use for the balloon. Returns `None` and frees the frame if the balloon
    /// cannot hold it.
    pub fn of_target(target: Target) -> Option<Self> {
        Self::new(FrameRef::of_target(target, Kind::Balloon))
    }

    fn frame(&self) -> Frame {
        Frame::new(u64::from(self.0.get()))
    }
}

// SAFETY: the value has the only reference to a frame that was allocated for the balloon. No page
// table maps such a frame, and nothing reads or writes it.
unsafe impl OwnedPage for BalloonFrame {
    #[inline]
    fn number(&self) -> Pfn {
        Pfn::new(self.0.get())
    }
}

impl Drop for BalloonFrame {
    #[inline]
    fn drop(&mut self) {
        memmap::release(self.frame());
    }
}

/// Returns the number of `frame` for the device. Returns `None` if the balloon cannot hold the
/// frame: its number does not fit in 32 bits.
fn number_of(frame: Frame) -> Option<NonZero<u32>> {
    // Frame 0 belongs to the firmware.
    u32::try_from(frame.number()).ok().and_then(NonZero::new)
}

/// Allocates a frame for the balloon. Returns `None` if no more frames are free than twice the high
/// watermark, or if the balloon cannot hold the frame. Does not wait.
pub fn spare_frame() -> Option<BalloonFrame> {
    let stats = allocator().stats();
    // Inflating must not be what makes allocations wait.
    if stats.free_frames <= stats.watermarks.high.saturating_mul(2) {
        return None;
    }
    BalloonFrame::new(FrameRef::try_new(Kind::Balloon, Mobility::Movable, Reserve::Keep).ok()?)
}

/// Stores the neighbour `frame` in the field `place`.
fn link(place: &AtomicU64, frame: Option<Frame>) {
    // Relaxed (all of links): under the lock.
    place.store(
        frame.map_or(0, |frame| frame.number() + 1),
        Ordering::Relaxed,
    );
}

/// Returns the neighbour that [`link`] stored in `place`.
fn linked(place: &AtomicU64) -> Option<Frame> {
    let number = place.load(Ordering::Relaxed).checked_sub(1)?;
    Some(Frame::new(number))
}

/// Adds `page`, which the device has taken, to the list.
pub fn push(page: Ballooned<BalloonFrame>) {
    // The list has the reference from here on.
    let frame = Frame::new(page.number().number().into());
    let descriptor = Descriptor::get(frame);
    let mut first = FIRST.lock();
    link(&descriptor.next, *first);
    if let Some(next) = *first {
        link(&Descriptor::get(next).previous, Some(frame));
    }
    descriptor.set_owner(LISTED);
    *first = Some(frame);
    // Relaxed: a figure for the host, which stands for itself.
    HEADER.ballooned_frames.fetch_add(1, Ordering::Relaxed);
}

/// Removes the frame that was added last. Returns `None` if the list is empty.
pub fn pop() -> Option<Ballooned<BalloonFrame>> {
    let mut first = FIRST.lock();
    let frame = (*first)?;
    unlink(&mut first, frame)
}

/// Removes `frame`. Returns `None` if the list does not have it.
pub fn remove(frame: Frame) -> Option<Ballooned<BalloonFrame>> {
    let mut first = FIRST.lock();
    if !is_listed(frame) {
        return None;
    }
    unlink(&mut first, frame)
}

/// Returns whether the list has `frame`. The caller holds the lock of the balloon's driver, without
/// which no frame of the balloon is freed.
pub fn is_listed(frame: Frame) -> bool {
    let descriptor = Descriptor::get(frame);
    descriptor.kind() == Some(Kind::Balloon) && descriptor.owner() == LISTED
}

/// Removes `frame`, which is in the list. `first` is the locked head of the list. Returns `None`
/// for a frame that the balloon cannot hold, of which the list has none.
fn unlink(first: &mut Option<Frame>, frame: Frame) -> Option<Ballooned<BalloonFrame>> {
    let number = number_of(frame)?;
    let descriptor = Descriptor::get(frame);
    let (next, previous) = (linked(&descriptor.next), linked(&descriptor.previous));
    if let Some(next) = next {
        link(&Descriptor::get(next).previous, previous);
    }
    match previous {
        Some(previous) => link(&Descriptor::get(previous).next, next),
        None => *first = next,
    }
    // The descriptor of a free frame is all zero.
    link(&descriptor.next, None);
    link(&descriptor.previous, None);
    descriptor.set_owner(0);
    // Relaxed: as in `push`, which counted the frame.
    HEADER.ballooned_frames.fetch_sub(1, Ordering::Relaxed);
    // The reference that `push` took over for the list, which had the frame.
    Some(Ballooned::new(BalloonFrame(number)))
}

/// The function of the balloon's driver that exchanges the frames of the first slice for targets.
/// Returns the number of frames that have left the balloon.
type Exchange = fn(&[Frame], &mut Targets) -> usize;

/// Set once there is a driver.
static EXCHANGE: Once<Exchange> = Once::new();

/// Sets the function by which [`exchange`] reaches the balloon's driver. Only the first call has an
/// effect.
pub fn set_exchange(exchange: Exchange) {
    let _ = EXCHANGE.set(exchange);
}

/// Exchanges the frames `from` of the balloon for `to`: the host gets the new ones, and the old
/// ones are freed. Skips frames of `from` that are not in the list. Does nothing if the device is
/// busy. May sleep for some milliseconds. The caller holds no spin lock.
///
/// Returns the number of frames that have left the balloon. That is less than the number of targets
/// taken if the device was slow, or if frames left the balloon otherwise in that time.
pub fn exchange(from: &[Frame], to: &mut Targets) -> usize {
    match EXCHANGE.get() {
        Some(exchange) if !from.is_empty() => exchange(from, to),
        _ => 0,
    }
}
