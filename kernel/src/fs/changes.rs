//! Files that notify pollers when their content has changed: the lists of mounts, and the names of
//! the machine.

use super::knob::Input;
use super::poll::{Notifier, PollMask};
use super::synthetic::Content;
use super::text::Text;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use logic::errno::{Errno, SysResult};
use machine::sync::Once;

/// A count of changes, and the notifier of the tasks that wait for the next one.
pub struct Changes {
    count: AtomicU64,
    /// The notifier of the pollers. Empty until the first open file requests it.
    notifier: Once<Arc<Notifier>>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Changes {
    /// Returns a counter without changes.
    pub const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            notifier: Once::new(),
        }
    }

    fn count(&self) -> u64 {
        // Acquire: pairs with the Release in `note`.
        self.count.load(Ordering::Acquire)
    }

    /// Counts a change and notifies pollers. Call this after the change, without a lock.
    pub fn note(&self) {
        // Release: a task that sees the count sees the change.
        self.count.fetch_add(1, Ordering::Release);
        if let Some(notifier) = self.notifier.get() {
            notifier.notify(PollMask::ERR | PollMask::PRI);
        }
    }

    fn notifier(&self) -> Arc<Notifier> {
        match self.notifier.get() {
            Some(notifier) => notifier.clone(),
            None => {
                let fresh = Arc::new(Notifier::new());
                self.notifier.get_or_init(|| fresh).clone()
            }
        }
    }
}

/// A file that notifies pollers when its content has changed, which [`Changes`] counts. Each open
/// file reports a change once.
pub struct Watched {
    content: Arc<dyn Content>,
    changes: &'static Changes,
    /// The readiness that an open file reports while it has no unreported change.
    quiet: PollMask,
}

impl Watched {
    /// Returns a file that shows `content`, whose changes `changes` counts. `quiet` is the
    /// readiness of an open file that has reported all changes.
    pub fn new(content: Arc<dyn Content>, changes: &'static Changes, quiet: PollMask) -> Self {
        Self {
            content,
            changes,
            quiet,
        }
    }

    /// Opens the file. The open file reports the changes from now on.
    pub fn opened(self) -> Arc<dyn Content> {
        Arc::new(Opened {
            seen: AtomicU64::new(self.changes.count()),
            watched: self,
        })
    }
}

impl Content for Watched {
    fn show(&self, text: &mut Text) -> fmt::Result {
        self.content.show(text)
    }
    fn write(&self, input: Input<'_>, offset: &mut u64) -> SysResult {
        self.content.write(input, offset)
    }
    fn writable(&self) -> bool {
        self.content.writable()
    }
    fn permissions(&self) -> u32 {
        self.content.permissions()
    }
    fn owner(&self) -> [u32; 2] {
        self.content.owner()
    }
    fn open(&self) -> Result<Option<Arc<dyn Content>>, Errno> {
        let same = Self::new(self.content.clone(), self.changes, self.quiet);
        Ok(Some(same.opened()))
    }
}

/// A [`Watched`] file that was opened.
struct Opened {
    watched: Watched,
    /// The count of changes that the file has reported.
    seen: AtomicU64,
}

impl Content for Opened {
    fn show(&self, text: &mut Text) -> fmt::Result {
        self.watched.show(text)
    }
    fn write(&self, input: Input<'_>, offset: &mut u64) -> SysResult {
        self.watched.write(input, offset)
    }
    fn writable(&self) -> bool {
        self.watched.writable()
    }
    fn poll(&self) -> PollMask {
        let now = self.watched.changes.count();
        // Relaxed: a change is reported once, by the first poll after it.
        if self.seen.swap(now, Ordering::Relaxed) == now {
            self.watched.quiet
        } else {
            PollMask::READABLE | PollMask::ERR | PollMask::PRI
        }
    }
    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.watched.changes.notifier())
    }
}
