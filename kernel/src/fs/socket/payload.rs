//! The bytes of a segment: few inside it, more in a piece of the heap, many in pages.

use crate::fs::io::{ByteSink, ByteSource, SliceSink};
use alloc::boxed::Box;
use alloc::vec::Vec;
use logic::errno::{Errno, SysResult};
use machine::memory::{self, FrameRef, Mobility, PAGE_SIZE};

/// Up to so many bytes lie in the heap: in a page they would waste more than half of it.
const SMALL: usize = PAGE_SIZE / 2;

/// The most bytes that lie in the segment itself: 128 with the other fields of the enum.
const FEW: usize = 126;

/// The bytes of a segment.
#[derive(Debug)]
pub(super) enum Payload {
    /// A few: how many, and they.
    Few(u8, [u8; FEW]),
    /// More.
    Small(Box<[u8]>),
    /// Many: pages that are full but for the last.
    Pages(Vec<FrameRef>, usize),
}

impl Payload {
    /// `length` bytes that are zero, if these are few: to be filled where they are.
    pub(super) fn few(length: usize) -> Option<Self> {
        let length = u8::try_from(length)
            .ok()
            .filter(|&length| usize::from(length) <= FEW)?;
        Some(Self::Few(length, [0; FEW]))
    }

    /// Fills what [`Self::few`] made.
    ///
    /// # Errors
    /// `EFAULT` if `from` gives fewer bytes.
    pub(super) fn fill_few(&mut self, from: &mut dyn ByteSource) -> Result<(), Errno> {
        match self {
            Self::Few(length, bytes) => from.fill(&mut bytes[..usize::from(*length)]),
            Self::Small(_) | Self::Pages(..) => Ok(()),
        }
    }

    /// Adds the few bytes of `more` behind its own few. Returns `false` if there is no room for them in
    /// the segment itself.
    pub(super) fn append(&mut self, more: &Self) -> bool {
        let (Self::Few(length, bytes), Self::Few(count, added)) = (self, more) else {
            return false;
        };
        let (begin, count) = (usize::from(*length), usize::from(*count));
        let Some(place) = bytes.get_mut(begin..begin + count) else {
            return false;
        };
        place.copy_from_slice(&added[..count]);
        // At most FEW.
        *length = u8::try_from(begin + count).unwrap_or(u8::MAX);
        true
    }

    /// The memory that so many bytes take.
    pub(super) fn memory(length: usize) -> usize {
        if length <= SMALL {
            length
        } else {
            length.next_multiple_of(PAGE_SIZE)
        }
    }

    /// Takes the next `length` bytes of `from`. User memory may fault: no lock is held.
    ///
    /// # Errors
    /// `EFAULT` if it gives fewer, `ENOBUFS` when there is no memory.
    pub(super) fn take(from: &mut dyn ByteSource, length: usize) -> Result<Self, Errno> {
        if let Some(mut few) = Self::few(length) {
            few.fill_few(from)?;
            return Ok(few);
        }
        if length <= SMALL {
            let mut bytes = Vec::new();
            bytes
                .try_reserve_exact(length)
                .map_err(|_| Errno::ENOBUFS)?;
            bytes.resize(length, 0);
            from.fill(&mut bytes)?;
            return Ok(Self::Small(bytes.into_boxed_slice()));
        }
        let mut pages = Vec::new();
        pages
            .try_reserve_exact(length.div_ceil(PAGE_SIZE))
            .map_err(|_| Errno::ENOBUFS)?;
        let mut left = length;
        while left > 0 {
            let frame = memory::alloc_frame(Mobility::Unmovable).map_err(|_| Errno::ENOBUFS)?;
            let wanted = left.min(PAGE_SIZE);
            let mut filled = 0;
            while filled < wanted {
                match from.take_frame(&frame, filled, wanted - filled)? {
                    0 => return Err(Errno::EFAULT),
                    more => filled += more,
                }
            }
            pages.push(frame);
            left -= wanted;
        }
        Ok(Self::Pages(pages, length))
    }

    /// How many bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(length, _) => usize::from(*length),
            Self::Small(bytes) => bytes.len(),
            Self::Pages(_, length) => *length,
        }
    }

    /// Its byte, if there is one alone.
    pub(super) fn only_byte(&self) -> Option<u8> {
        match self {
            Self::Few(1, bytes) => bytes.first().copied(),
            _ => None,
        }
    }

    /// Its last byte, if it has any.
    pub(super) fn last_byte(&self) -> Option<u8> {
        let mut byte = [0];
        let at = self.len().checked_sub(1)?;
        let put = self.put(at, &mut SliceSink::new(&mut byte), 1);
        (put == Ok(1)).then_some(byte[0])
    }

    /// Puts up to `count` bytes from `offset` on; tells how many. No lock is held.
    ///
    /// # Errors
    /// `EFAULT` if none could be put.
    pub(super) fn put(&self, offset: usize, to: &mut dyn ByteSink, count: usize) -> SysResult {
        let count = count.min(self.len() - offset).min(to.room());
        match self {
            Self::Few(_, bytes) => to.put(&bytes[offset..offset + count]),
            Self::Small(bytes) => to.put(&bytes[offset..offset + count]),
            Self::Pages(pages, _) => {
                let mut done = 0;
                while done < count {
                    let at = offset + done;
                    let within = at % PAGE_SIZE;
                    let run = (PAGE_SIZE - within).min(count - done);
                    match to.put_frame(&pages[at / PAGE_SIZE], within, run) {
                        Ok(moved) => {
                            done += moved;
                            if moved < run {
                                break;
                            }
                        }
                        Err(error) if done == 0 => return Err(error),
                        Err(_) => break,
                    }
                }
                Ok(done)
            }
        }
    }
}
