//! eventfd: a counter that programs write and read.

use super::file::File;
use super::flags::OpenFlags;
use super::io::{ByteSink, ByteSource};
use super::poll::{Notifier, PollMask};
use alloc::sync::Arc;
use logic::errno::{Errno, SysResult};
use machine::sync::SpinLock;

/// The highest value that a write can reach.
const MAX: u64 = u64::MAX - 1;

/// The file of an eventfd.
#[derive(Debug)]
pub struct EventFile {
    count: SpinLock<u64>,
    /// Whether a read takes 1 instead of the whole count.
    semaphore: bool,
    notifier: Arc<Notifier>,
}

impl EventFile {
    /// Returns a counter that starts at `count`. With `semaphore` a read takes 1 instead of the
    /// whole count.
    pub fn new(count: u64, semaphore: bool) -> Self {
        Self {
            count: SpinLock::new(count),
            semaphore,
            notifier: Arc::new(Notifier::new()),
        }
    }

    fn take(&self) -> Option<u64> {
        let mut count = self.count.lock();
        if *count == 0 {
            return None;
        }
        let taken = if self.semaphore { 1 } else { *count };
        *count -= taken;
        Some(taken)
    }

    /// Adds 1 for a completed request. The count saturates at `u64::MAX`, which polls report as an
    /// error.
    pub fn signal(&self) {
        {
            let mut count = self.count.lock();
            *count = count.saturating_add(1);
        }
        self.notifier.notify(PollMask::READABLE);
    }

    fn add(&self, value: u64) -> bool {
        let mut count = self.count.lock();
        match count.checked_add(value) {
            Some(sum) if sum <= MAX => {
                *count = sum;
                true
            }
            _ => false,
        }
    }
}

impl File for EventFile {
    fn never_waits(&self, writing: bool) -> bool {
        !writing
    }
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        if to.room() < 8 {
            return Err(Errno::EINVAL);
        }
        let mut taken = self.take();
        if taken.is_none() {
            if flags.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            self.notifier.queue().wait(|| {
                taken = self.take();
                taken.is_some()
            })?;
        }
        self.notifier.notify(PollMask::WRITABLE);
        to.put(&taken.unwrap_or(0).to_le_bytes())
    }

    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, flags: OpenFlags) -> SysResult {
        let mut raw = [0; 8];
        if from.left() < raw.len() {
            return Err(Errno::EINVAL);
        }
        if from.take(&mut raw)? < raw.len() {
            return Err(Errno::EFAULT);
        }
        let value = u64::from_le_bytes(raw);
        if value > MAX {
            return Err(Errno::EINVAL);
        }
        if !self.add(value) {
            if flags.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            self.notifier.queue().wait(|| self.add(value))?;
        }
        self.notifier.notify(PollMask::READABLE);
        Ok(raw.len())
    }

    fn poll(&self) -> PollMask {
        let count = *self.count.lock();
        let mut mask = PollMask::empty();
        if count > 0 {
            mask |= PollMask::READABLE;
        }
        if count == u64::MAX {
            mask |= PollMask::ERR;
        }
        if count < MAX {
            mask |= PollMask::WRITABLE;
        }
        mask
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.notifier.clone())
    }
}
