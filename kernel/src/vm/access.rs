//! The kernel's access to the memory of any space, by its frames.

use super::backing::Bytes;
use super::entry::{FILE, PAGE, SHMEM, WRITABLE, ZERO, frame_of, index};
use super::fault::{Access, Fault};
use super::pagetable::Region;
use super::space::State;
use super::want::Want;
use super::{AddressSpace, VmaFlags};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use logic::errno::Errno;
use machine::memory::{FrameRef, PAGE_SIZE};

impl From<Fault> for Errno {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NotMapped | Fault::NotAllowed | Fault::BeyondFile => Self::EFAULT,
            Fault::NoMemory => Self::ENOMEM,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "addresses and `usize` have 64 bits"
)]
/// Calls `each` for each piece of a range of addresses that lies in one page: with the piece's
/// address, its offset in the page, and its range in the buffer. Fails with `EFAULT` if the
/// addresses overflow, and with the error of `each`.
fn pieces(
    address: u64,
    bytes: usize,
    mut each: impl FnMut(u64, usize, core::ops::Range<usize>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes {
        let at = address.checked_add(done as u64).ok_or(Errno::EFAULT)?;
        let offset = at as usize % PAGE_SIZE;
        let piece = (PAGE_SIZE - offset).min(bytes - done);
        each(at, offset, done..done + piece)?;
        done += piece;
    }
    Ok(())
}

/// The most attempts to write to a page that others share or take away again and again.
const WRITE_TRIES: u32 = 10_000;

impl State {
    /// Returns whether stores to the pinned `frame` are visible at `address`, and to no space that
    /// must not see them.
    fn stores_reach(&self, address: u64, frame: &FrameRef) -> bool {
        let (entry, shown) = match self.tables.region(address) {
            Region::Table(table) => {
                let entry = table[index(address, 0)].load(Ordering::Relaxed);
                (entry, frame_of(entry))
            }
            Region::Huge(slot, span) => {
                let entry = slot.load();
                (entry, frame_of(entry).offset(address % span / PAGE))
            }
            // A pin ends a trial, so no page of one on trial is pinned.
            Region::Trial(_) | Region::AbsentUntil(_) => return false,
        };
        // One reference is the entry's, one is ours.
        let own = || entry & (FILE | SHMEM | ZERO) == 0 && frame.references() == 2;
        entry != 0 && shown.address() == frame.address() && (entry & WRITABLE != 0 || own())
    }
}

impl AddressSpace {
    fn pin(&self, address: u64, access: Access, want: Want) -> Result<FrameRef, Errno> {
        // `resolve` pins for every `want` but `Mapped`.
        self.resolve(address, access, want)
            .or_else(|fault| {
                self.serve_again((address, access, want), fault, || {
                    self.resolve(address, access, want)
                })
            })?
            .ok_or(Errno::EFAULT)
    }

    /// Returns a reference to the frame of the page at `address`, for a device to read or, with
    /// `write`, to fill. The program keeps the page unless it forks and stores to the page in that
    /// time. Then the page belongs to the first process that stores, as on Linux.
    ///
    /// # Errors
    /// Fails with `EFAULT` if a page cannot be accessed, and with `ENOMEM`.
    pub fn pin_page(&self, address: u64, write: bool) -> Result<FrameRef, Errno> {
        let access = if write { Access::Write } else { Access::Read };
        self.pin(address, access, Want::Pinned)
    }

    /// Fills `to` with bytes of this space, from `address` on. The space need not be the current
    /// one. If the copy fails, some of the bytes may have been written to `to`.
    ///
    /// # Errors
    /// Fails with `EFAULT` if a page cannot be accessed, and with `ENOMEM`.
    pub fn read_bytes(&self, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        pieces(address, to.len(), |at, offset, piece| {
            self.pin(at, Access::Read, Want::Pinned)?
                .read(offset, &mut to[piece]);
            Ok(())
        })
    }

    /// Fills `to` as [`Self::read_bytes`] does, also where the program itself may not read.
    ///
    /// # Errors
    /// Fails as [`Self::read_bytes`] does.
    pub fn read_bytes_forced(&self, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        pieces(address, to.len(), |at, offset, piece| {
            self.pin(at, Access::Read, Want::Forced)?
                .read(offset, &mut to[piece]);
            Ok(())
        })
    }

    /// Copies `from` to `address` of this space, which need not be the current one. With `force`,
    /// also writes to a private copy of a page that the program itself may not write. If the copy
    /// fails, some of the bytes may have been written.
    ///
    /// # Errors
    /// Fails with `EFAULT` if a page cannot be accessed, or if other tasks take it away again and
    /// again. Fails with `ENOMEM`.
    pub fn write_bytes(&self, address: u64, from: &[u8], force: bool) -> Result<(), Errno> {
        let want = if force { Want::Forced } else { Want::Pinned };
        pieces(address, from.len(), |at, offset, piece| {
            for _ in 0..WRITE_TRIES {
                let frame = self.pin(at, Access::Write, want)?;
                // A fork shares the page with the child, write-back takes it away: the program does
                // not see stores to the frame after that.
                let state = self.state.lock();
                if state.stores_reach(at, &frame) {
                    frame.write(offset, &from[piece]);
                    return Ok(());
                }
            }
            Err(Errno::EFAULT)
        })
    }

    /// Returns the identity of a futex at `address`, which is the same for all spaces that share
    /// the memory: the shared object, and the offset of the byte in it. Returns `None` for private
    /// memory.
    ///
    /// # Errors
    /// Fails with `EFAULT` if nothing is mapped there, or if the area does not have the right that
    /// a futex needs: any right in a mapped file, the right to store in other memory.
    pub fn futex_key(&self, address: u64) -> Result<Option<(usize, u64)>, Errno> {
        self.look_settled(|state| state.futex_key(address))
    }
}

impl State {
    fn futex_key(&self, address: u64) -> Result<Option<(usize, u64)>, Errno> {
        let area = self.areas.find(address).ok_or(Errno::EFAULT)?;
        // Linux looks at the page as a store does, and at a file's page as a load does without the
        // right to store.
        let shared = area.flags.contains(VmaFlags::SHARED);
        let file = area.backing.file().is_some();
        let enough = if file {
            VmaFlags::RIGHTS
        } else {
            VmaFlags::WRITE
        };
        if !area.flags.intersects(enough) {
            return Err(Errno::EFAULT);
        }
        if !shared {
            return Ok(None);
        }
        Ok(match &area.backing {
            Bytes::Zero => None,
            Bytes::File(file, offset) => {
                let object = Arc::as_ptr(&file.source).cast::<()>() as usize;
                Some((object, offset + (address - area.start)))
            }
        })
    }
}
