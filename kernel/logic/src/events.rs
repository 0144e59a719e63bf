//! The queue of events that wait to be read, in the format of `inotify(7)`. Pure logic.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Deref;

/// `IN_Q_OVERFLOW`.
const OVERFLOW: u32 = 0x4000;
/// `IN_IGNORED`: each event with this bit is reported, even if it equals the last one.
const IGNORED: u32 = 0x8000;
/// Bytes of an event before its name (`struct inotify_event`).
pub const HEADER: usize = 16;

/// An event of a watch, as `inotify(7)` reports it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Number of the watch.
    pub watch: i32,
    /// The kind of the event (`IN_*`).
    pub mask: u32,
    /// Equal in both events of a move, else 0.
    pub cookie: u32,
    /// Name of the directory entry; empty if the event is about the watched file itself.
    pub name: &'a [u8],
}

impl Event<'_> {
    /// Returns the event's bytes, or `None` if memory is short. NULs, at least one, pad the name to
    /// a multiple of the header's size.
    fn bytes(&self) -> Option<Box<[u8]>> {
        let padded = match self.name.len() {
            0 => 0,
            length => (length + 1).next_multiple_of(HEADER),
        };
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(HEADER + padded).ok()?;
        bytes.extend_from_slice(&self.watch.to_le_bytes());
        bytes.extend_from_slice(&self.mask.to_le_bytes());
        bytes.extend_from_slice(&self.cookie.to_le_bytes());
        // Names are at most 255 bytes long.
        let length = u32::try_from(padded).unwrap_or(0);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(self.name);
        bytes.resize(HEADER + padded, 0);
        Some(bytes.into_boxed_slice())
    }
}

/// The error of a read whose buffer is smaller than the next event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// The event that reports lost events: watch -1, without a cookie and a name.
static LOST: [u8; HEADER] = {
    let [first, second, third, fourth] = OVERFLOW.to_le_bytes();
    [
        0xff, 0xff, 0xff, 0xff, first, second, third, fourth, 0, 0, 0, 0, 0, 0, 0, 0,
    ]
};

/// The bytes of an event that was removed from the queue.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// A regular event.
    Event(Box<[u8]>),
    /// The report that events were lost.
    Lost,
}

impl Deref for Taken {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Event(bytes) => bytes,
            Self::Lost => &LOST,
        }
    }
}

/// The queue of the events that wait for the reader, in the order of their arrival.
#[derive(Debug, Default)]
pub struct Events {
    waiting: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// The number of events before the report that events were lost, if it is due. It takes no
    /// memory.
    lost: Option<usize>,
}

impl Events {
    /// Returns an empty queue.
    pub const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
            lost: None,
        }
    }

    /// Returns whether neither an event nor a report of lost events waits to be read.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.lost.is_none()
    }

    /// Returns the number of bytes that wait to be read: those of all events, and of the report of
    /// lost events.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds `event`. If `limit` events wait already or memory is short, adds a report of lost
    /// events instead, unless one waits already. An event that equals the last one except for its
    /// cookie is not added, unless it has `IN_IGNORED`. Returns `true` if an event or a report was
    /// added, else `false`.
    pub fn add(&mut self, event: &Event<'_>, limit: usize) -> bool {
        let told = usize::from(self.lost.is_some());
        if self.waiting.len() + told >= limit {
            return self.lose();
        }
        let Some(bytes) = event.bytes() else {
            return self.lose();
        };
        let is_same = |last: &[u8]| {
            // Compare watch and mask, then length and name.
            last.len() == bytes.len() && last[..8] == bytes[..8] && last[12..] == bytes[12..]
        };
        let last = self.waiting.back();
        let last = last.filter(|_| self.lost != Some(self.waiting.len()));
        if event.mask & IGNORED == 0 && last.is_some_and(|last| is_same(last)) {
            return false;
        }
        if self.waiting.try_reserve(1).is_err() {
            return self.lose();
        }
        self.bytes += bytes.len();
        self.waiting.push_back(bytes);
        true
    }

    fn lose(&mut self) -> bool {
        if self.lost.is_some() {
            return false;
        }
        self.lost = Some(self.waiting.len());
        self.bytes += HEADER;
        true
    }

    /// Removes the first event and returns its bytes. Returns `None` if the queue is empty. If the
    /// event has more than `room` bytes, it stays in the queue, and the result is `Some` of
    /// [`TooLarge`].
    pub fn take(&mut self, room: usize) -> Option<Result<Taken, TooLarge>> {
        if self.lost == Some(0) {
            if room < HEADER {
                return Some(Err(TooLarge));
            }
            self.lost = None;
            self.bytes -= HEADER;
            return Some(Ok(Taken::Lost));
        }
        if self.waiting.front()?.len() > room {
            return Some(Err(TooLarge));
        }
        let event = self.waiting.pop_front()?;
        self.bytes -= event.len();
        if let Some(before) = &mut self.lost {
            *before -= 1;
        }
        if self.waiting.is_empty() {
            // Many events may have waited, so the memory is freed.
            self.waiting = VecDeque::new();
        }
        Some(Ok(Taken::Event(event)))
    }
}
