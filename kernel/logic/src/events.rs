//! Events that wait to be read, as `inotify(7)` has them: pure logic.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Deref;

/// `IN_Q_OVERFLOW`.
const OVERFLOW: u32 = 0x4000;
/// `IN_IGNORED`: each is told.
const IGNORED: u32 = 0x8000;
/// Bytes of an event before its name (`struct inotify_event`).
pub const HEADER: usize = 16;

/// Something that happened.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The watch.
    pub watch: i32,
    /// What.
    pub mask: u32,
    /// The same in both halves of a move, else 0.
    pub cookie: u32,
    /// Of the entry that it happened to; empty if it happened to what is watched itself.
    pub name: &'a [u8],
}

impl Event<'_> {
    /// Its bytes: the name with one NUL at least, and as many as make it a multiple of the header.
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

/// The next event needs more room.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// What says that events were lost: of the watch -1, without a cookie and a name.
static LOST: [u8; HEADER] = {
    let [first, second, third, fourth] = OVERFLOW.to_le_bytes();
    [
        0xff, 0xff, 0xff, 0xff, first, second, third, fourth, 0, 0, 0, 0, 0, 0, 0, 0,
    ]
};

/// The bytes of an event.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// What happened.
    Event(Box<[u8]>),
    /// Events were lost.
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

/// The events, in the order of their coming.
#[derive(Debug, Default)]
pub struct Events {
    waiting: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// It is to be told that events were lost, behind so many others. That takes no memory.
    lost: Option<usize>,
}

impl Events {
    /// None.
    pub const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
            lost: None,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.lost.is_none()
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds one, unless `limit` of them wait: then it is told once that some were lost. What is like the
    /// last one, but for the cookie, is not added. Says whether there is something new to read.
    pub fn add(&mut self, event: &Event<'_>, limit: usize) -> bool {
        let told = usize::from(self.lost.is_some());
        if self.waiting.len() + told >= limit {
            return self.lose();
        }
        let Some(bytes) = event.bytes() else {
            return self.lose();
        };
        let is_same = |last: &[u8]| {
            // Watch and mask; length and name.
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

    /// Takes the first one, if it has at most `room` bytes.
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
            // Many may have waited.
            self.waiting = VecDeque::new();
        }
        Some(Ok(Taken::Event(event)))
    }
}
