//! `/proc/PID/mem`: the bytes of an address space, at their addresses.

use super::space_file::Kind;
use crate::fs::file::{File, Seeks};
use crate::fs::flags::OpenFlags;
use crate::fs::io::{ByteSink, ByteSource};
use crate::vm::AddressSpace;
use alloc::sync::{Arc, Weak};
use logic::errno::{Errno, SysResult};
use machine::memory::PAGE_SIZE;
use machine::sched;

/// `/proc/PID/mem`: its name, mode and open function. It can be opened for reading and writing.
pub(super) static KIND: Kind = Kind {
    name: "mem",
    file: 0x52,
    permissions: 0o600,
    // Without an address space, a read returns no bytes.
    open: |space, _| Ok(Arc::new(Memory(space))),
};

/// The number of bytes that are copied at a time. They lie in one page.
const CARRY_BYTES: usize = 1024;

/// An open file on an address space, for as long as a task uses the space.
struct Memory(Weak<AddressSpace>);

/// Returns the number of bytes to copy next: at most `room`, up to the end of the page of
/// `address`.
fn piece(address: u64, room: usize) -> usize {
    let offset = usize::try_from(address % PAGE_SIZE as u64).unwrap_or(0);
    (PAGE_SIZE - offset).min(room).min(CARRY_BYTES)
}

/// Returns the result of a call that ends early: the number of copied bytes, or `EIO` if there are
/// none.
fn ended(done: usize) -> SysResult {
    if done == 0 { Err(Errno::EIO) } else { Ok(done) }
}

impl File for Memory {
    fn read(&self, to: &mut dyn ByteSink, offset: &mut u64, _: OpenFlags) -> SysResult {
        let Some(space) = self.0.upgrade() else {
            return Ok(0);
        };
        let room = to.room();
        let mut done = 0;
        let mut buffer = [0; CARRY_BYTES];
        while done < room {
            let bytes = &mut buffer[..piece(*offset, room - done)];
            if space.read_bytes_forced(*offset, bytes).is_err() {
                return ended(done);
            }
            let put = match to.put(bytes) {
                Ok(put) => put,
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            };
            done += put;
            *offset = offset.wrapping_add(put as u64);
            if put < bytes.len() {
                break;
            }
            sched::cond_resched();
        }
        Ok(done)
    }
    fn write(&self, from: &mut dyn ByteSource, offset: &mut u64, _: OpenFlags) -> SysResult {
        let Some(space) = self.0.upgrade() else {
            return Ok(0);
        };
        let mut done = 0;
        let mut buffer = [0; CARRY_BYTES];
        while from.left() != 0 {
            let room = piece(*offset, from.left());
            let taken = match from.take(&mut buffer[..room]) {
                Ok(taken) => taken,
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            };
            if taken == 0 {
                break;
            }
            if space.write_bytes(*offset, &buffer[..taken], true).is_err() {
                return ended(done);
            }
            done += taken;
            *offset = offset.wrapping_add(taken as u64);
            sched::cond_resched();
        }
        Ok(done)
    }
    fn seeks(&self) -> Seeks {
        Seeks::Anywhere
    }
    fn has_end(&self) -> bool {
        false
    }
}
