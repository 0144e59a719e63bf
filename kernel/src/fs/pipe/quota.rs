//! The limits on pipes: `fs.pipe-max-size`, `fs.pipe-user-pages-soft` and `-hard`.
//!
//! Each user's pipes count with their capacities. FIFOs do not count, as several users may have one
//! open.

use alloc::collections::BTreeMap;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::Errno;
use machine::memory::PAGE_SIZE;
use machine::sync::SpinLock;

/// The most bytes that any pipe can hold.
pub(super) const MAX_CAPACITY: usize = 1 << 20;

/// The value of a limit that programs can change, with its upper bound.
#[derive(Debug)]
pub struct Limit {
    value: AtomicU64,
    most: u64,
}

impl Limit {
    const fn new(value: u64, most: u64) -> Self {
        Self {
            value: AtomicU64::new(value),
            most,
        }
    }

    /// Returns the current value of the limit.
    pub fn get(&self) -> u64 {
        // Relaxed: the value orders no other access.
        self.value.load(Ordering::Relaxed)
    }

    /// Sets the limit to `value`.
    ///
    /// # Errors
    /// Fails with `EINVAL` if `value` is too large.
    pub fn set(&self, value: u64) -> Result<(), Errno> {
        if value > self.most {
            return Err(Errno::EINVAL);
        }
        self.value.store(value, Ordering::Relaxed);
        Ok(())
    }
}

/// The most bytes that a pipe can be set to hold without `CAP_SYS_RESOURCE`.
pub static PIPE_MAX_SIZE: Limit = Limit::new(MAX_CAPACITY as u64, 1 << 31);
/// The number of pages of a user's pipes above which new pipes are small and none can grow. 0 means
/// no limit.
pub static PIPE_PAGES_SOFT: Limit = Limit::new(16384, i64::MAX as u64);
/// The number of pages of a user's pipes above which no pipe can be created or grow. 0 means no
/// limit.
pub static PIPE_PAGES_HARD: Limit = Limit::new(0, i64::MAX as u64);

/// The bytes of a pipe that is created beyond the soft limit.
const SMALL_CAPACITY: usize = 2 * PAGE_SIZE;

/// The task that creates or changes a pipe.
#[derive(Copy, Clone, Debug)]
pub struct Maker {
    /// The real user.
    pub user: u32,
    /// Whether `fs.pipe-max-size` applies to the task.
    pub size_limited: bool,
    /// Whether the limits on pages apply to the task.
    pub pages_limited: bool,
}

/// The number of pages of each user's pipes. Users without pipes have no entry.
static USERS: SpinLock<BTreeMap<u32, u64>> = SpinLock::new(BTreeMap::new());

fn pages(bytes: usize) -> u64 {
    (bytes / PAGE_SIZE) as u64
}

/// Returns whether `pages` is above `limit`. A limit of 0 means none.
fn exceeds(pages: u64, limit: &Limit) -> bool {
    let limit = limit.get();
    limit != 0 && pages > limit
}

/// The pages that a pipe counts for its user. The drop subtracts them.
#[derive(Debug)]
pub(super) struct Charge {
    user: u32,
    pages: u64,
}

impl Charge {
    /// Adds `pages` for `user`. Returns the sum.
    fn add(user: u32, pages: u64) -> u64 {
        let mut users = USERS.lock();
        let sum = users.entry(user).or_default();
        *sum += pages;
        *sum
    }

    fn subtract(user: u32, pages: u64) {
        let mut users = USERS.lock();
        if let Some(sum) = users.get_mut(&user) {
            *sum = sum.saturating_sub(pages);
            if *sum == 0 {
                users.remove(&user);
            }
        }
    }

    /// Counts a new pipe that would hold `capacity` bytes. Returns the charge, and the number of
    /// bytes that the limits let the pipe hold.
    ///
    /// # Errors
    /// Fails with `ENFILE` if the user is beyond the hard limit.
    pub(super) fn take(maker: Maker, capacity: usize) -> Result<(Self, usize), Errno> {
        let most = usize::try_from(PIPE_MAX_SIZE.get()).unwrap_or(capacity);
        let mut capacity = if maker.size_limited {
            capacity.min(most)
        } else {
            capacity
        };
        let mut sum = Self::add(maker.user, pages(capacity));
        if maker.pages_limited && exceeds(sum, &PIPE_PAGES_SOFT) && capacity > SMALL_CAPACITY {
            let less = pages(capacity - SMALL_CAPACITY);
            Self::subtract(maker.user, less);
            sum -= less;
            capacity = SMALL_CAPACITY;
        }
        let charge = Self {
            user: maker.user,
            pages: pages(capacity),
        };
        if maker.pages_limited && exceeds(sum, &PIPE_PAGES_HARD) {
            return Err(Errno::ENFILE);
        }
        Ok((charge, capacity))
    }

    /// Changes the charge to a pipe that holds `capacity` bytes. The charge stays with the user
    /// that created the pipe.
    ///
    /// # Errors
    /// Fails with `EPERM` if the pipe grows and the user is beyond a limit that applies to `maker`.
    pub(super) fn change(&mut self, maker: Maker, capacity: usize) -> Result<(), Errno> {
        let wanted = pages(capacity);
        let sum = Self::add(self.user, wanted);
        let after = sum.saturating_sub(self.pages);
        let limited = exceeds(after, &PIPE_PAGES_SOFT) || exceeds(after, &PIPE_PAGES_HARD);
        if wanted > self.pages && maker.pages_limited && limited {
            Self::subtract(self.user, wanted);
            return Err(Errno::EPERM);
        }
        Self::subtract(self.user, self.pages);
        self.pages = wanted;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        Self::subtract(self.user, self.pages);
    }
}
