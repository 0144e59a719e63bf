//! `/dev/null`, `/dev/zero`, `/dev/full`, `/dev/random`, `/dev/urandom`.

use super::super::file::{File, Seeks};
use super::super::flags::OpenFlags;
use super::super::io::{ByteSink, ByteSource, MAX_RW_COUNT};
use logic::errno::{Errno, SysResult};
use machine::arch::random;
use machine::memory::PAGE_SIZE;
use machine::uaccess;

/// The file of `/dev/null`: reads return nothing, and writes are discarded.
pub(super) struct Null;

impl File for Null {
    fn read(&self, _: &mut dyn ByteSink, _: &mut u64, _: OpenFlags) -> SysResult {
        Ok(0)
    }
    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, _: OpenFlags) -> SysResult {
        Ok(from.skip(from.left()))
    }
    fn seeks(&self) -> Seeks {
        Seeks::ToStart
    }
    fn never_waits(&self, _: bool) -> bool {
        true
    }
}

/// The file of `/dev/zero` and `/dev/full`, with endless zeros. Writes to `full` fail with
/// `ENOSPC`.
pub(super) struct Zero {
    /// Whether this is `/dev/full`.
    pub(super) full: bool,
}

/// Reads until `to` is full, a piece at a time. A signal ends the read between two pieces. Returns
/// the number of bytes read. Fails with the error of `piece` only if no byte was read before.
fn endless(
    to: &mut dyn ByteSink,
    mut piece: impl FnMut(&mut dyn ByteSink, usize) -> SysResult,
) -> SysResult {
    let mut done = 0;
    while to.room() > 0 && done < MAX_RW_COUNT {
        let count = to.room().min(PAGE_SIZE);
        match piece(to, count) {
            Ok(moved) => {
                done += moved;
                if moved < count {
                    break;
                }
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        super::super::io::breathe(done);
        if machine::sched::current().signal_pending() {
            break;
        }
    }
    Ok(done)
}

impl File for Zero {
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, _: OpenFlags) -> SysResult {
        endless(to, |to, count| to.put_zeros(count))
    }
    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, _: OpenFlags) -> SysResult {
        if self.full {
            return Err(Errno::ENOSPC);
        }
        Ok(from.skip(from.left()))
    }
    fn seeks(&self) -> Seeks {
        Seeks::ToStart
    }
    fn never_waits(&self, _: bool) -> bool {
        !self.full
    }
    fn maps_zeros(&self) -> bool {
        !self.full
    }
}

/// The file of `/dev/random` and `/dev/urandom`. Random bytes never have to be waited for.
pub(super) struct Random;

/// The number of random bytes that are made at once, on the stack.
const PIECE: usize = 512;

impl File for Random {
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, _: OpenFlags) -> SysResult {
        endless(to, |to, count| {
            let mut bytes = [0; PIECE];
            let piece = count.min(PIECE);
            random::fill(&mut bytes[..piece]);
            let moved = to.put(&bytes[..piece])?;
            // `endless` stops after fewer than `count` bytes, so the rest of them is added here.
            Ok(if moved == piece && piece < count {
                moved + fill_rest(to, count - piece)?
            } else {
                moved
            })
        })
    }
    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, _: OpenFlags) -> SysResult {
        let mut bytes = [0; 64];
        let mut done = 0;
        while from.left() > 0 && done < PAGE_SIZE {
            let taken = from.take(&mut bytes)?;
            random::mix(&bytes[..taken]);
            done += taken;
        }
        Ok(done + from.skip(from.left()))
    }
    fn ioctl(&self, command: u32, argument: u64) -> SysResult {
        /// Stores the number of random bits in the pool.
        const RNDGETENTCNT: u32 = 0x8004_5200;
        /// Linux's constant value once its pool is seeded.
        const BITS: i32 = 256;
        if command != RNDGETENTCNT {
            return Err(Errno::EINVAL);
        }
        uaccess::copy_out(argument, &BITS.to_le_bytes())?;
        Ok(0)
    }
    fn seeks(&self) -> Seeks {
        Seeks::ToStart
    }
    fn never_waits(&self, _: bool) -> bool {
        true
    }
}

/// Stores `count` more random bytes, fewer if user memory ends. Returns their number. Never fails.
fn fill_rest(to: &mut dyn ByteSink, count: usize) -> SysResult {
    let mut done = 0;
    while done < count {
        let mut bytes = [0; PIECE];
        let piece = (count - done).min(PIECE);
        random::fill(&mut bytes[..piece]);
        match to.put(&bytes[..piece]) {
            Ok(moved) => {
                done += moved;
                if moved < piece {
                    break;
                }
            }
            Err(_) => break,
        }
    }
    Ok(done)
}
