//! `/dev/xen/gntdev`: maps and copies pages that other domains grant to this one.

use super::grants::{Direction, DomainId, GRANT_BYTES, GrantRef, Grants, Transfer};
use super::open_device;
use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

/// Computes an ioctl command: `_IOC(_IOC_NONE, 'G', number, bytes)` of Linux.
const fn command(number: u64, bytes: usize) -> libc::c_ulong {
    (bytes as u64) << 16 | (b'G' as u64) << 8 | number
}

/// The `ioctl` command that enters grants into the device's table. `mmap` at the index that it
/// returns maps them. The size in the command is that of one reference, however many there are.
pub(crate) const MAP_GRANT_REF: libc::c_ulong = command(0, 24);
/// The `ioctl` command that removes grants from the device's table.
pub(crate) const UNMAP_GRANT_REF: libc::c_ulong = command(1, 16);
/// The `ioctl` command that has the hypervisor copy between local and granted pages.
pub(crate) const GRANT_COPY: libc::c_ulong = command(8, 16);

/// Maximum number of grants in one mapping: enough for the largest request and the largest ring.
const MAX_MAP: usize = 512;
/// Maximum number of transfers in one copy call.
const MAX_COPY: usize = 512;

/// The flag for a copy whose source is granted.
const SOURCE_GREF: u16 = 1;
/// The flag for a copy whose destination is granted.
const DEST_GREF: u16 = 2;

/// Arguments of [`UNMAP_GRANT_REF`].
#[repr(C)]
struct Unmap {
    index: u64,
    count: u32,
    padding: u32,
}

/// The source or the destination of a copy: a local address, or a page of the other domain.
#[repr(C)]
#[derive(Copy, Clone)]
union Side {
    local: *mut u8,
    foreign: Foreign,
}

/// A position in a granted page.
#[repr(C)]
#[derive(Copy, Clone)]
struct Foreign {
    grant: u32,
    offset: u16,
    domain: u16,
}

/// One transfer of a copy call.
#[repr(C)]
struct Piece {
    source: Side,
    dest: Side,
    bytes: u16,
    flags: u16,
    status: i16,
}

/// Arguments of [`GRANT_COPY`].
#[repr(C)]
struct Copy {
    count: u32,
    pieces: *mut Piece,
}

const _: () = assert!(size_of::<Unmap>() == 16 && size_of::<Copy>() == 16);
const _: () = assert!(size_of::<Piece>() == 24 && size_of::<Side>() == 8);

/// An open `/dev/xen/gntdev`. The kernel unmaps its grants when it is closed, also if the process
/// is killed.
#[derive(Debug)]
pub struct Gntdev {
    fd: OwnedFd,
}

impl Gntdev {
    /// Opens the device `/dev/xen/gntdev`.
    ///
    /// # Errors
    /// Fails if it does not exist, because this is no Xen domain or its `gntdev` module is not
    /// loaded.
    pub fn open() -> io::Result<Self> {
        let fd = open_device("/dev/xen/gntdev", OFlags::RDWR | OFlags::CLOEXEC)?;
        Ok(Self { fd })
    }

    /// Calls `ioctl`. Fails if that does.
    ///
    /// # Safety
    /// `argument` must point to the structure that `command` expects.
    unsafe fn call<T>(&self, command: libc::c_ulong, argument: *mut T) -> io::Result<()> {
        // SAFETY: the caller guarantees that `argument` suits the command.
        let result = unsafe { libc::ioctl(self.fd.as_raw_fd(), command, argument) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Copies up to [`MAX_COPY`] transfers by one call, and sets `done` of each. Fails if the call
    /// fails.
    ///
    /// # Safety
    /// As for [`Grants::copy`].
    unsafe fn copy_some(
        &self,
        domain: DomainId,
        direction: Direction,
        transfers: &mut [Transfer],
    ) -> io::Result<()> {
        let mut pieces: Vec<Piece> = transfers
            .iter()
            .map(|transfer| piece(domain, direction, transfer))
            .collect();
        let mut copy = Copy {
            count: u32::try_from(pieces.len()).map_err(io::Error::other)?,
            pieces: pieces.as_mut_ptr(),
        };
        // SAFETY: this is the command's structure, and the caller guarantees that local memory is
        // valid.
        unsafe { self.call(GRANT_COPY, &raw mut copy)? };
        for (transfer, piece) in transfers.iter_mut().zip(&pieces) {
            transfer.done = piece.status == 0;
        }
        Ok(())
    }

    /// Removes `count` grants from the device's table at `index`.
    fn forget(&self, index: u64, count: u32) -> io::Result<()> {
        let mut unmap = Unmap {
            index,
            count,
            padding: 0,
        };
        // SAFETY: this is the command's structure.
        unsafe { self.call(UNMAP_GRANT_REF, &raw mut unmap) }
    }
}

/// Makes the kernel's form of a transfer.
fn piece(domain: DomainId, direction: Direction, transfer: &Transfer) -> Piece {
    let local = Side {
        local: transfer.local,
    };
    let foreign = Side {
        foreign: Foreign {
            grant: transfer.grant.0,
            offset: transfer.offset,
            domain: domain.0,
        },
    };
    let (source, dest, flags) = match direction {
        Direction::FromGrants => (foreign, local, SOURCE_GREF),
        Direction::ToGrants => (local, foreign, DEST_GREF),
    };
    Piece {
        source,
        dest,
        bytes: transfer.bytes,
        flags,
        status: 0,
    }
}

/// Makes the error for more grants than one call takes.
fn too_many(count: usize, most: usize) -> io::Error {
    io::Error::other(format!("{count} grants in one call; the most is {most}"))
}

impl Grants for Gntdev {
    fn map(
        &self,
        domain: DomainId,
        grants: &[GrantRef],
        write: bool,
    ) -> io::Result<(NonNull<u8>, u64)> {
        if grants.is_empty() || grants.len() > MAX_MAP {
            return Err(too_many(grants.len(), MAX_MAP));
        }
        let count = u32::try_from(grants.len()).map_err(io::Error::other)?;
        // Count and padding, the index that comes back, then domain and reference of each grant:
        // pairs of 32 bits, the lower one first.
        let mut words = vec![u64::from(count), 0];
        let named = |grant: &GrantRef| u64::from(grant.0) << 32 | u64::from(domain.0);
        words.extend(grants.iter().map(named));
        // SAFETY: this is the command's structure, with `count` references behind it.
        unsafe { self.call(MAP_GRANT_REF, words.as_mut_ptr())? };
        let index = words[1];
        let protection = if write {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        let bytes = grants.len() * GRANT_BYTES;
        // SAFETY: the kernel chooses the address of the new mapping, so no other memory is
        // affected.
        let mapped = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                &self.fd,
                index,
            )
        };
        let base = mapped.map_err(io::Error::from).and_then(|base| {
            NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave null"))
        });
        match base {
            Ok(base) => Ok((base, index)),
            Err(error) => {
                // Otherwise the entry would stay in the table for ever.
                let _ = self.forget(index, count);
                Err(error)
            }
        }
    }

    unsafe fn unmap(&self, base: NonNull<u8>, pages: u32, index: u64) {
        // SAFETY: the caller guarantees that `map` made this mapping and no code uses it.
        let unmapped = unsafe { munmap(base.as_ptr().cast(), pages as usize * GRANT_BYTES) };
        let forgotten = self.forget(index, pages);
        debug_assert!(
            unmapped.is_ok() && forgotten.is_ok(),
            "{unmapped:?} {forgotten:?}"
        );
    }

    unsafe fn copy(&self, domain: DomainId, direction: Direction, transfers: &mut [Transfer]) {
        for some in transfers.chunks_mut(MAX_COPY) {
            // SAFETY: the caller guarantees that local memory is valid.
            if unsafe { self.copy_some(domain, direction, some) }.is_ok() {
                continue;
            }
            // A transfer that the device finds invalid ends the call before the transfers behind
            // it.
            for one in some.chunks_mut(1) {
                // SAFETY: the caller guarantees that local memory is valid. If the device refuses
                // the transfer, it stays marked as not done.
                let _ = unsafe { self.copy_some(domain, direction, one) };
            }
        }
    }
}
