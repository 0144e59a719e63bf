//! Calls on POSIX message queues.

use super::Args;
use super::record::MqAttr;
use crate::fs::{Context, OpenFlags, permission};
use crate::process;
use crate::process::caller;
use crate::process::ipc::Body;
use crate::process::ipc::mqueue::{self, Courier, Making, MessageQueue, Notice, PRIORITIES, Size};
use crate::process::signal::Signal;
use crate::process::task::limits;
use crate::process::time::values::Timespec;
use crate::process::time::wall::Deadline;
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use logic::credentials::{Capabilities, Wanted};
use logic::errno::{Errno, SysResult};
use logic::message_queue::Message;
use machine::uaccess::{self, UserPtr};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The longest name that a program may pass, with its NUL.
const MAX_PATH: usize = 4096;

/// `mq_open(2)`.
pub fn mq_open(a: &Args) -> SysResult {
    let attributes = match a.addr(3) {
        0 => None,
        address => Some(UserPtr::<MqAttr>::new(address).read()?),
    };
    let name = uaccess::read_cstr(a.addr(0), MAX_PATH)?;
    let files = caller::files();
    files.check_room(caller::descriptor_limit())?;
    let flags = OpenFlags::from_user(a.0[1]);
    let size = match attributes {
        None => Size::default_size(),
        // Negative numbers are refused like 0.
        Some(asked) => Size {
            messages: u64::try_from(asked.most_messages).unwrap_or(0),
            message_bytes: u64::try_from(asked.message_size).unwrap_or(0),
        },
    };
    let making = flags.contains(OpenFlags::CREATE).then(|| Making {
        exclusive: flags.contains(OpenFlags::EXCLUSIVE),
        permissions: a.uint(2) & !caller::with_context(Context::umask),
        size,
        any_size: attributes.is_none() || caller::can(Capabilities::SYS_RESOURCE),
        any_number: caller::can(Capabilities::SYS_RESOURCE),
    });
    let limit = process::current().process().limit(limits::index::MSGQUEUE);
    let (queue, is_new) = mqueue::open(&name, making, limit)?;
    let wanted = match flags.bits() & raw::O_ACCMODE {
        0 => Wanted::READ,
        1 => Wanted::WRITE,
        _ => Wanted::READ | Wanted::WRITE,
    };
    let access = flags & OpenFlags::from_bits_retain(raw::O_ACCMODE);
    if !is_new && access.bits() == raw::O_ACCMODE {
        return Err(Errno::EINVAL);
    }
    if !is_new {
        caller::with_credentials(|who| permission::check(who, &*queue, wanted))?;
    }
    let kept = access | flags & OpenFlags::NONBLOCK;
    // As on Linux it closes on exec with any flags.
    caller::install(queue.to_file(kept), true)
}

/// `mq_unlink(2)`.
pub fn mq_unlink(a: &Args) -> SysResult {
    mqueue::unlink(&uaccess::read_cstr(a.addr(0), MAX_PATH)?)?;
    Ok(0)
}

/// Reads the deadline at `address`, a time on the wall clock. Returns `None` for a null pointer:
/// the call then waits without a deadline. Fails with `EFAULT` for a bad address, and with `EINVAL`
/// for an invalid time.
fn deadline(address: u64) -> Result<Option<Deadline>, Errno> {
    if address == 0 {
        return Ok(None);
    }
    let time = Timespec::read(address)?;
    Ok(Some(Deadline::Wall(time)))
}

/// `mq_timedsend(2)`.
pub fn mq_timedsend(a: &Args) -> SysResult {
    let deadline = deadline(a.addr(4))?;
    let priority = a.uint(3);
    if priority >= PRIORITIES {
        return Err(Errno::EINVAL);
    }
    let file = caller::file(a.int(0))?;
    let queue = MessageQueue::of(&file)?;
    if !file.flags().writable() {
        return Err(Errno::EBADF);
    }
    let bytes = a.size(2);
    if bytes as u64 > queue.size().message_bytes {
        return Err(Errno::EMSGSIZE);
    }
    let blocks = !file.flags().nonblocking();
    Deadline::hold(deadline, |deadline| {
        let body = Body::new(bytes, |body| uaccess::copy_in(body, a.addr(1)))?;
        let message = Message {
            kind: priority.into(),
            bytes,
            body,
        };
        queue.send(message, blocks.then_some(deadline))
    })?;
    Ok(0)
}

/// `mq_timedreceive(2)`.
pub fn mq_timedreceive(a: &Args) -> SysResult {
    let deadline = deadline(a.addr(4))?;
    let file = caller::file(a.int(0))?;
    let queue = MessageQueue::of(&file)?;
    if !file.flags().readable() {
        return Err(Errno::EBADF);
    }
    if (a.size(2) as u64) < queue.size().message_bytes {
        return Err(Errno::EMSGSIZE);
    }
    let blocks = !file.flags().nonblocking();
    let message = Deadline::hold(deadline, |deadline| {
        queue.receive(blocks.then_some(deadline))
    })?;
    if a.addr(3) != 0 {
        // Below PRIORITIES.
        let priority = u32::try_from(message.kind).unwrap_or(0);
        UserPtr::new(a.addr(3)).write(&priority)?;
    }
    uaccess::copy_out(a.addr(1), message.body.bytes())?;
    Ok(message.bytes)
}

/// `struct sigevent`, with the fields that the kernel reads.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SigEvent {
    value: u64,
    signal: u32,
    notify: u32,
    unused: [u64; 6],
}

/// `mq_notify(2)`. With `SIGEV_THREAD`, the kernel notifies a netlink socket, and glibc or musl
/// then starts the thread.
pub fn mq_notify(a: &Args) -> SysResult {
    const SIGEV_SIGNAL: u32 = raw::SIGEV_SIGNAL;
    const SIGEV_NONE: u32 = raw::SIGEV_NONE;
    const SIGEV_THREAD: u32 = raw::SIGEV_THREAD;
    const MAX_SIGNAL: u32 = process::signal::MAX_SIGNAL;
    let notice = match a.addr(1) {
        0 => None,
        address => {
            let event = UserPtr::<SigEvent>::new(address).read()?;
            Some(match (event.notify, event.signal) {
                (SIGEV_NONE, _) => Notice::Nothing,
                (SIGEV_SIGNAL, number @ 0..=MAX_SIGNAL) => {
                    Notice::Signal(Signal::new(number), event.value)
                }
                (SIGEV_THREAD, fd) => {
                    let cookie = UserPtr::<[u8; Courier::BYTES]>::new(event.value).read()?;
                    Notice::Thread(Courier::new(&caller::file(fd.cast_signed())?, cookie)?)
                }
                _ => return Err(Errno::EINVAL),
            })
        }
    };
    let queue: Arc<MessageQueue> = MessageQueue::of(&*caller::file(a.int(0))?)?;
    match notice {
        Some(notice) => queue.register(notice)?,
        None => queue.unregister(),
    }
    Ok(0)
}

/// `mq_getsetattr(2)`.
pub fn mq_getsetattr(a: &Args) -> SysResult {
    let nonblock = i64::from(OpenFlags::NONBLOCK.bits());
    let new = match a.addr(1) {
        0 => None,
        address => Some(UserPtr::<MqAttr>::new(address).read()?.flags),
    };
    if new.is_some_and(|flags| flags & !nonblock != 0) {
        return Err(Errno::EINVAL);
    }
    let file = caller::file(a.int(0))?;
    let queue = MessageQueue::of(&file)?;
    let flags = file.flags();
    let old = MqAttr {
        flags: i64::from((flags & OpenFlags::NONBLOCK).bits()),
        // Both far below 2^63.
        most_messages: queue.size().messages.cast_signed(),
        message_size: queue.size().message_bytes.cast_signed(),
        messages: (queue.messages() as u64).cast_signed(),
        unused: [0; 4],
    };
    if let Some(new) = new {
        let mut flags = flags;
        flags.set(OpenFlags::NONBLOCK, new != 0);
        file.set_flags(flags);
    }
    if a.addr(2) != 0 {
        UserPtr::new(a.addr(2)).write(&old)?;
    }
    Ok(0)
}
