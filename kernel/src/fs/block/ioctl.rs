//! `ioctl` and `fallocate` of a disk.

use super::cache::{ALL, Cache, PAGE};
use super::direct;
use crate::drivers::disk::{Operation, SECTOR_BYTES, chunks, whole_blocks};
use linux_raw_sys::ioctl::{
    BLKALIGNOFF, BLKBSZGET, BLKDISCARDZEROES, BLKIOMIN, BLKIOOPT, BLKRAGET, BLKROTATIONAL,
    BLKSECTGET,
};
use linux_raw_sys::ioctl::{
    BLKDISCARD, BLKFLSBUF, BLKGETSIZE, BLKGETSIZE64, BLKPBSZGET, BLKROGET, BLKSSZGET, BLKZEROOUT,
};
use logic::errno::{Errno, SysResult};
use machine::sched;
use machine::uaccess;

/// The sectors that are read ahead: 128 KiB.
const READ_AHEAD_SECTORS: u64 = 256;

/// Carries out the `ioctl` number `command` of a block device, whose argument is the value or the
/// user address `argument`. Returns the result of the call.
///
/// # Errors
/// Fails with `ENOTTY` for an unknown command, with `EFAULT` if `argument` cannot be accessed, and
/// as the same call on Linux.
pub(super) fn call(cache: &'static Cache, command: u32, argument: u64) -> SysResult {
    let disk = cache.disk;
    let limits = disk.limits();
    let int = |value: u32| put(argument, &value.to_le_bytes());
    let short = |value: u16| put(argument, &value.to_le_bytes());
    let long = |value: u64| put(argument, &value.to_le_bytes());
    match command {
        BLKGETSIZE64 => long(disk.bytes()),
        BLKGETSIZE => long(disk.sectors()),
        BLKSSZGET => int(limits.block_bytes),
        // The block size of the cache.
        BLKBSZGET => int(u32::try_from(PAGE).unwrap_or(u32::MAX)),
        BLKPBSZGET | BLKIOMIN => int(limits.physical_block_bytes),
        BLKIOOPT | BLKALIGNOFF | BLKDISCARDZEROES => int(0),
        BLKROGET => int(u32::from(limits.read_only)),
        BLKRAGET => long(READ_AHEAD_SECTORS),
        BLKSECTGET => short(sectors_of_a_request(cache)),
        BLKROTATIONAL => short(1),
        BLKFLSBUF => {
            cache.forget(ALL);
            disk.flush()?;
            Ok(0)
        }
        BLKDISCARD | BLKZEROOUT => {
            let mut raw = [0; 16];
            uaccess::copy_in(&mut raw, argument)?;
            let (start, length) = raw.split_at(8);
            let number = |raw: &[u8]| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(raw);
                u64::from_le_bytes(bytes)
            };
            let (start, length) = (number(start), number(length));
            if command == BLKDISCARD {
                discard(cache, start, length)?;
            } else {
                write_zeroes(cache, start, length, false)?;
            }
            Ok(0)
        }
        _ => Err(Errno::ENOTTY),
    }
}

fn put(address: u64, bytes: &[u8]) -> SysResult {
    uaccess::copy_out(address, bytes)?;
    Ok(0)
}

fn sectors_of_a_request(cache: &'static Cache) -> u16 {
    let sectors = cache.disk.limits().segments as u64 * (PAGE / SECTOR_BYTES);
    u16::try_from(sectors).unwrap_or(u16::MAX)
}

/// Returns the first sector and the number of sectors of a range that will change. Fails with
/// `EPERM` for a read-only disk, and with `EINVAL` for partial blocks.
fn sectors(cache: &'static Cache, start: u64, length: u64) -> Result<(u64, u64), Errno> {
    let disk = cache.disk;
    if disk.limits().read_only {
        return Err(Errno::EPERM);
    }
    whole_blocks(start, length, disk.limits().block_bytes, disk.sectors()).ok_or(Errno::EINVAL)
}

/// Drops the pages of a range of bytes from the cache. Pages that are wholly in the range are not
/// written. Pages that are partly in it are written first.
fn forget_range(cache: &'static Cache, start: u64, length: u64) {
    let end = start + length;
    let whole = start.div_ceil(PAGE)..end / PAGE;
    if whole.start < whole.end {
        cache.discard(whole.clone());
    }
    cache.forget(start / PAGE..end.div_ceil(PAGE));
}

/// Discards the bytes of a range, which are not needed any more (`BLKDISCARD`). Fails with `EPERM`
/// for a read-only disk, with `EINVAL` for partial blocks, with `EOPNOTSUPP` if the disk cannot
/// discard, and with the disk's error.
fn discard(cache: &'static Cache, start: u64, length: u64) -> Result<(), Errno> {
    let (sector, sectors) = sectors(cache, start, length)?;
    let most = cache.disk.limits().discard_sectors;
    if most == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    forget_range(cache, start, length);
    for (sector, sectors) in chunks(sector, sectors, most) {
        cache.disk.perform(Operation::Discard { sector, sectors })?;
        sched::cond_resched();
    }
    forget_range(cache, start, length);
    Ok(())
}

/// Fills `length` bytes at `start` with zeros (`BLKZEROOUT`, `fallocate`). If `unmap` is `true`,
/// the disk may free the storage of the range.
///
/// # Errors
/// Fails with `EPERM` if the disk is read-only, with `EINVAL` if the range is not of whole blocks
/// of the disk, and with the error of the disk.
pub(super) fn write_zeroes(
    cache: &'static Cache,
    start: u64,
    length: u64,
    unmap: bool,
) -> Result<(), Errno> {
    let (sector, sectors) = sectors(cache, start, length)?;
    let most = cache.disk.limits().zeroes_sectors;
    forget_range(cache, start, length);
    if most == 0 {
        direct::write_zeros(cache, start, length)?;
    } else {
        for (sector, sectors) in chunks(sector, sectors, most) {
            cache.disk.perform(Operation::WriteZeroes {
                sector,
                sectors,
                unmap,
            })?;
            sched::cond_resched();
        }
    }
    forget_range(cache, start, length);
    Ok(())
}
