//! Inflating and deflating (virtio 1.2, 5.5.6): [`Balloon::step`] and [`Balloon::deflate`].
//!
//! Pages go through the inflate and the deflate queue ([`crate::transfer`]), one batch at a time.

use crate::balloon::Balloon;
use crate::config::{read_num_pages, write_actual};
use crate::error::{BalloonError, QueueName};
use crate::features::Features;
use crate::page::{Ballooned, OwnedPage, PageSource};
use core::cmp::{Ordering, min};
use core::ops::ControlFlow;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

/// The result of a call of [`Balloon::step`]. Its numbers include pages of requests from earlier
/// calls that the device has finished since.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Number of 4 KiB pages that entered the balloon: the device acknowledged them.
    pub inflated: u32,
    /// Number of 4 KiB pages that left the balloon: the device acknowledged them.
    pub deflated: u32,
    /// Why the call ended.
    pub stop: Stop,
}

/// The reason why [`Balloon::step`] ended, and with it what to do next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stop {
    /// The balloon has the size that the device wants. Nothing is to be done until
    /// [`Work::TARGET`](crate::Work::TARGET).
    OnTarget,
    /// The budget is used up. Call again when convenient.
    BudgetSpent,
    /// The device has not finished a request of this queue. Call again after its interrupt, or
    /// later.
    Waiting(QueueName),
    /// The device wants more pages, but the page source has none to spare. Call again in a while.
    NothingToSpare {
        /// Pages that the device wants in addition.
        missing: u32,
    },
    /// The device wants fewer pages, but the page source remembers none in the balloon. Its record
    /// is wrong.
    NothingToRecall {
        /// Pages that the balloon has in excess of the target.
        excess: u32,
    },
}

impl<H: Hal, T: Transport, P: OwnedPage> Balloon<H, T, P> {
    /// Returns the number of 4 KiB pages that the device wants in the balloon. Reads it from the
    /// device. It can be any number, even one beyond the guest's memory.
    ///
    /// # Errors
    /// Fails if the configuration space could not be read or the device has been reset.
    pub fn target_pages(&self) -> Result<u32, BalloonError> {
        self.check_alive()?;
        Ok(read_num_pages(&self.transport)?)
    }

    /// Returns the number of 4 KiB pages in the balloon, as last written to the device: those whose
    /// inflation the device has acknowledged and whose deflation it has not. After a confirmed
    /// reset those that were not given back yet.
    #[must_use]
    pub fn actual_pages(&self) -> u32 {
        self.actual
    }

    /// Returns whether the device works on a request of inflation or deflation.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.inflate.requests().is_held() || self.is_deflating()
    }

    /// Returns whether the device works on a request of deflation.
    #[must_use]
    pub fn is_deflating(&self) -> bool {
        self.deflate.requests().is_held()
    }

    /// Moves pages into or out of the balloon towards the size that the device wants. Sends at most
    /// `budget` pages of 4 KiB to the device. Never waits: if the device has not finished a
    /// request, it stays in flight. Call this when [`ack_interrupt`] or [`completed`] report work
    /// for it, and again as [`Stop`] says.
    ///
    /// Returns the numbers of pages that the device has acknowledged, also those of earlier
    /// requests, and the reason for stopping.
    ///
    /// [`ack_interrupt`]: Self::ack_interrupt
    /// [`completed`]: Self::completed
    ///
    /// # Errors
    /// Fails if the device broke the protocol, a request could not be queued
    /// ([`BalloonError::Queue`]), its configuration space could not be accessed, or it has been
    /// reset. Pages that moved before the failure are accounted for. Pages that could not be sent
    /// go back to where they came from.
    pub fn step(
        &mut self,
        pages: &mut impl PageSource<Page = P>,
        budget: u32,
    ) -> Result<Progress, BalloonError> {
        self.check_alive()?;
        let mut inflated = self.finish_inflation(pages)?;
        let mut deflated = self.finish_deflation(pages)?;
        let mut left = budget;
        // Each round reduces `left` by at least one page, or ends the loop.
        let stop = loop {
            if self.inflate.requests().is_held() {
                break Stop::Waiting(QueueName::Inflate);
            }
            if self.deflate.requests().is_held() {
                break Stop::Waiting(QueueName::Deflate);
            }
            // Read once a round, since the device may change it at any time.
            let target = read_num_pages(&self.transport)?;
            let difference = target.abs_diff(self.actual);
            let sent = match target.cmp(&self.actual) {
                Ordering::Equal => break Stop::OnTarget,
                _ if left == 0 => break Stop::BudgetSpent,
                Ordering::Greater => self.start_inflation(pages, min(difference, left))?,
                Ordering::Less => self.start_deflation(pages, min(difference, left))?,
            };
            if sent == 0 {
                break if target > self.actual {
                    Stop::NothingToSpare {
                        missing: difference,
                    }
                } else {
                    Stop::NothingToRecall { excess: difference }
                };
            }
            left -= sent;
            inflated += self.finish_inflation(pages)?;
            deflated += self.finish_deflation(pages)?;
        };
        Ok(Progress {
            inflated,
            deflated,
            stop,
        })
    }

    /// Takes up to `pages_wanted` pages of 4 KiB out of the balloon because the guest has run out
    /// of memory. Returns the number of pages that the guest got. With `MUST_TELL_HOST`, pages of
    /// an earlier request that finishes during the call count, too. Returns fewer if the page
    /// source remembers no more. Allocates nothing.
    ///
    /// Calls `wait` while the device works on a request. If `wait` returns `Break`, the call ends
    /// with the pages released so far, and a later call or [`step`](Self::step) finishes the
    /// request. Without the feature `DEFLATE_ON_OOM`, takes only pages beyond the size that the
    /// device wants.
    ///
    /// # Errors
    /// Fails like [`step`](Self::step), and with [`BalloonError::DeflateNotAllowed`] if the device
    /// wants all pages, `DEFLATE_ON_OOM` was not negotiated and `pages_wanted` is not 0. An error
    /// after pages were released ends the call with their number. The next call meets it again.
    pub fn deflate(
        &mut self,
        pages: &mut impl PageSource<Page = P>,
        pages_wanted: u32,
        mut wait: impl FnMut() -> ControlFlow<()>,
    ) -> Result<u32, BalloonError> {
        self.check_alive()?;
        let mut left = pages_wanted;
        if !self.features.contains(Features::DEFLATE_ON_OOM) && left > 0 {
            let target = read_num_pages(&self.transport)?;
            let actual = self.actual;
            left = min(left, actual.saturating_sub(target));
            if left == 0 {
                return Err(BalloonError::DeflateNotAllowed { actual, target });
            }
        }
        // Without MUST_TELL_HOST the guest owns the pages as soon as the request is sent.
        let at_once = !self.features.contains(Features::MUST_TELL_HOST);
        let mut released = 0;
        // Each round sends at least one page, or ends the loop.
        loop {
            loop {
                let finished = match self.finish_deflation(pages) {
                    Err(_) if released > 0 => return Ok(released),
                    finished => finished?,
                };
                if !at_once {
                    released += finished;
                }
                if !self.deflate.requests().is_held() {
                    break;
                }
                if left == 0 && at_once || wait().is_break() {
                    return Ok(released);
                }
            }
            let sent = if left == 0 {
                0
            } else {
                match self.start_deflation(pages, left) {
                    Err(_) if released > 0 => return Ok(released),
                    sent => sent?,
                }
            };
            if sent == 0 {
                return Ok(released);
            }
            left -= sent;
            if at_once {
                released += sent;
            }
        }
    }

    /// Sends up to `limit` spare pages to the inflate queue and returns their number. On an error
    /// the pages go back to `pages`.
    pub(crate) fn start_inflation(
        &mut self,
        pages: &mut impl PageSource<Page = P>,
        limit: u32,
    ) -> Result<u32, BalloonError> {
        let Self {
            transport, inflate, ..
        } = self;
        inflate.requests_mut().check()?;
        let sent = inflate.send(transport, limit, || pages.take_spare().map(Ballooned::new));
        if sent.is_err() {
            inflate.take_batch(|page| pages.give_back(page.into_page()));
        }
        sent
    }

    /// Puts the pages of a finished inflate request on record and returns their number; 0 if no
    /// request has finished.
    fn finish_inflation(
        &mut self,
        pages: &mut impl PageSource<Page = P>,
    ) -> Result<u32, BalloonError> {
        if !self.inflate.poll()? {
            return Ok(0);
        }
        let count = self.inflate.take_batch(|page| pages.remember(page));
        self.actual = self.actual.saturating_add(count);
        write_actual(&mut self.transport, self.actual)?;
        Ok(count)
    }

    /// Sends up to `limit` pages of the balloon to the deflate queue and returns their number.
    /// Gives them to the guest at once if `MUST_TELL_HOST` was not negotiated. On an error the
    /// pages stay in the balloon.
    pub(crate) fn start_deflation(
        &mut self,
        pages: &mut impl PageSource<Page = P>,
        limit: u32,
    ) -> Result<u32, BalloonError> {
        let Self {
            transport, deflate, ..
        } = self;
        deflate.requests_mut().check()?;
        let sent = deflate.send(transport, limit, || pages.recall());
        if sent.is_err() {
            deflate.take_batch(|page| pages.remember(page));
        } else if !self.features.contains(Features::MUST_TELL_HOST) {
            deflate.hand_over(|page| pages.give_back(page.into_page()));
        }
        sent
    }

    /// Gives the pages of a finished deflate request to the guest and returns their number; 0 if no
    /// request has finished.
    pub(crate) fn finish_deflation(
        &mut self,
        pages: &mut impl PageSource<Page = P>,
    ) -> Result<u32, BalloonError> {
        if !self.deflate.poll()? {
            return Ok(0);
        }
        let count = self
            .deflate
            .take_batch(|page| pages.give_back(page.into_page()));
        self.actual = self.actual.saturating_sub(count);
        write_actual(&mut self.transport, self.actual)?;
        Ok(count)
    }
}
