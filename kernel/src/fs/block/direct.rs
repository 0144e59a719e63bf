//! Reads and writes that bypass the cache (`O_DIRECT`).
//!
//! Whole pages of a program's memory are transferred directly. Other bytes are copied through
//! frames of the kernel, so the memory needs no alignment. Offset and length must be aligned to
//! blocks. Several requests run at a time.

use super::super::io::{ByteSink, ByteSource};
use super::cache::{Cache, PAGE};
use crate::drivers::disk::{
    Batch, Data, MAX_PAGES, Operation, Owner, Request, SECTOR_BYTES, whole_blocks,
};
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::errno::{Errno, SysResult};
use machine::memory::{FrameRef, Mobility, PAGE_SIZE, alloc_frame};
use machine::sched;

/// The number of requests that run at a time.
const REQUESTS: usize = 4;

/// Checks that a transfer consists of whole blocks of the disk. Fails with `EINVAL` if not.
fn check(cache: &'static Cache, offset: u64, total: usize) -> Result<(), Errno> {
    let disk = cache.disk;
    whole_blocks(
        offset,
        total as u64,
        disk.limits().block_bytes,
        disk.sectors(),
    )
    .map(drop)
    .ok_or(Errno::EINVAL)
}

/// Returns the number of pages that one piece of a transfer of `count` bytes has.
fn pages(cache: &'static Cache, count: usize) -> usize {
    count.div_ceil(PAGE_SIZE).min(per_request(cache) * REQUESTS)
}

/// Allocates the frames for one piece of a transfer of `count` bytes. Fails with `ENOMEM`.
fn frames(cache: &'static Cache, count: usize) -> Result<Vec<FrameRef>, Errno> {
    let pages = pages(cache, count);
    (cache.make_room)(pages as u64);
    let mut frames = Vec::new();
    frames.try_reserve_exact(pages).map_err(|_| Errno::ENOMEM)?;
    for _ in 0..pages {
        // The device reads or writes them until they are freed.
        frames.push(alloc_frame(Mobility::Unmovable)?);
    }
    Ok(frames)
}

/// Returns the program's own frames for the whole pages among the next `count` bytes, one piece at
/// most. Stops at the first page for which `pin` returns `None`. Fails with `ENOMEM` if the list
/// cannot be allocated.
fn pinned(
    cache: &'static Cache,
    count: usize,
    mut pin: impl FnMut() -> Option<FrameRef>,
) -> Result<Vec<FrameRef>, Errno> {
    let most = pages(cache, count - count % PAGE_SIZE);
    let mut frames = Vec::new();
    frames.try_reserve_exact(most).map_err(|_| Errno::ENOMEM)?;
    while frames.len() < most
        && let Some(frame) = pin()
    {
        frames.push(frame);
    }
    Ok(frames)
}

fn per_request(cache: &'static Cache) -> usize {
    cache.disk.limits().segments.min(MAX_PAGES)
}

/// Makes the disk read or write the first `count` bytes of `frames` at byte `offset`, and waits for
/// the end. Fails with `EINTR` if the task is being killed, and with the disk's error.
fn transfer(
    cache: &'static Cache,
    frames: &[FrameRef],
    offset: u64,
    count: usize,
    operation: fn(u64) -> Operation,
) -> Result<(), Errno> {
    let parts = frames[..count.div_ceil(PAGE_SIZE)].chunks(per_request(cache));
    let requests = u32::try_from(parts.len()).map_err(|_| Errno::EINVAL)?;
    let batch = Arc::new(Batch::new(requests));
    let mut at = 0;
    for part in parts {
        let mut data = Data::new();
        part.iter().cloned().for_each(|frame| data.push(frame));
        data.cut((part.len() * PAGE_SIZE).min(count - at));
        let moved = data.bytes();
        let operation = operation((offset + at as u64) / SECTOR_BYTES);
        let current = sched::current();
        match operation {
            Operation::Read { .. } => current.transfers().count_disk_read(moved),
            _ => current.transfers().count_disk_write(moved),
        }
        cache.disk.submit(Request {
            operation,
            data,
            owner: Owner::Batch(batch.clone()),
        });
        at += moved;
    }
    batch.wait().map_err(|_| Errno::EINTR)??;
    Ok(())
}

/// Moves `total` bytes in pieces until one is short. `piece` gets the offset and the number of
/// bytes left. It returns the number of bytes that it moved and the number that it tried. Returns
/// the number of bytes moved. Fails with the error of `piece` only if no byte was moved before.
fn in_pieces(
    offset: &mut u64,
    total: usize,
    mut piece: impl FnMut(u64, usize) -> Result<(usize, usize), Errno>,
) -> SysResult {
    let mut done = 0;
    while done < total {
        match piece(*offset, total - done) {
            Ok((moved, tried)) => {
                done += moved;
                *offset += moved as u64;
                if moved < tried {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        sched::cond_resched();
    }
    Ok(done)
}

/// Reads `total` bytes at `offset` from the disk into `to`, past the cache, and advances `offset`.
/// The bytes must all lie within the disk. Dirty pages of the range are written first. Returns the
/// number of bytes that were read.
///
/// # Errors
/// Fails with the error of the alignment check, of the disk or of `to`, if nothing was read before.
pub(super) fn read(
    cache: &'static Cache,
    to: &mut dyn ByteSink,
    offset: &mut u64,
    total: usize,
) -> SysResult {
    check(cache, *offset, total)?;
    cache.write_back(*offset / PAGE..(*offset + total as u64).div_ceil(PAGE));
    in_pieces(offset, total, |at, left| {
        let own = pinned(cache, left, || to.pin_page())?;
        if !own.is_empty() {
            let count = own.len() * PAGE_SIZE;
            transfer(cache, &own, at, count, |sector| Operation::Read { sector })?;
            return Ok((count, count));
        }
        let frames = frames(cache, left)?;
        let count = left.min(frames.len() * PAGE_SIZE);
        transfer(cache, &frames, at, count, |sector| Operation::Read {
            sector,
        })?;
        let mut moved = 0;
        for frame in &frames {
            let piece = (count - moved).min(PAGE_SIZE);
            match to.put_frame(frame, 0, piece) {
                Ok(taken) => {
                    moved += taken;
                    if taken < piece {
                        break;
                    }
                }
                Err(error) if moved == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok((moved, count))
    })
}

/// Writes `total` bytes of `from` at `offset` to the disk, past the cache, and advances `offset`.
/// The bytes must all lie within the disk. Pages of the range leave the cache before and after.
/// Returns the number of bytes that were written.
///
/// # Errors
/// Fails with the error of the alignment check, of the disk or of `from`, if nothing was written
/// before. Fails with `EFAULT` if `from` gives less than one block.
pub(super) fn write(
    cache: &'static Cache,
    from: &mut dyn ByteSource,
    offset: &mut u64,
    total: usize,
) -> SysResult {
    check(cache, *offset, total)?;
    let range = *offset / PAGE..(*offset + total as u64).div_ceil(PAGE);
    let block = cache.disk.limits().block_bytes as usize;
    cache.forget(range.clone());
    let written = in_pieces(offset, total, |at, left| {
        let own = pinned(cache, left, || from.pin_page())?;
        if !own.is_empty() {
            let count = own.len() * PAGE_SIZE;
            transfer(cache, &own, at, count, |sector| Operation::Write { sector })?;
            return Ok((count, count));
        }
        let frames = frames(cache, left)?;
        let count = left.min(frames.len() * PAGE_SIZE);
        let mut taken = 0;
        for frame in &frames {
            let piece = (count - taken).min(PAGE_SIZE);
            match from.take_frame(frame, 0, piece) {
                Ok(got) => {
                    taken += got;
                    if got < piece {
                        break;
                    }
                }
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            }
        }
        // The program's memory may have ended. Only whole blocks are written.
        let whole = taken - taken % block;
        if whole == 0 {
            return Err(Errno::EFAULT);
        }
        transfer(cache, &frames, at, whole, |sector| Operation::Write {
            sector,
        })?;
        Ok((whole, count))
    });
    // Tasks that read in between may have read old pages into the cache.
    cache.forget(range);
    written
}

/// Writes zeros to the `length` bytes of the disk from the offset `start` on, for a disk that has
/// no request for this. The zeros come from frames that are allocated for the call.
///
/// # Errors
/// Fails with `ENOMEM`, and with the error of the disk. Some of the range may be zero then.
pub(super) fn write_zeros(cache: &'static Cache, start: u64, length: u64) -> Result<(), Errno> {
    let frames = frames(cache, bytes(length))?;
    frames.iter().for_each(|frame| frame.zero(0, PAGE_SIZE));
    let mut at = 0;
    while at < length {
        let count = bytes(length - at).min(frames.len() * PAGE_SIZE);
        transfer(cache, &frames, start + at, count, |sector| {
            Operation::Write { sector }
        })?;
        at += count as u64;
        sched::cond_resched();
    }
    Ok(())
}

/// Returns `count` as a `usize`, or `usize::MAX` if it does not fit.
pub(super) fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
