//! A table of slots of which few or very many are in use. It stands in chunks, so that it needs no large contiguous
//! memory, and a chunk has memory from its first use on.

use crate::errno::Errno;
use alloc::vec::Vec;

/// Slots of a chunk.
pub const CHUNK: usize = 256;
/// Slots of the first chunk to begin with: most tables need no more.
const FEW: usize = 8;

/// The table.
#[derive(Debug)]
pub struct Sparse<T> {
    chunks: Vec<Vec<Option<T>>>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Sparse<T> {
    /// A table without slots.
    pub const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    /// Returns what is in slot `at`, or `None` if nothing is.
    #[inline]
    pub fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)?.as_ref()
    }

    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.chunks
            .get_mut(at / CHUNK)?
            .get_mut(at % CHUNK)?
            .as_mut()
    }

    /// Returns the number of slots up to the last that there is memory for.
    pub fn len(&self) -> usize {
        match self.chunks.split_last() {
            Some((last, before)) => before.len() * CHUNK + last.len(),
            None => 0,
        }
    }

    /// Returns whether there is memory for no slot.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns whether there is memory for slot `at`.
    #[inline]
    pub fn has(&self, at: usize) -> bool {
        let chunk = self.chunks.get(at / CHUNK);
        chunk.is_some_and(|chunk| at % CHUNK < chunk.len())
    }

    /// Gets memory for slot `at`.
    ///
    /// # Errors
    /// `ENOMEM`; what is in the table stays.
    pub fn prepare(&mut self, at: usize) -> Result<(), Errno> {
        if self.has(at) {
            return Ok(());
        }
        self.reserve_chunk(at)?;
        self.chunks[at / CHUNK].resize_with(Self::chunk_size(at), || None);
        Ok(())
    }

    /// Returns the number of slots that a chunk has which is made for slot `at`.
    fn chunk_size(at: usize) -> usize {
        if at < CHUNK {
            (at + 1).next_power_of_two().max(FEW)
        } else {
            CHUNK
        }
    }

    /// Puts `value` in slot `at`, for which there is memory. Returns what was in it.
    ///
    /// # Panics
    /// If there is no memory for the slot.
    #[inline]
    pub fn put(&mut self, at: usize, value: T) -> Option<T> {
        self.chunks[at / CHUNK][at % CHUNK].replace(value)
    }

    /// Empties slot `at`. Returns what was in it.
    #[inline]
    pub fn take(&mut self, at: usize) -> Option<T> {
        self.chunks.get_mut(at / CHUNK)?.get_mut(at % CHUNK)?.take()
    }

    /// Gets memory for the chunk of slot `at`, as [`prepare`](Self::prepare) does, for [`copy_chunk`](Self::copy_chunk) to
    /// fill. The table has none of its slots until then.
    ///
    /// # Errors
    /// `ENOMEM`; what is in the table stays.
    pub fn reserve_chunk(&mut self, at: usize) -> Result<(), Errno> {
        let more = (at / CHUNK + 1).saturating_sub(self.chunks.len());
        self.chunks.try_reserve(more).map_err(|_| Errno::ENOMEM)?;
        if more != 0 {
            self.chunks.resize_with(at / CHUNK + 1, Vec::new);
        }
        let chunk = &mut self.chunks[at / CHUNK];
        let room = chunk.try_reserve_exact(Self::chunk_size(at) - chunk.len());
        room.map_err(|_| Errno::ENOMEM)
    }

    /// Copies the chunk of slot `at` of another table, up to that slot at least, into the chunk that
    /// [`reserve_chunk`](Self::reserve_chunk) has made for it. Returns `false` if there is no room for that.
    #[must_use]
    pub fn copy_chunk(&mut self, at: usize, other: &Self) -> bool
    where
        T: Clone,
    {
        let size = Self::chunk_size(at);
        let Some(chunk) = self.chunks.get_mut(at / CHUNK) else {
            return false;
        };
        if chunk.capacity() < size {
            return false;
        }
        chunk.clear();
        let theirs = other
            .chunks
            .get(at / CHUNK)
            .map_or(&[][..], |theirs| theirs);
        chunk.extend_from_slice(&theirs[..size.min(theirs.len())]);
        chunk.resize_with(size, || None);
        true
    }

    /// Takes all out, upwards.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.chunks.into_iter().flatten().flatten()
    }
}
