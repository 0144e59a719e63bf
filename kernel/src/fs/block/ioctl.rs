//! What `ioctl` and `fallocate` do to a disk.

use super::cache::{ALL, Cache, PAGE};
use super::direct;
use crate::drivers::disk::{Operation, SECTOR_BYTES, chunks, whole_blocks};
use crate::vm::uaccess;
use linux_raw_sys::ioctl::{
    BLKALIGNOFF, BLKBSZGET, BLKDISCARDZEROES, BLKIOMIN, BLKIOOPT, BLKRAGET, BLKROTATIONAL,
    BLKSECTGET,
};
use linux_raw_sys::ioctl::{
    BLKDISCARD, BLKFLSBUF, BLKGETSIZE, BLKGETSIZE64, BLKPBSZGET, BLKROGET, BLKSSZGET, BLKZEROOUT,
};
use logic::errno::{Errno, SysResult};
use machine::sched;

/// Sectors that are read ahead, 128 KiB.
const READ_AHEAD_SECTORS: u64 = 256;

/// `ioctl`.
pub(super) fn call(cache: &Cache, command: u32, argument: u64) -> SysResult {
    let disk = cache.disk;
    let limits = disk.limits();
    let int = |value: u32| put(argument, &value.to_le_bytes());
    let short = |value: u16| put(argument, &value.to_le_bytes());
    let long = |value: u64| put(argument, &value.to_le_bytes());
    match command {
        BLKGETSIZE64 => long(disk.bytes()),
        BLKGETSIZE => long(disk.sectors()),
        BLKSSZGET => int(limits.block_bytes),
        // The size by which the cache works.
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

fn sectors_of_a_request(cache: &Cache) -> u16 {
    let sectors = cache.disk.limits().segments as u64 * (PAGE / SECTOR_BYTES);
    u16::try_from(sectors).unwrap_or(u16::MAX)
}

/// The sectors of a range that is to change.
fn sectors(cache: &Cache, start: u64, length: u64) -> Result<(u64, u64), Errno> {
    let disk = cache.disk;
    if disk.limits().read_only {
        return Err(Errno::EPERM);
    }
    whole_blocks(start, length, disk.limits().block_bytes, disk.sectors()).ok_or(Errno::EINVAL)
}

/// Pages whose bytes all lie in a range of bytes, and those at its ends that do so in part.
fn forget_range(cache: &Cache, start: u64, length: u64) {
    let end = start + length;
    let whole = start.div_ceil(PAGE)..end / PAGE;
    if whole.start < whole.end {
        cache.discard(whole.clone());
    }
    cache.forget(start / PAGE..end.div_ceil(PAGE));
}

/// `BLKDISCARD`: the bytes of a range are not needed any more.
fn discard(cache: &Cache, start: u64, length: u64) -> Result<(), Errno> {
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

/// `BLKZEROOUT`, `fallocate`: the bytes of a range become zero, and with `unmap` need not be kept.
pub(super) fn write_zeroes(
    cache: &Cache,
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
