//! The process or thread of a directory of `/proc`, and the kinds of its entries.

use crate::fs::node::NodeId;
use crate::fs::{Context, FileTable, devices};
use crate::process::caller;
use crate::process::task::{self, Process, Task};
use crate::vm::AddressSpace;
use alloc::sync::{Arc, Weak};
use logic::credentials::others::LooksAs;
use logic::errno::Errno;

/// Inode numbers of processes' files start here: `PID << PID_SHIFT | file`.
pub(super) const PID_SHIFT: u32 = 32;

/// Whether a node is about a process or a thread, and lasts no longer.
pub fn is_of_process(id: NodeId) -> bool {
    id.device == devices::PROC && id.inode >> PID_SHIFT != 0
}

/// A process or thread number as the name of a directory: no sign, no leading zero.
pub(super) fn parse_number(name: &[u8]) -> Option<u32> {
    if name.first() == Some(&b'0') || !name.iter().all(u8::is_ascii_digit) {
        return None;
    }
    core::str::from_utf8(name).ok()?.parse().ok()
}

/// Whom a directory is about: a process, or one of its threads.
#[derive(Clone)]
pub(super) struct Subject {
    pub(super) pid: u32,
    pub(super) tid: Option<u32>,
    /// The process as it was found: its number may have been given to another since.
    pub(super) found: Weak<Process>,
}

impl Subject {
    /// Returns the process, until it is reaped.
    ///
    /// # Errors
    /// `ESRCH`: the process was reaped, or the directory is about a thread that has ended. The
    /// leader's directory stays until the process is reaped.
    pub(super) fn process(&self) -> Result<Arc<Process>, Errno> {
        let process = task::find(self.pid).ok_or(Errno::ESRCH)?;
        let same = core::ptr::eq(self.found.as_ptr(), Arc::as_ptr(&process));
        let lists = |tid| tid == self.pid || process.thread(tid).is_some();
        if same && self.tid.is_none_or(lists) {
            Ok(process)
        } else {
            Err(Errno::ESRCH)
        }
    }

    /// Returns the thread, or the process's main one. Returns `None` if it has ended.
    pub(super) fn task(&self, process: &Process) -> Option<Arc<Task>> {
        process.thread(self.number())
    }

    /// Returns `true` if the thread with this subject's number has ended. It stays in `/proc` until
    /// its process is reaped if it is the main thread. As on Linux it has no address space, files
    /// or directories any more then, even if other threads still use those of the process.
    pub(super) fn has_ended(&self, process: &Process) -> bool {
        self.task(process).is_none()
    }

    /// Returns the address space, or `None` if the thread has ended.
    pub(super) fn space(&self, process: &Process) -> Option<Arc<AddressSpace>> {
        process.vm().filter(|_| !self.has_ended(process))
    }

    /// Returns the address space for a caller that may look into the process, for as long as a
    /// process uses it. Returns an empty reference if the thread has ended.
    ///
    /// # Errors
    /// Fails with `EACCES` if the caller may not, and with `ESRCH` if the process was reaped.
    pub(super) fn open_space(&self) -> Result<Weak<AddressSpace>, Errno> {
        let process = self.process()?;
        if self.has_ended(&process) {
            return Ok(Weak::new());
        }
        match caller::space_of(&process, LooksAs::OfFiles) {
            Ok(space) => Ok(Arc::downgrade(&space)),
            Err(Errno::ESRCH) => Ok(Weak::new()),
            Err(_) => Err(Errno::EACCES),
        }
    }

    /// Returns the table of open files, or `None` if the thread has ended.
    pub(super) fn files(&self, process: &Process) -> Option<Arc<FileTable>> {
        process.files().filter(|_| !self.has_ended(process))
    }

    /// Returns the root and working directory, or `None` if the thread has ended.
    pub(super) fn fs(&self, process: &Process) -> Option<Arc<Context>> {
        process.fs().filter(|_| !self.has_ended(process))
    }

    /// The thread's number, or the process's.
    pub(super) fn number(&self) -> u32 {
        self.tid.unwrap_or(self.pid)
    }

    /// Returns user and group of the process's files: root if other processes may not look into
    /// this one. Files for everyone (`open`) belong to the process's user even then.
    pub(super) fn owner(&self, open: bool) -> [u32; 2] {
        let Ok(process) = self.process() else {
            return [0; 2];
        };
        if !open && !process.is_dumpable() {
            return [0; 2];
        }
        let who = process.credentials();
        [who.users.effective, who.groups.effective]
    }

    /// Whether the caller may look into the process.
    ///
    /// # Errors
    /// `EACCES`; `ESRCH`: it is gone.
    pub(super) fn check_look(&self) -> Result<(), Errno> {
        let process = self.process()?;
        caller::look_into(&process, LooksAs::OfFiles).map_err(|_| Errno::EACCES)
    }

    /// The inode number of file `file` of this subject: 0 is the directory itself.
    pub(super) fn inode(&self, file: u64) -> u64 {
        /// This bit distinguishes a thread's files from the process's.
        const THREAD: u64 = 1 << 24;
        let base = u64::from(self.number()) << PID_SHIFT;
        base | file | if self.tid.is_some() { THREAD } else { 0 }
    }
}

/// What a directory about a process lists.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Everything about it.
    Top,
    /// Its descriptors, as links.
    Descriptors,
    /// Its descriptors, as texts.
    DescriptorInfos,
    /// The network, which is the same for all processes.
    Net,
    /// Its threads.
    Threads,
    /// Its namespaces.
    Namespaces,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Top => "",
            Self::Descriptors => "fd",
            Self::DescriptorInfos => "fdinfo",
            Self::Net => "net",
            Self::Threads => "task",
            Self::Namespaces => "ns",
        }
    }

    /// File numbers of the directories: behind all of `ENTRIES` and `LINKS`.
    pub(super) const fn file(self) -> u64 {
        match self {
            Self::Top => 0,
            Self::Descriptors => 0x81,
            Self::DescriptorInfos => 0x82,
            Self::Net => 0x84,
            Self::Threads => 0x83,
            Self::Namespaces => 0x85,
        }
    }
}
