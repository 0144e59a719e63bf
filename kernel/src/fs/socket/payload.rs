//! The bytes of a segment: few inside it, more in a piece of the heap, many in pages.

use crate::fs::io::{ByteSink, ByteSource, SliceSink};
use alloc::boxed::Box;
use alloc::vec::Vec;
use logic::errno::{Errno, SysResult};
use machine::memory::{self, FrameRef, Mobility, PAGE_SIZE};

/// The most bytes that are kept in the heap. In a page they would waste at least half of it.
const SMALL: usize = PAGE_SIZE / 2;

/// The most bytes that are kept in the segment itself: 128 with the other fields of the enum.
const FEW: usize = 126;

/// The bytes of a segment.
#[derive(Debug)]
pub(super) enum Payload {
    /// A few bytes: their number, and the bytes.
    Few(u8, [u8; FEW]),
    /// More bytes, in the heap.
    Small(Box<[u8]>),
    /// Many bytes, and their number: pages that are full but for the last.
    Pages(Vec<FrameRef>, usize),
}

impl Payload {
    /// Returns a payload of `length` zero bytes that needs no further memory, for
    /// [`Self::fill_few`]. Returns `None` if `length` is too large for such a payload.
    pub(super) fn few(length: usize) -> Option<Self> {
        let length = u8::try_from(length)
            .ok()
            .filter(|&length| usize::from(length) <= FEW)?;
        Some(Self::Few(length, [0; FEW]))
    }

    /// Fills a payload of [`Self::few`] with the next bytes of `from`. Does nothing for another
    /// payload.
    ///
    /// # Errors
    /// Fails with `EFAULT` if `from` gives fewer bytes.
    pub(super) fn fill_few(&mut self, from: &mut dyn ByteSource) -> Result<(), Errno> {
        match self {
            Self::Few(length, bytes) => from.fill(&mut bytes[..usize::from(*length)]),
            Self::Small(_) | Self::Pages(..) => Ok(()),
        }
    }

    /// Appends the bytes of `more` to this payload. Returns `false` and changes nothing unless both
    /// are payloads of [`Self::few`] and the bytes fit.
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

    /// Returns the memory that a payload of `length` bytes takes, in bytes.
    pub(super) fn memory(length: usize) -> usize {
        if length <= SMALL {
            length
        } else {
            length.next_multiple_of(PAGE_SIZE)
        }
    }

    /// Returns a payload of the next `length` bytes of `from`. Call this without a lock: user
    /// memory may fault.
    ///
    /// # Errors
    /// Fails with `EFAULT` if `from` gives fewer bytes, and with `ENOBUFS` if memory is short.
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

    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(length, _) => usize::from(*length),
            Self::Small(bytes) => bytes.len(),
            Self::Pages(_, length) => *length,
        }
    }

    /// Returns the byte of a payload of one byte, or `None` if the payload has more or fewer bytes.
    pub(super) fn only_byte(&self) -> Option<u8> {
        match self {
            Self::Few(1, bytes) => bytes.first().copied(),
            _ => None,
        }
    }

    /// Returns the last byte, or `None` if the payload is empty.
    pub(super) fn last_byte(&self) -> Option<u8> {
        let mut byte = [0];
        let at = self.len().checked_sub(1)?;
        let put = self.put(at, &mut SliceSink::new(&mut byte), 1);
        (put == Ok(1)).then_some(byte[0])
    }

    /// Puts up to `count` bytes from `offset` on into `to`. Returns the number of bytes put. Call
    /// this without a lock.
    ///
    /// # Errors
    /// Fails with `EFAULT` if no byte could be put.
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
