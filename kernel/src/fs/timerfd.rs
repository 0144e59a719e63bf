//! timerfd: a timer that is read.
//!
//! No kernel timer stands behind it. Whoever waits for the file asks when it goes off
//! ([`TimerFile::due_at`]) and waits until then at most; setting the timer wakes him to ask again.

use super::file::File;
use super::flags::OpenFlags;
use super::io::ByteSink;
use super::poll::{Notifier, PollMask};
use alloc::sync::Arc;
use logic::errno::{Errno, SysResult};
use machine::arch::clock::{self, Nanos};
use machine::sync::SpinLock;

/// When a timer goes off.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// It has, at this time, and nobody has read it since.
    Now(Nanos),
    /// In the future.
    At(Nanos),
    /// It is not set, or was read and does not repeat.
    Never,
}

/// A timer's setting, in monotonic time.
#[derive(Copy, Clone, Debug, Default)]
pub struct Setting {
    /// The next time it goes off; `None` when it is not set.
    pub next: Option<Nanos>,
    /// What comes between two times; 0: it goes off once.
    pub interval: Nanos,
}

/// A timerfd's file.
#[derive(Debug)]
pub struct TimerFile {
    setting: SpinLock<Setting>,
    notifier: Arc<Notifier>,
    /// Given times count from 1970.
    pub realtime: bool,
}

impl TimerFile {
    /// A timer that is not set.
    pub fn new(realtime: bool) -> Self {
        Self {
            setting: SpinLock::new(Setting::default()),
            notifier: Arc::new(Notifier::new()),
            realtime,
        }
    }

    /// When it goes off.
    pub fn due_at(&self) -> Due {
        match self.setting.lock().next {
            None => Due::Never,
            Some(at) if at <= clock::now() => Due::Now(at),
            Some(at) => Due::At(at),
        }
    }

    /// Sets it and gives the old setting.
    pub fn set(&self, new: Setting) -> Setting {
        let old = core::mem::replace(&mut *self.setting.lock(), new);
        // Without a name for the change: whoever waits asks anew.
        self.notifier.notify(PollMask::empty());
        old
    }

    /// The setting, with `next` in the future where the timer repeats.
    pub fn get(&self) -> Setting {
        let mut setting = *self.setting.lock();
        let now = clock::now();
        if let Some(next) = setting.next
            && next <= now
        {
            setting.next = (setting.interval.0 > 0).then(|| {
                let missed = (now.0 - next.0) / setting.interval.0 + 1;
                Nanos(
                    next.0
                        .saturating_add(missed.saturating_mul(setting.interval.0)),
                )
            });
        }
        setting
    }

    /// Takes the number of times it went off since the last read.
    fn take(&self) -> Option<u64> {
        let mut setting = self.setting.lock();
        let now = clock::now();
        let next = setting.next.filter(|&next| next <= now)?;
        if setting.interval.0 == 0 {
            setting.next = None;
            return Some(1);
        }
        let times = (now.0 - next.0) / setting.interval.0 + 1;
        let step = times.saturating_mul(setting.interval.0);
        setting.next = Some(Nanos(next.0.saturating_add(step)));
        Some(times)
    }
}

impl File for TimerFile {
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        if to.room() < 8 {
            return Err(Errno::EINVAL);
        }
        loop {
            if let Some(times) = self.take() {
                return to.put(&times.to_le_bytes());
            }
            if flags.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            let before = *self.setting.lock();
            let changed = || self.setting.lock().next != before.next;
            match before.next {
                Some(at) => {
                    self.notifier.queue().wait_deadline(changed, at)?;
                }
                None => self.notifier.queue().wait(changed)?,
            }
        }
    }

    fn poll(&self) -> PollMask {
        match self.due_at() {
            Due::Now(_) => PollMask::READABLE,
            _ => PollMask::empty(),
        }
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.notifier.clone())
    }
}
