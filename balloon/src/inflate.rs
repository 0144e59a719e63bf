//! Inflating and deflating (virtio 1.2, 5.5.6).
//!
//! A page on its way is in the batch of one of the two queues and nowhere else: not with the
//! source, not in the balloon. It leaves the batch when the device has acknowledged the request, or
//! with a reset.

use crate::balloon::Balloon;
use crate::config::{read_num_pages, write_actual};
use crate::error::{BalloonError, DeviceFault, QueueName};
use crate::features::Features;
use crate::page::{PageSource, Pfn};
use crate::queue::RequestQueue;
use core::cmp::{Ordering, min};
use core::ops::ControlFlow;
use core::ptr::NonNull;
use virtio_drivers::Hal;
use virtio_drivers::transport::Transport;

/// The most pages in one request: 1 MiB of memory, named by 1 KiB of numbers.
pub const PFNS_PER_REQUEST: usize = 256;

/// Bytes of the shared buffer of one queue.
pub(crate) const PFN_BUFFER_BYTES: usize = PFNS_PER_REQUEST * size_of::<u32>();

/// Ring size of the inflate and deflate queues: one request of one buffer is under way at a time.
const RING_SIZE: usize = 4;

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

/// One of the two queues, with the pages that are on their way through it.
pub(crate) struct Transfer<H: Hal> {
    requests: RequestQueue<H, RING_SIZE>,
    /// Where the device reads the page numbers.
    shared: NonNull<[u8]>,
    /// The same pages, where it cannot reach them. `held` of them are under way.
    batch: [Pfn; PFNS_PER_REQUEST],
    held: usize,
    /// The pages under way are already with the guest again: deflation without `MUST_TELL_HOST`.
    handed_over: bool,
}

impl<H: Hal> Transfer<H> {
    /// `shared`: [`PFN_BUFFER_BYTES`] that live as long as the transfer and are used by it alone.
    pub(crate) fn new(
        transport: &mut impl Transport,
        name: QueueName,
        index: u16,
        shared: NonNull<[u8]>,
    ) -> virtio_drivers::Result<Self> {
        assert_eq!(shared.len(), PFN_BUFFER_BYTES);
        Ok(Self {
            requests: RequestQueue::new(transport, name, index)?,
            shared,
            batch: [Pfn::default(); PFNS_PER_REQUEST],
            held: 0,
            handed_over: false,
        })
    }

    pub(crate) fn requests(&self) -> &RequestQueue<H, RING_SIZE> {
        &self.requests
    }

    pub(crate) fn requests_mut(&mut self) -> &mut RequestQueue<H, RING_SIZE> {
        &mut self.requests
    }

    /// Sends up to `limit` of the pages that `next` yields: how many. On an error the pages stay in
    /// the batch for the caller to take back with [`take_batch`](Self::take_batch).
    fn send(
        &mut self,
        transport: &mut impl Transport,
        limit: u32,
        mut next: impl FnMut() -> Option<Pfn>,
    ) -> Result<u32, BalloonError> {
        // Before any page is taken: a faulted queue is not worth it.
        self.requests.check()?;
        assert_eq!(self.held, 0, "one batch at a time");
        let limit = min(
            PFNS_PER_REQUEST,
            usize::try_from(limit).unwrap_or(usize::MAX),
        );
        let mut count = 0;
        for (slot, page) in self.batch[..limit]
            .iter_mut()
            .zip(core::iter::from_fn(&mut next))
        {
            *slot = page;
            self.held += 1;
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: the buffer is valid (see `new`), and the device holds no request that uses it,
        // since the batch was empty.
        let shared = unsafe { self.shared.as_mut() };
        let (entries, _) = shared.as_chunks_mut();
        for (entry, page) in entries.iter_mut().zip(&self.batch[..self.held]) {
            *entry = page.number().to_le_bytes();
        }
        let used = &shared[..self.held * size_of::<u32>()];
        // SAFETY: the buffer outlives the queue, and it is touched again only when the batch is
        // empty, which is when the request is back.
        unsafe { self.requests.submit(transport, &[used], &mut []) }?;
        Ok(count)
    }

    /// Whether the device has returned the batch; its pages are then for
    /// [`take_batch`](Self::take_batch).
    fn poll(&mut self) -> Result<bool, DeviceFault> {
        // SAFETY: valid memory, that only the device may be using: nothing is read through this
        // reference or written, it only names the buffer.
        let shared = unsafe { self.shared.as_ref() };
        let used = &shared[..self.held * size_of::<u32>()];
        // SAFETY: the same part of the same buffer as in `send`, since `held` has not changed.
        unsafe { self.requests.complete(&[used], &mut []) }
    }

    /// Empties the batch.
    fn take_batch(&mut self, mut each: impl FnMut(Pfn)) -> u32 {
        let mut count = 0;
        for &page in &self.batch[..self.held] {
            if !self.handed_over {
                each(page);
            }
            count += 1;
        }
        self.held = 0;
        self.handed_over = false;
        count
    }
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
            if self.inflate.requests.is_held() {
                break Stop::Waiting(QueueName::Inflate);
            }
            if self.deflate.requests.is_held() {
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
                if !self.deflate.requests.is_held() {
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
            for &page in &deflate.batch[..deflate.held] {
                pages.give_back(page);
            }
            deflate.handed_over = true;
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

    /// After a reset: the device holds nothing, all pages are the guest's again.
    pub(crate) fn release_pages(&mut self, pages: &mut impl PageSource) {
        self.inflate.take_batch(|page| pages.give_back(page));
        let leaving = self.deflate.take_batch(|page| pages.give_back(page));
        for _ in leaving..self.actual {
            let Some(page) = pages.recall() else { break };
            pages.give_back(page);
        }
        self.actual = 0;
    }
}
