//! Waits for the events of an epoll set.

use super::Epoll;
use super::item::{CONTROL, Event, Item};
use crate::fs::poll::PollMask;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general::{EPOLLET, EPOLLONESHOT};
use logic::errno::{Errno, SysResult};
use machine::arch::clock::Nanos;
use machine::sync::WaitEnd;

/// The number of items that a wait takes from the ready list together.
const BATCH: usize = 8;
/// Items that a wait has taken from the ready list.
type Batch = [Option<Arc<Item>>; BATCH];

impl Epoll {
    /// Takes up to `most` items from the ready list, but none that was added after the first call
    /// with the same `left`. Returns their number.
    fn take(&self, batch: &mut Batch, most: usize, left: &mut Option<usize>) -> usize {
        let mut state = self.state.lock();
        let left = left.get_or_insert(state.ready.len());
        let mut count = 0;
        for place in batch.iter_mut().take(most) {
            *place = state.next(left);
            if place.is_none() {
                break;
            }
            count += 1;
        }
        if count != 0 {
            // Relaxed: under the lock.
            self.takers.fetch_add(1, Ordering::Relaxed);
        }
        count
    }

    /// Ends a successful `take`: puts the items that are left in `batch` back on the ready list.
    fn put_back(&self, batch: &mut Batch) {
        let mut missed = false;
        if batch.iter().any(Option::is_some) {
            let mut state = self.state.lock();
            for item in batch.iter_mut().filter_map(Option::take) {
                state.queue(item);
            }
            missed = core::mem::take(&mut state.missed);
        }
        // Relaxed: a thread that still sees this wait only reports an unneeded miss.
        self.takers.fetch_sub(1, Ordering::Relaxed);
        if missed {
            self.notifier.notify(PollMask::READABLE);
        }
    }

    /// Returns whether the ready list has items. If not, notes a miss while another wait holds
    /// items.
    fn has_ready(&self) -> bool {
        let mut state = self.state.lock();
        if !state.ready.is_empty() {
            return true;
        }
        // Relaxed: incremented under the lock.
        if self.takers.load(Ordering::Relaxed) != 0 {
            state.missed = true;
        }
        false
    }

    /// Passes up to `most` events to `give`, some at a time, without waiting. Returns their number.
    ///
    /// # Errors
    /// Fails with the error of `give` for the first events. Events that it refuses stay in the set.
    fn collect(
        &self,
        most: usize,
        give: &mut impl FnMut(usize, &[Event]) -> Result<(), Errno>,
    ) -> SysResult {
        let mut done = 0;
        let mut left = None;
        let mut batch = Batch::default();
        while done < most {
            let count = self.take(&mut batch, most - done, &mut left);
            if count == 0 {
                break;
            }
            let mut events = [Event::default(); BATCH];
            let mut interests = [0; BATCH];
            let mut found = 0;
            for (place, interest) in batch[..count].iter_mut().zip(&mut interests) {
                let Some(item) = place.as_deref() else {
                    continue;
                };
                // A file that is being closed leaves the set by that.
                let file = item.file.upgrade();
                match file.and_then(|file| item.report(&file)) {
                    Some((event, asked)) => {
                        events[found] = event;
                        found += 1;
                        *interest = asked;
                    }
                    None => *place = None,
                }
            }
            let given = if found == 0 {
                Ok(())
            } else {
                give(done, &events[..found])
            };
            if let Err(error) = given {
                for (place, asked) in batch.iter().zip(interests) {
                    let Some(item) = place else { continue };
                    let mut interest = item.interest.lock();
                    if interest.events & !CONTROL == 0 {
                        // The one-shot item was spent, but its event was not delivered.
                        interest.events = asked;
                    }
                }
                self.put_back(&mut batch);
                return if done == 0 { Err(error) } else { Ok(done) };
            }
            for (place, asked) in batch.iter_mut().zip(interests) {
                if asked & (EPOLLONESHOT | EPOLLET) != 0 {
                    *place = None;
                }
            }
            self.put_back(&mut batch);
            done += found;
        }
        Ok(done)
    }

    /// Returns whether the file of any item is ready. Takes items whose files are not ready off the
    /// ready list.
    pub(super) fn any_ready(&self) -> bool {
        let mut left = None;
        let mut batch = Batch::default();
        while self.take(&mut batch, 1, &mut left) != 0 {
            let item = batch[0].take();
            let file = item.as_ref().and_then(|item| item.file.upgrade());
            let is_ready = match (&item, &file) {
                (Some(item), Some(file)) => {
                    let asked = item.interest.lock().events & !CONTROL;
                    asked != 0 && file.file().poll().bits() & asked != 0
                }
                // As in `collect`, a file that is being closed.
                _ => false,
            };
            if is_ready {
                batch[0] = item;
            }
            self.put_back(&mut batch);
            if is_ready {
                return true;
            }
        }
        false
    }

    /// Waits until events are ready or `deadline` has passed. With `None` for `deadline`, waits
    /// without a limit. Passes up to `most` events to `give` in batches. The first argument of
    /// `give` is the number of events in earlier batches. Returns the number of events, which is 0
    /// at the deadline.
    ///
    /// # Errors
    /// Fails with `EINTR` if a signal came, and with the error of `give` for the first batch.
    pub fn wait(
        &self,
        most: usize,
        deadline: Option<Nanos>,
        mut give: impl FnMut(usize, &[Event]) -> Result<(), Errno>,
    ) -> SysResult {
        loop {
            let timer = self.next_timer();
            let count = self.collect(most, &mut give)?;
            let over = deadline.is_some_and(|deadline| deadline <= machine::arch::clock::now());
            if count != 0 || over {
                return Ok(count);
            }
            let queue = self.notifier.queue();
            let wake_at = match (deadline, timer) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let ended = match wake_at {
                Some(deadline) => queue.wait_deadline(|| self.has_ready(), deadline),
                None => queue.wait(|| self.has_ready()).map(|()| WaitEnd::Ready),
            };
            // At the deadline the loop looks once more and ends.
            let _: WaitEnd = ended.map_err(|_| Errno::EINTR)?;
        }
    }
}
