//! A table with few or very many slots in use. Its slots are in chunks, so the table needs no large
//! contiguous memory. A chunk has memory from its first use on.

use crate::errno::Errno;
use alloc::vec::Vec;

/// Number of slots of a chunk.
pub const CHUNK: usize = 256;
/// Initial number of slots of the first chunk: most tables need no more.
const FEW: usize = 8;

/// A table of values of type `T` by their slots. A slot has a value or is empty.
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
    /// Returns a table without slots.
    pub const fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    /// Returns the value in slot `at`, or `None` if the slot is empty.
    #[inline]
    pub fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)?.as_ref()
    }

    /// Returns the value in slot `at` for modification, or `None` if the slot is empty.
    #[inline]
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.chunks
            .get_mut(at / CHUNK)?
            .get_mut(at % CHUNK)?
            .as_mut()
    }

    /// Returns the number of slots up to the last one that has memory. If the last chunk has no
    /// slots yet, because an allocation failed or [`Self::copy_chunk`] has not filled it, returns
    /// the number of its first slot.
    pub fn len(&self) -> usize {
        match self.chunks.split_last() {
            Some((last, before)) => before.len() * CHUNK + last.len(),
            None => 0,
        }
    }

    /// Returns whether the table has no chunks, as after [`Self::new`]. No slot has memory then.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns whether slot `at` has memory.
    #[inline]
    pub fn has(&self, at: usize) -> bool {
        let chunk = self.chunks.get(at / CHUNK);
        chunk.is_some_and(|chunk| at % CHUNK < chunk.len())
    }

    /// Allocates memory for slot `at`.
    ///
    /// # Errors
    /// `ENOMEM` if memory is short; the contents of the table stay.
    pub fn prepare(&mut self, at: usize) -> Result<(), Errno> {
        if self.has(at) {
            return Ok(());
        }
        self.reserve_chunk(at)?;
        self.chunks[at / CHUNK].resize_with(Self::chunk_size(at), || None);
        Ok(())
    }

    /// Returns the number of slots of a chunk that is allocated for slot `at`.
    fn chunk_size(at: usize) -> usize {
        if at < CHUNK {
            (at + 1).next_power_of_two().max(FEW)
        } else {
            CHUNK
        }
    }

    /// Puts `value` in slot `at`, which must have memory. Returns the slot's previous value, or
    /// `None` if it was empty.
    ///
    /// # Panics
    /// If the slot has no memory.
    #[inline]
    pub fn put(&mut self, at: usize, value: T) -> Option<T> {
        self.chunks[at / CHUNK][at % CHUNK].replace(value)
    }

    /// Empties slot `at`. Returns its value, or `None` if the slot was empty.
    #[inline]
    pub fn take(&mut self, at: usize) -> Option<T> {
        self.chunks.get_mut(at / CHUNK)?.get_mut(at % CHUNK)?.take()
    }

    /// Allocates memory for the chunk of slot `at`, as much as [`prepare`](Self::prepare) does.
    /// Slot `at` must have no memory yet. The new slots exist only after
    /// [`copy_chunk`](Self::copy_chunk) has filled them.
    ///
    /// # Errors
    /// `ENOMEM` if memory is short; the contents of the table stay.
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

    /// Replaces the contents of this table's chunk of slot `at` with a copy of the same chunk of
    /// `other`. The chunk then has the number of slots that [`prepare`](Self::prepare) allocates
    /// for slot `at`, and values of `other` in later slots are not copied.
    /// [`reserve_chunk`](Self::reserve_chunk) must have allocated the memory before. Returns
    /// `false`, and copies nothing, if this table has too little memory for the chunk.
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

    /// Turns the table into its values, in ascending order of their slots.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.chunks.into_iter().flatten().flatten()
    }
}
