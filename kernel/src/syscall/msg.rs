//! Calls on System V message queues.

use super::Args;
use super::ipc::{IPC_INFO, IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, permissions, result, word};
use super::record::{MsgDs, MsgInfo};
use crate::process::caller;
use crate::process::ipc::Body;
use crate::process::ipc::READ;
use crate::process::ipc::msg::{self, LIMITS, Status};
use core::sync::atomic::Ordering;
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use logic::message_queue::{Message, Taking, Wanted};
use machine::uaccess::{self, UserPtr};
use zerocopy::FromZeros;

/// The size of a message's type, which is before its text.
const TYPE_BYTES: u64 = size_of::<i64>() as u64;

/// `msgget(2)`.
pub fn msgget(a: &Args) -> SysResult {
    result(msg::get(a.int(0), a.uint(1))?)
}

/// `msgsnd(2)`.
pub fn msgsnd(a: &Args) -> SysResult {
    let (id, at, size) = (a.int(0), a.addr(1), a.size(2));
    let kind = UserPtr::<i64>::new(at).read()?;
    if id < 0 || kind < 1 || size as u64 > LIMITS.message.load(Ordering::Relaxed) {
        return Err(Errno::EINVAL);
    }
    let body = Body::new(size, |bytes| uaccess::copy_in(bytes, at + TYPE_BYTES))?;
    let message = Message {
        kind,
        bytes: size,
        body,
    };
    msg::send(id, message, a.uint(3) & IPC_NOWAIT != 0)?;
    Ok(0)
}

/// Writes a message to the program, cut to `size` bytes. Returns the number of bytes of its text.
/// Fails with `EFAULT` for a bad address.
fn write_message(at: u64, kind: i64, bytes: &[u8], size: usize) -> SysResult {
    let count = bytes.len().min(size);
    UserPtr::new(at).write(&kind)?;
    uaccess::copy_out(at + TYPE_BYTES, &bytes[..count])?;
    Ok(count)
}

/// `msgrcv(2)`.
pub fn msgrcv(a: &Args) -> SysResult {
    const MSG_NOERROR: u32 = 0o10000;
    const MSG_EXCEPT: u32 = 0o20000;
    const MSG_COPY: u32 = 0o40000;
    let (id, at, size, kind, flags) = (a.int(0), a.addr(1), a.size(2), a.long(3), a.uint(4));
    if id < 0 || a.long(2) < 0 {
        return Err(Errno::EINVAL);
    }
    let taking = Taking {
        wanted: Wanted::new(kind, flags & MSG_EXCEPT != 0),
        room: size,
        truncates: flags & MSG_NOERROR != 0,
    };
    let nowait = flags & IPC_NOWAIT != 0;
    if flags & MSG_COPY != 0 {
        if flags & MSG_EXCEPT != 0 || !nowait {
            return Err(Errno::EINVAL);
        }
        let mut room = msg::room(size)?;
        let (kind, bytes) = msg::copy(id, kind, taking, &mut room)?;
        return write_message(at, kind, &room[..bytes], size);
    }
    // As on Linux, the message is lost if it cannot be written to the program.
    let message = msg::receive(id, taking, nowait)?;
    write_message(at, message.kind, message.body.bytes(), size)
}

fn write_status(address: u64, status: &Status) -> Result<(), Errno> {
    UserPtr::new(address).write(&MsgDs {
        owner: permissions(status.id, &status.owner),
        sent: status.sent.seconds,
        received: status.received.seconds,
        changed: status.owner.changed,
        bytes: status.bytes as u64,
        messages: status.messages as u64,
        most_bytes: status.most_bytes as u64,
        last_sender: status.sent.pid,
        last_receiver: status.received.pid,
        ..MsgDs::new_zeroed()
    })
}

/// Writes the limits to the program, with Linux's constants for limits that it does not apply. If
/// `in_use` is set, writes the present numbers of queues, messages and bytes in place of three
/// constants. Returns the highest place in use. Fails with `EFAULT` for a bad address.
fn write_limits(address: u64, in_use: bool) -> SysResult {
    const POOL_KIB: u32 = 512_000;
    const QUEUE: u32 = 16_384;
    let totals = msg::totals();
    let or = |used: usize, limit| if in_use { word(used as u64) } else { limit };
    // Relaxed: each a value of its own.
    let limit = |limit: &core::sync::atomic::AtomicU64| word(limit.load(Ordering::Relaxed));
    UserPtr::new(address).write(&MsgInfo {
        pool: or(totals.queues, POOL_KIB),
        map: or(totals.messages, QUEUE),
        most_message: limit(&LIMITS.message),
        most_queue: limit(&LIMITS.queue),
        most_queues: limit(&LIMITS.queues),
        segment_size: 16,
        messages: or(totals.bytes, QUEUE),
        segments: u16::MAX,
        padding: 0,
    })?;
    Ok(totals.highest)
}

/// `msgctl(2)`.
pub fn msgctl(a: &Args) -> SysResult {
    const MSG_STAT: i32 = 11;
    const MSG_INFO: i32 = 12;
    const MSG_STAT_ANY: i32 = 13;
    let (id, command, buffer) = (a.int(0), a.int(1), a.addr(2));
    if id < 0 || command < 0 {
        return Err(Errno::EINVAL);
    }
    match command {
        IPC_INFO => write_limits(buffer, false),
        MSG_INFO => write_limits(buffer, true),
        IPC_STAT => {
            let status = msg::status(id)?;
            status.owner.check(READ)?;
            write_status(buffer, &status)?;
            Ok(0)
        }
        MSG_STAT | MSG_STAT_ANY => {
            let status = msg::status_at(id)?;
            if command == MSG_STAT {
                status.owner.check(READ)?;
            }
            write_status(buffer, &status)?;
            result(status.id)
        }
        IPC_SET => {
            let new = UserPtr::<MsgDs>::new(buffer).read()?;
            msg::status(id)?.owner.check_change()?;
            let raises = new.most_bytes > LIMITS.queue.load(Ordering::Relaxed);
            if raises && !caller::can(Capabilities::SYS_RESOURCE) {
                return Err(Errno::EPERM);
            }
            let owner = [new.owner.uid, new.owner.gid];
            msg::set(id, owner, new.owner.mode, new.most_bytes).map(|()| 0)
        }
        IPC_RMID => msg::remove(id).map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}
