//! Threads, processes and groups that signals tell of descriptors (`F_SETOWN`).

use super::info::SI_SIGIO;
use super::{Detail, SigInfo, Signal, send_to_process, send_to_task};
use crate::fs::owner::{Band, Kind, Notice, Recipient};
use crate::process;
use crate::process::task::{Process, Task, table};
use alloc::sync::{Arc, Weak};
use logic::credentials::Credentials;
use logic::errno::Errno;
use machine::sched::cond_resched;

struct Thread(Weak<Task>);

struct Whole(Weak<Process>);

/// The process of a thread that is not its first, as long as the thread is there.
struct ByThread(Weak<Task>);

/// By its number: a group is whoever is in it at the time.
struct Group(u32);

/// Who sends lets others run after so many processes that it has looked at.
const BREATH: u32 = 64;

/// Whether the users of who named an owner may send it signals, as on Linux.
fn may_tell([real, effective]: [u32; 2], to: &Credentials) -> bool {
    let theirs = [to.users.real, to.users.saved];
    effective == 0 || theirs.contains(&effective) || theirs.contains(&real)
}

/// Signals with codes of their own.
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

/// Sends the chosen signal, and SIGIO where none is chosen or it finds no room.
fn tell(notice: Notice, send: impl Fn(SigInfo) -> Result<(), Errno>) {
    if let Some(signal) = Signal::new(notice.signal) {
        let code = if has_codes(signal) {
            SI_SIGIO
        } else {
            notice.band as i32
        };
        let info = SigInfo {
            signal,
            errno: 0,
            code,
            detail: Detail::Descriptor {
                band: notice.band.events().into(),
                fd: notice.fd,
            },
        };
        if send(info).is_ok() {
            return;
        }
    }
    // Without details it needs no room.
    let _ = send(SigInfo::kernel(Signal::SIGIO));
}

impl Recipient for Thread {
    fn number(&self) -> Option<u32> {
        let task = self.0.upgrade()?;
        let known = table::find_task(task.tid())?;
        Arc::ptr_eq(&known, &task).then(|| task.tid())
    }

    fn tell(&self, notice: Notice) {
        if let Some(task) = self.0.upgrade()
            && may_tell(notice.users, &task.credentials_for_others())
        {
            tell(notice, |info| send_to_task(&task, info));
        }
    }

    fn tell_urgent(&self, users: [u32; 2]) {
        if let Some(task) = self.0.upgrade()
            && may_tell(users, &task.credentials_for_others())
        {
            let _ = send_to_task(&task, SigInfo::kernel(Signal::SIGURG));
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
        if let Some(process) = self.0.upgrade()
            && may_tell(notice.users, &process.credentials())
        {
            tell(notice, |info| send_to_process(&process, info));
        }
    }

    fn tell_urgent(&self, users: [u32; 2]) {
        if let Some(process) = self.0.upgrade()
            && may_tell(users, &process.credentials())
        {
            let _ = send_to_process(&process, SigInfo::kernel(Signal::SIGURG));
        }
    }
}

impl Recipient for ByThread {
    /// It is no process's.
    fn number(&self) -> Option<u32> {
        None
    }

    fn tell(&self, notice: Notice) {
        if let Some(task) = self.0.upgrade()
            && may_tell(notice.users, &task.credentials_for_others())
        {
            tell(notice, |info| send_to_process(task.process(), info));
        }
    }

    fn tell_urgent(&self, users: [u32; 2]) {
        if let Some(task) = self.0.upgrade()
            && may_tell(users, &task.credentials_for_others())
        {
            let _ = send_to_process(task.process(), SigInfo::kernel(Signal::SIGURG));
        }
    }
}

impl Group {
    fn for_each(&self, users: [u32; 2], send: impl Fn(&Arc<Process>)) {
        let mut next = table::next_process(1);
        let mut looked = 0_u32;
        // Once through the table.
        while let Some(process) = next {
            if process.pgid() == self.0 && may_tell(users, &process.credentials()) {
                send(&process);
            }
            looked += 1;
            if looked.is_multiple_of(BREATH) {
                cond_resched();
            }
            next = table::next_process(process.pid() + 1);
        }
    }
}

impl Recipient for Group {
    fn number(&self) -> Option<u32> {
        table::lock().group_exists(self.0).then_some(self.0)
    }

    fn tell(&self, notice: Notice) {
        self.for_each(notice.users, |process| {
            tell(notice, |info| send_to_process(process, info));
        });
    }

    fn tell_urgent(&self, users: [u32; 2]) {
        self.for_each(users, |process| {
            let _ = send_to_process(process, SigInfo::kernel(Signal::SIGURG));
        });
    }
}

/// Who has this number; `None`: it stands for nothing.
pub(crate) fn find(kind: Kind, number: u32) -> Option<(Kind, Arc<dyn Recipient>)> {
    let table = table::lock();
    if !table.is_used(number) {
        return None;
    }
    let recipient: Arc<dyn Recipient> = match kind {
        Kind::Thread => {
            let task = table.task(number).filter(|task| !task.is_kernel());
            Arc::new(Thread(task.map(Arc::downgrade).unwrap_or_default()))
        }
        Kind::Process => match (table.process(number), table.task(number)) {
            (None, Some(task)) if !task.is_kernel() => Arc::new(ByThread(Arc::downgrade(task))),
            (process, _) => Arc::new(Whole(process.map(Arc::downgrade).unwrap_or_default())),
        },
        Kind::Group => Arc::new(Group(number)),
    };
    Some((kind, recipient))
}

/// The calling process.
pub(crate) fn caller() -> Option<(Kind, Arc<dyn Recipient>)> {
    let process = Arc::downgrade(process::current().process());
    Some((Kind::Process, Arc::new(Whole(process))))
}

const _: () = assert!(Band::HangUp as i32 == 6, "Linux's POLL_HUP");
