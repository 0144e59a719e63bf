//! Exchanging pages of the balloon for others: [`Balloon::start_exchange`] and
//! [`Balloon::poll_exchange`].

use crate::balloon::Balloon;
use crate::config::write_actual;
use crate::error::BalloonError;
use crate::page::{OwnedPage, PageSource};
use crate::transfer::RequestNumber;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

/// An exchange of pages that [`Balloon::start_exchange`] has started.
///
/// Its two requests belong to the driver, so a caller may drop this value at any time. The next
/// calls of [`Balloon::step`] then finish the request in flight and bring the balloon to the size
/// that the device wants.
#[derive(Debug)]
#[must_use = "`poll_exchange` continues it"]
pub struct Exchange {
    stage: Stage,
    entered: u32,
    left: u32,
}

/// The request of an exchange that is in flight.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The spare pages, on their way into the balloon.
    Entering(RequestNumber),
    /// The old pages, on their way out of the balloon.
    Leaving(RequestNumber),
    /// None.
    Ended,
}

impl Exchange {
    /// Returns the number of spare pages that [`Balloon::poll_exchange`] has put on record as pages
    /// of the balloon.
    #[must_use]
    pub fn entered(&self) -> u32 {
        self.entered
    }

    /// Returns the number of old pages that were sent out of the balloon. At most
    /// [`entered`](Self::entered).
    #[must_use]
    pub fn left(&self) -> u32 {
        self.left
    }
}

impl<H: Hal, T: Transport, P: OwnedPage> Balloon<H, T, P> {
    /// Starts to exchange up to `limit` pages of the balloon for spare ones, so that the guest can
    /// use the memory of the old ones: inflates pages of [`PageSource::take_spare`], in one
    /// request. Allocates nothing and does not wait. Returns `None` if the device works on another
    /// request, or if there is no spare page. Also finishes a deflation that the device has
    /// returned: [`deflate`](Self::deflate) may leave one in flight.
    ///
    /// # Errors
    /// Fails if the device broke the protocol, the request could not be queued, or the device has
    /// been reset. Pages that could not be sent go back to `pages`.
    pub fn start_exchange(
        &mut self,
        pages: &mut impl PageSource<Page = P>,
        limit: u32,
    ) -> Result<Option<Exchange>, BalloonError> {
        self.check_alive()?;
        self.finish_deflation(pages)?;
        if self.is_busy() || self.start_inflation(pages, limit)? == 0 {
            return Ok(None);
        }
        Ok(Some(Exchange {
            stage: Stage::Entering(self.inflate.last_request()),
            entered: 0,
            left: 0,
        }))
    }

    /// Continues `exchange`. Once the device has taken the spare pages, deflates as many of
    /// [`PageSource::recall`], in one request. Allocates nothing and does not wait. Returns whether
    /// the exchange has ended; otherwise the device works on its request.
    ///
    /// Other calls may come between two polls. If [`step`](Self::step) has finished the inflation,
    /// the exchange ends and no old page leaves. The same holds if a request of
    /// [`deflate`](Self::deflate) is in flight when the inflation finishes. The balloon is then
    /// larger until `step` has brought it back to the size that the device wants.
    ///
    /// # Errors
    /// Fails if the device broke the protocol, the deflation could not be queued, the configuration
    /// space could not be accessed, or the device has been reset. Pages that entered the balloon
    /// before are accounted for.
    pub fn poll_exchange(
        &mut self,
        exchange: &mut Exchange,
        pages: &mut impl PageSource<Page = P>,
    ) -> Result<bool, BalloonError> {
        self.check_alive()?;
        if let Stage::Entering(request) = exchange.stage {
            if !self.inflate.holds(request) {
                exchange.stage = Stage::Ended;
                return Ok(true);
            }
            if !self.inflate.poll()? {
                return Ok(false);
            }
            exchange.stage = Stage::Ended;
            exchange.entered = self.inflate.take_batch(|page| pages.remember(page));
            self.actual = self.actual.saturating_add(exchange.entered);
            // The device learns of the new size when the old pages have left, or if they do not.
            let left = if self.is_deflating() {
                Ok(0)
            } else {
                self.start_deflation(pages, exchange.entered)
            };
            exchange.left = *left.as_ref().unwrap_or(&0);
            if exchange.left != exchange.entered {
                write_actual(&mut self.transport, self.actual)?;
            }
            if left? == 0 {
                return Ok(true);
            }
            exchange.stage = Stage::Leaving(self.deflate.last_request());
        }
        let Stage::Leaving(request) = exchange.stage else {
            return Ok(true);
        };
        if self.deflate.holds(request) && self.finish_deflation(pages)? == 0 {
            return Ok(false);
        }
        exchange.stage = Stage::Ended;
        Ok(true)
    }
}
