//! signalfd: signals that are read from a descriptor.
//!
//! The file holds only a set of signals. The signals that it returns are those pending for the
//! reading thread and its process.

use super::{AUDIT_ARCH, Detail, SigInfo, SigSet, take_awaited};
use crate::fs::io::ByteSink;
use crate::fs::poll::{Notifier, PollMask};
use crate::fs::{File, OpenFlags};
use crate::process;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use logic::errno::{Errno, SysResult};
use machine::sync::SpinLock;
use zerocopy::{Immutable, IntoBytes};

/// Size in bytes of `struct signalfd_siginfo`.
const RECORD_BYTES: usize = 128;

/// The file behind a signalfd.
#[derive(Debug)]
pub struct SignalFile {
    wanted: SpinLock<SigSet>,
    /// The notifiers by which epoll sets watch the file: one for each process that added it to a
    /// set, since each waits for its own signals.
    watched_by: SpinLock<Vec<Weak<Notifier>>>,
}

/// `struct signalfd_siginfo`.
#[derive(Default, IntoBytes, Immutable)]
#[repr(C)]
struct Record {
    signal: u32,
    errno: i32,
    code: i32,
    pid: u32,
    uid: u32,
    fd: i32,
    timer: u32,
    band: u32,
    overrun: u32,
    trap: u32,
    status: i32,
    integer: i32,
    value: u64,
    user_time: u64,
    system_time: u64,
    address: u64,
    rest: [u64; 6],
}

const _: () = assert!(size_of::<Record>() == RECORD_BYTES);

impl From<&SigInfo> for Record {
    fn from(info: &SigInfo) -> Self {
        let mut record = Self {
            signal: info.signal.number(),
            errno: info.errno,
            code: info.code,
            ..Self::default()
        };
        let mut set_value = |value: u64| {
            record.value = value;
            // The `int` of the union is the low half.
            let [a, b, c, d, ..] = value.to_le_bytes();
            record.integer = i32::from_le_bytes([a, b, c, d]);
        };
        match info.detail {
            Detail::Sender { pid, uid } => (record.pid, record.uid) = (pid, uid),
            Detail::Queued { pid, uid, value } => {
                set_value(value);
                (record.pid, record.uid) = (pid, uid);
            }
            Detail::Timer {
                id, overrun, value, ..
            } => {
                set_value(value);
                record.timer = id.cast_unsigned();
                record.overrun = overrun.cast_unsigned();
            }
            Detail::Child {
                pid,
                uid,
                status,
                utime,
                stime,
            } => {
                (record.pid, record.uid) = (pid, uid);
                record.status = status;
                record.user_time = utime.cast_unsigned();
                record.system_time = stime.cast_unsigned();
            }
            Detail::Any(_) => {}
            Detail::Descriptor { band, fd } => {
                // All existing events have small numbers.
                record.band = u32::try_from(band).unwrap_or(0);
                record.fd = fd;
            }
            Detail::Fault { address } => record.address = address,
            Detail::Call { address, number } => {
                let number = u64::from(number.cast_unsigned());
                record.rest[..3].copy_from_slice(&[number << 32, address, AUDIT_ARCH.into()]);
            }
        }
        record
    }
}

impl SignalFile {
    /// Returns a file that returns the signals in `wanted`, without SIGKILL and SIGSTOP.
    pub fn new(wanted: SigSet) -> Self {
        Self {
            wanted: SpinLock::new(wanted.blockable()),
            watched_by: SpinLock::new(Vec::new()),
        }
    }

    /// Makes the file return the signals in `wanted`, without SIGKILL and SIGSTOP.
    pub fn set(&self, wanted: SigSet) {
        *self.wanted.lock() = wanted.blockable();
        process::current()
            .process()
            .signal_readers()
            .notify(PollMask::READABLE);
    }

    /// Returns the signals that a read of the file returns.
    pub fn wanted(&self) -> SigSet {
        *self.wanted.lock()
    }

    fn take(&self) -> Option<SigInfo> {
        take_awaited(process::current(), self.wanted())
    }
}

impl File for SignalFile {
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        let room = to.room() / RECORD_BYTES;
        if room == 0 {
            return Err(Errno::EINVAL);
        }
        let mut taken = self.take();
        if taken.is_none() {
            if flags.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            let readers = process::current().process().signal_readers();
            readers.queue().wait(|| {
                taken = self.take();
                taken.is_some()
            })?;
        }
        let mut count = 0;
        while let Some(info) = taken {
            // A signal that was taken is lost if the reader's buffer cannot be written, as on
            // Linux.
            match to.put(Record::from(&info).as_bytes()) {
                Ok(RECORD_BYTES) => count += RECORD_BYTES,
                Ok(_) | Err(_) if count != 0 => break,
                Ok(_) => return Err(Errno::EFAULT),
                Err(error) => return Err(error),
            }
            taken = if count / RECORD_BYTES < room {
                self.take()
            } else {
                None
            };
        }
        Ok(count)
    }

    fn poll(&self) -> PollMask {
        let task = process::current();
        let waiting = task
            .process()
            .pending_set()
            .union(task.signals().pending().set());
        if waiting.intersection(self.wanted()).is_empty() {
            PollMask::empty()
        } else {
            PollMask::READABLE
        }
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(process::current().process().signal_readers())
    }

    fn note_watch(&self, notifier: &Arc<Notifier>) -> Result<(), Errno> {
        let mut watched_by = self.watched_by.lock();
        // A process that has ended, and whose items have left all sets, has none any more.
        watched_by.retain(|known| known.strong_count() != 0);
        if !watched_by
            .iter()
            .any(|known| core::ptr::eq(known.as_ptr(), Arc::as_ptr(notifier)))
        {
            watched_by.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            watched_by.push(Arc::downgrade(notifier));
        }
        Ok(())
    }

    fn leave_sets(&self, open_file: usize) {
        let watched_by = core::mem::take(&mut *self.watched_by.lock());
        for notifier in watched_by.iter().filter_map(Weak::upgrade) {
            notifier.release(open_file);
        }
    }
}
