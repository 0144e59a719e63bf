//! The frames in the balloon, in one list.
//!
//! Each frame is linked to its neighbours by its descriptor, so the list needs no memory of its
//! own, and compaction can take out any frame. The contents of the frames are the host's.
//!
//! The fields of the descriptor of a frame of [`Kind::Balloon`]:
//!
//! | field | in the list | on its way in or out |
//! |---|---|---|
//! | `owner` | [`LISTED`] | 0 |
//! | `next`, `previous` | a neighbour, as its frame number plus 1; 0 at an end | 0 |

use super::frame::FrameRef;
pub use super::helpers::Exchanged;
use super::helpers::HELPERS;
use super::memmap::{Descriptor, Kind};
use crate::arch::header::HEADER;
use crate::sync::SpinLock;
use core::sync::atomic::{AtomicU64, Ordering};
use ebb_mm::Frame;

/// The owner word of a frame in the list.
const LISTED: u64 = 1;

/// The first frame of the list. Held while links change.
static FIRST: SpinLock<Option<Frame>> = SpinLock::new(None);

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

/// Adds `frame`, which the device has taken, to the list.
///
/// # Panics
/// If the frame was not allocated for the balloon.
pub fn push(frame: FrameRef) {
    let frame = frame.into_counted();
    let descriptor = Descriptor::get(frame);
    assert_eq!(descriptor.kind(), Some(Kind::Balloon));
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
pub fn pop() -> Option<FrameRef> {
    let mut first = FIRST.lock();
    let frame = (*first)?;
    Some(unlink(&mut first, frame))
}

/// Removes `frame`. Returns `None` if the list does not have it.
pub fn remove(frame: Frame) -> Option<FrameRef> {
    let mut first = FIRST.lock();
    is_listed(frame).then(|| unlink(&mut first, frame))
}

/// Returns whether the list has `frame`. The caller holds the lock of the balloon's driver, without
/// which no frame of the balloon is freed.
pub fn is_listed(frame: Frame) -> bool {
    let descriptor = Descriptor::get(frame);
    descriptor.kind() == Some(Kind::Balloon) && descriptor.owner() == LISTED
}

/// Removes `frame`, which is in the list. `first` is the locked head of the list.
fn unlink(first: &mut Option<Frame>, frame: Frame) -> FrameRef {
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
    // SAFETY: the reference that `push` gave up for the list, which had the frame.
    unsafe { FrameRef::from_counted(frame) }
}

/// Exchanges the frames `from` of the balloon for frames of `to`, which the caller has allocated:
/// the host gets the new ones, and the old ones are freed. Skips frames of `from` that are not in
/// the list. Does nothing if the device is busy. May sleep for some milliseconds. The caller holds
/// no spin lock.
pub fn exchange(from: &[Frame], to: &[Frame]) -> Exchanged {
    if from.is_empty() {
        return Exchanged::default();
    }
    (HELPERS.exchange_ballooned)(from, to)
}
