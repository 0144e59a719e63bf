//! Sends the free memory that [`Reporter`] and [`Hinter`] isolate to a device.
//!
//! After the ranges go the pages with the descriptors of their frames. The descriptors of free
//! frames are zero, and pages that the host has dropped read as zero.

use super::allocator::allocator;
use super::isolated::{self, Failed, Isolated};
use super::memmap::descriptor_pages;
use core::time::Duration;
use ebb_balloon::MAX_RANGES;
use ebb_mm::{Frame, FrameRange, HintList, Hinter, Poll, ReportSink, Reporter};

/// A device that reports memory to the host.
pub trait ReportDevice {
    /// The error of a report that failed.
    type Error;

    /// Reports `ranges`, from 1 to [`MAX_RANGES`], and returns when the host is done with them. The
    /// ranges are not lent any more then. Their contents are lost.
    ///
    /// # Errors
    /// Fails if the host did not take the ranges. If they are still lent, they are never used
    /// again.
    fn send(&mut self, ranges: &mut Isolated<'_>) -> Result<(), Self::Error>;

    /// Called when ranges are back in the allocator. Other threads may run now.
    fn give_way(&mut self);
}

/// A device as the receiver of reports. Private, so that all ranges come from the allocator.
struct Sink<'a, D>(&'a mut D);

impl<D: ReportDevice> ReportSink for Sink<'_, D> {
    type Error = Failed<D::Error>;

    /// Reports the ranges, and then the pages with the descriptors of their frames. Fails if a part
    /// of `ranges` cannot be reported. Also fails if a report of descriptors fails and the host may
    /// still drop those pages later.
    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), Self::Error> {
        let mut descriptors = [FrameRange::new(Frame::new(0), 0); MAX_RANGES];
        for part in ranges.chunks(MAX_RANGES) {
            // SAFETY: the allocator, the only caller, has isolated the ranges until this returns,
            // and never puts them back if `may_drop_later` is true for the error.
            unsafe { isolated::report(part, |ranges| self.0.send(ranges)) }?;
            let mut runs = part.iter().flat_map(|&range| descriptor_pages(range));
            loop {
                let mut count = 0;
                for (place, pages) in descriptors.iter_mut().zip(&mut runs) {
                    *place = pages;
                    count += 1;
                }
                if count == 0 {
                    break;
                }
                let pages = &descriptors[..count];
                // SAFETY: the descriptors in these pages are those of isolated frames alone, so
                // they are zero and stay so. They are never used again if the frames are not.
                let sent = unsafe { isolated::report(pages, |ranges| self.0.send(ranges)) };
                // The host has the frames already, so it does no harm if the report of their
                // descriptors fails. But if the host may drop the descriptors later, when the
                // frames are in use again, the error must reach the caller.
                match sent {
                    Ok(()) => {}
                    Err(failed) if failed.may_drop_later => return Err(failed),
                    Err(_) => break,
                }
            }
        }
        Ok(())
    }

    fn may_drop_later(failed: &Self::Error) -> bool {
        failed.may_drop_later
    }

    fn give_way(&mut self) {
        self.0.give_way();
    }
}

/// Does what [`Reporter::poll`] does, with the kernel's allocator. Reports to `device`. `now` is
/// the time of any clock that does not run backwards.
pub fn poll<D: ReportDevice>(
    reporter: &mut Reporter,
    now: Duration,
    device: &mut D,
) -> Poll<D::Error> {
    plain(reporter.poll(now, allocator(), &mut Sink(device)))
}

/// Does what [`Reporter::pass_now`] does, with the kernel's allocator. Reports to `device`. The
/// `bool` is `true` if every pageblock was examined.
pub fn pass_now<D: ReportDevice>(
    reporter: &mut Reporter,
    device: &mut D,
) -> (Poll<D::Error>, bool) {
    let (poll, done) = reporter.pass_now(allocator(), &mut Sink(device));
    (plain(poll), done)
}

/// Does what [`Hinter::poll`] does, with the kernel's allocator and the hints in `lists`. Reports
/// to `device`. `threshold` is the number of ranges that are worth a request. `now` is the time of
/// any clock that does not run backwards.
pub fn poll_hinter<D: ReportDevice>(
    hinter: &mut Hinter,
    now: Duration,
    lists: &[HintList],
    threshold: usize,
    device: &mut D,
) -> Poll<D::Error> {
    plain(hinter.poll(now, allocator(), lists, threshold, &mut Sink(device)))
}

/// Returns `poll` with the device's error.
fn plain<E>(poll: Poll<Failed<E>>) -> Poll<E> {
    Poll {
        next: poll.next,
        requests: poll.requests,
        ranges: poll.ranges,
        frames: poll.frames,
        error: poll.error.map(|failed| failed.error),
    }
}
