//! Inflating and deflating (virtio 1.2, 5.5.6): what [`Balloon::step`] and [`Balloon::deflate`] do.
//!
//! Pages go through two queues ([`crate::transfer`]), one batch at a time.

use crate::balloon::Balloon;
use crate::config::{read_num_pages, write_actual};
use crate::error::{BalloonError, QueueName};
use crate::features::Features;
use crate::page::PageSource;
use core::cmp::{Ordering, min};
use core::ops::ControlFlow;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

/// What a call of [`Balloon::step`] did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Pages that came into the balloon.
    pub inflated: u32,
    /// Pages that left the balloon.
    pub deflated: u32,
    /// Why it went no further.
    pub stop: Stop,
}

/// Why [`Balloon::step`] went no further.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stop {
    /// The balloon has the size that the device wants. Nothing to do until
    /// [`Work::TARGET`](crate::Work::TARGET).
    OnTarget,
    /// The budget is spent: call again when convenient.
    BudgetSpent,
    /// The device works on a request of this queue: call again after its interrupt, or later.
    Waiting(QueueName),
    /// The device wants more, but the guest has no page to spare: try again in a while.
    NothingToSpare {
        /// Pages that are missing.
        missing: u32,
    },
    /// The device lets pages go, but the source has no record of any: its record is wrong.
    NothingToRecall {
        /// Pages that should be there.
        excess: u32,
    },
}

impl<H: Hal, T: Transport> Balloon<H, T> {
    /// The number of pages that the device wants in the balloon: any number, also one beyond the
    /// guest's memory.
    ///
    /// # Errors
    /// The configuration space could not be read, or the device has been reset.
    pub fn target_pages(&self) -> Result<u32, BalloonError> {
        self.check_alive()?;
        Ok(read_num_pages(&self.transport)?)
    }

    /// The number of pages in the balloon, as last told to the device.
    #[must_use]
    pub fn actual_pages(&self) -> u32 {
        self.actual
    }

    /// Brings the balloon towards the size that the device wants, by at most `budget` pages, and
    /// never waits: what stopped it is in the result. Call it when [`ack_interrupt`] or
    /// [`completed`] say so, and again as [`Stop`] advises.
    ///
    /// [`ack_interrupt`]: Self::ack_interrupt
    /// [`completed`]: Self::completed
    ///
    /// # Errors
    /// The device broke the protocol, its configuration space failed, or it has been reset. Pages
    /// that moved before that are accounted for.
    pub fn step(
        &mut self,
        pages: &mut impl PageSource,
        budget: u32,
    ) -> Result<Progress, BalloonError> {
        self.check_alive()?;
        let mut inflated = self.finish_inflation(pages)?;
        let mut deflated = self.finish_deflation(pages)?;
        let mut left = budget;
        // Each round moves a page out of `left` or ends.
        let stop = loop {
            if self.inflate.requests().is_held() {
                break Stop::Waiting(QueueName::Inflate);
            }
            if self.deflate.requests().is_held() {
                break Stop::Waiting(QueueName::Deflate);
            }
            // Read once a round: the device may change it at any time.
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

    /// Takes up to `pages_wanted` pages out of the balloon because the guest has run out of memory,
    /// and says how many the guest got. Nothing is allocated. `wait` is called while the device
    /// works on a request; when it breaks, the call ends with what there is so far, and a later
    /// call or [`step`](Self::step) finishes the request.
    ///
    /// Without `DEFLATE_ON_OOM` only pages that the device does not want any more are taken.
    ///
    /// # Errors
    /// As [`step`](Self::step), and [`BalloonError::DeflateNotAllowed`].
    pub fn deflate(
        &mut self,
        pages: &mut impl PageSource,
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
        // Without MUST_TELL_HOST the guest has the pages as soon as they are sent.
        let at_once = !self.features.contains(Features::MUST_TELL_HOST);
        let mut released = 0;
        // Each round sends at least one page, or ends.
        loop {
            loop {
                let finished = self.finish_deflation(pages)?;
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
                self.start_deflation(pages, left)?
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

    fn start_inflation(
        &mut self,
        pages: &mut impl PageSource,
        limit: u32,
    ) -> Result<u32, BalloonError> {
        let Self {
            transport, inflate, ..
        } = self;
        let sent = inflate.send(transport, limit, || pages.take_spare());
        if sent.is_err() {
            inflate.take_batch(|page| pages.give_back(page));
        }
        sent
    }

    fn finish_inflation(&mut self, pages: &mut impl PageSource) -> Result<u32, BalloonError> {
        if !self.inflate.poll()? {
            return Ok(0);
        }
        let count = self.inflate.take_batch(|page| pages.remember(page));
        self.actual = self.actual.saturating_add(count);
        write_actual(&mut self.transport, self.actual)?;
        Ok(count)
    }

    fn start_deflation(
        &mut self,
        pages: &mut impl PageSource,
        limit: u32,
    ) -> Result<u32, BalloonError> {
        let Self {
            transport, deflate, ..
        } = self;
        let sent = deflate.send(transport, limit, || pages.recall());
        if sent.is_err() {
            deflate.take_batch(|page| pages.remember(page));
        } else if !self.features.contains(Features::MUST_TELL_HOST) {
            deflate.hand_over(|page| pages.give_back(page));
        }
        sent
    }

    fn finish_deflation(&mut self, pages: &mut impl PageSource) -> Result<u32, BalloonError> {
        if !self.deflate.poll()? {
            return Ok(0);
        }
        let count = self.deflate.take_batch(|page| pages.give_back(page));
        self.actual = self.actual.saturating_sub(count);
        write_actual(&mut self.transport, self.actual)?;
        Ok(count)
    }
}
