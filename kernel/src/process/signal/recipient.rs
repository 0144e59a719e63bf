//! Threads, processes and groups that get signals about descriptors (`F_SETOWN`).

use super::info::SI_SIGIO;
use super::{Detail, SigInfo, Signal, send_to_process, send_to_task};
use crate::fs::owner::{Band, Kind, Notice, Recipient, What};
use crate::process;
use crate::process::task::{Process, Task, table};
use alloc::sync::{Arc, Weak};
use logic::credentials::Credentials;
use logic::errno::Errno;
use machine::sched::cond_resched;

struct Whole(Weak<Process>);

struct Thread {
    task: Weak<Task>,
    /// Whether the signals go to the process of `task`: a program has named the process by the
    /// number of this thread, which is not its main thread.
    whole: bool,
}

/// A group by its number. Its members at the time of a signal get it.
struct Group(u32);

/// The sender yields the CPU after this number of examined processes.
const BREATH: u32 = 64;

/// Returns whether signals may go to a recipient with the credentials `to`, as on Linux. The array
/// holds the real and the effective user of the task that named the recipient.
fn may_tell([real, effective]: [u32; 2], to: &Credentials) -> bool {
    let theirs = [to.users.real, to.users.saved];
    effective == 0 || theirs.contains(&effective) || theirs.contains(&real)
}

/// Returns whether the signal has its own values of `si_code`.
fn has_codes(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::SIGILL
            | Signal::SIGFPE
            | Signal::SIGSEGV
            | Signal::SIGBUS
            | Signal::SIGTRAP
            | Signal::SIGCHLD
            | Signal::SIGSYS
    )
}

/// Sends a signal about `notice` to the recipient with the credentials `to` by calling `send`, if
/// [`may_tell`] allows it. Sends SIGURG for urgent data, and otherwise the chosen signal. Sends
/// SIGIO if none is chosen or `send` fails for the chosen one.
fn tell(notice: Notice, to: &Credentials, send: impl Fn(SigInfo) -> Result<(), Errno>) {
    if !may_tell(notice.users, to) {
        return;
    }
    let plain = match notice.what {
        What::Urgent => Signal::SIGURG,
        What::Descriptor { signal, fd, band } => {
            if let Some(signal) = Signal::new(signal) {
                let code = if has_codes(signal) {
                    SI_SIGIO
                } else {
                    band as i32
                };
                let info = SigInfo {
                    signal,
                    errno: 0,
                    code,
                    detail: Detail::Descriptor {
                        band: band.events().into(),
                        fd,
                    },
                };
                if send(info).is_ok() {
                    return;
                }
            }
            Signal::SIGIO
        }
    };
    // A signal without details needs no room.
    let _ = send(SigInfo::kernel(plain));
}

impl Recipient for Thread {
    fn number(&self) -> Option<u32> {
        let task = self.task.upgrade().filter(|_| !self.whole)?;
        let known = table::find_task(task.tid())?;
        Arc::ptr_eq(&known, &task).then(|| task.tid())
    }

    fn tell(&self, notice: Notice) {
        if let Some(task) = self.task.upgrade() {
            tell(notice, &task.credentials_for_others(), |info| {
                if self.whole {
                    send_to_process(task.process(), info)
                } else {
                    send_to_task(&task, info)
                }
            });
        }
    }
}

impl Recipient for Whole {
    fn number(&self) -> Option<u32> {
        let process = self.0.upgrade()?;
        let known = table::find(process.pid())?;
        Arc::ptr_eq(&known, &process).then(|| process.pid())
    }

    fn tell(&self, notice: Notice) {
        if let Some(process) = self.0.upgrade() {
            tell(notice, &process.credentials(), |info| {
                send_to_process(&process, info)
            });
        }
    }
}

impl Recipient for Group {
    fn number(&self) -> Option<u32> {
        table::lock().group_exists(self.0).then_some(self.0)
    }

    fn tell(&self, notice: Notice) {
        let mut next = table::next_process(1);
        let mut looked = 0_u32;
        // Ends: visits each process of the table once.
        while let Some(process) = next {
            if process.pgid() == self.0 {
                tell(notice, &process.credentials(), |info| {
                    send_to_process(&process, info)
                });
            }
            looked += 1;
            if looked.is_multiple_of(BREATH) {
                cond_resched();
            }
            next = table::next_process(process.pid() + 1);
        }
    }
}

/// Returns the recipient of signals about a descriptor with the kind `kind` and the number
/// `number`. Returns `None` if no thread, process or group uses the number.
pub(crate) fn find(kind: Kind, number: u32) -> Option<(Kind, Arc<dyn Recipient>)> {
    let table = table::lock();
    if !table.is_used(number) {
        return None;
    }
    let task = table.task(number).filter(|task| !task.is_kernel());
    let thread = |whole| Thread {
        task: task.map(Arc::downgrade).unwrap_or_default(),
        whole,
    };
    let recipient: Arc<dyn Recipient> = match kind {
        Kind::Thread => Arc::new(thread(false)),
        Kind::Process => match table.process(number) {
            Some(process) => Arc::new(Whole(Arc::downgrade(process))),
            None => Arc::new(thread(true)),
        },
        Kind::Group => Arc::new(Group(number)),
    };
    Some((kind, recipient))
}

/// Returns the calling process as the recipient of signals about a descriptor. It is never `None`.
pub(crate) fn caller() -> Option<(Kind, Arc<dyn Recipient>)> {
    let process = Arc::downgrade(process::current().process());
    Some((Kind::Process, Arc::new(Whole(process))))
}

const _: () = assert!(Band::HangUp as i32 == 6, "Linux's POLL_HUP");
