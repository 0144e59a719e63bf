use core::{ops::ControlFlow, ptr::NonNull};
use ebb_balloon::virtio_drivers::{Hal, transport::Transport};
use ebb_balloon::{Balloon, PageSource, ReportBatch, ReportError};
use ebb_mm::{FrameRange, ReportSink};

/// The balloon as the reporter's way to the host.
struct Host<H: Hal, T: Transport, P: PageSource> {
    balloon: Balloon<H, T, P::Page>,
    pages: P,                       // what the balloon is inflated with
    mapped: fn(u64) -> NonNull<u8>, // where a physical address is mapped
    wait: fn() -> ControlFlow<()>,  // sleeps until the interrupt; breaks when that takes too long
}

impl<H: Hal, T: Transport, P: PageSource> ReportSink for Host<H, T, P> {
    type Error = ReportError;

    fn report(&mut self, ranges: &[FrameRange]) -> Result<(), ReportError> {
        let mut batch = ReportBatch::new();
        for range in ranges {
            let start = (self.mapped)(range.start.address());
            // SAFETY: the caller keeps these frames out of the allocator until this returns.
            unsafe { batch.push(start, range.bytes() as usize) }.expect("a request fits a batch");
        }
        let result = self.balloon.report(&mut batch, self.wait);
        if self.balloon.ranges_held() != 0 {
            // It must let go of them before they are put back.
            self.balloon.reset(&mut self.pages).expect("a reset ends all that a device does");
        }
        result.map(drop)
    }
}
