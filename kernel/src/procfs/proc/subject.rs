//! The process or thread of a directory of `/proc`, and the kinds of its entries.

use crate::fs::node::NodeId;
use crate::fs::{Context, FileTable, devices};
use crate::process::caller;
use crate::process::task::{self, Process, Task};
use crate::vm::AddressSpace;
use alloc::sync::{Arc, Weak};
use logic::credentials::others::LooksAs;
use logic::errno::Errno;

/// The bit of an inode number from which on it holds the number of the process or thread: `number
/// << PID_SHIFT | file`.
pub(super) const PID_SHIFT: u32 = 32;

/// Returns whether the node `id` belongs to the directory of a process or thread, and so disappears
/// with the process or thread.
pub fn is_of_process(id: NodeId) -> bool {
    id.device == devices::PROC && id.inode >> PID_SHIFT != 0
}

/// Returns the number of the process or thread whose directory has the name `name`. Returns `None`
/// if the name is not a decimal number of 32 bits, or has a sign or a leading zero.
pub(super) fn parse_number(name: &[u8]) -> Option<u32> {
    if name.first() == Some(&b'0') || !name.iter().all(u8::is_ascii_digit) {
        return None;
    }
    core::str::from_utf8(name).ok()?.parse().ok()
}

/// The process or thread that a directory of `/proc` shows.
#[derive(Clone)]
pub(super) struct Subject {
    /// The number of the process.
    pub(super) pid: u32,
    /// The number of the thread. `None` for the directory of a process.
    pub(super) tid: Option<u32>,
    /// The process that was found when the directory was looked up. Another process may have the
    /// number by now.
    pub(super) found: Weak<Process>,
}

impl Subject {
    /// Returns the process of the subject.
    ///
    /// # Errors
    /// Fails with `ESRCH` if the process was reaped, or if the directory is that of a thread that
    /// has ended. The directory of the main thread stays until the process is reaped.
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

    /// Returns the subject's thread, or the main thread if the subject is a process. `process` is
    /// the subject's process. Returns `None` if the thread has ended.
    pub(super) fn task(&self, process: &Process) -> Option<Arc<Task>> {
        process.thread(self.number())
    }

    /// Returns whether the thread with this subject's number has ended. A main thread that has
    /// ended stays in `/proc` until its process is reaped. As on Linux, it has no address space,
    /// files or directories any more, even if other threads still use those of the process.
    pub(super) fn has_ended(&self, process: &Process) -> bool {
        self.task(process).is_none()
    }

    /// Returns the address space of `process`, the subject's process. Returns `None` if the
    /// subject's thread has ended ([`Self::has_ended`]) or the process has no address space.
    pub(super) fn space(&self, process: &Process) -> Option<Arc<AddressSpace>> {
        process.vm().filter(|_| !self.has_ended(process))
    }

    /// Checks that the caller may inspect the process, and returns a weak reference to its address
    /// space. Returns a reference that cannot be upgraded if the main thread has ended
    /// ([`Self::has_ended`]) or the process has no address space.
    ///
    /// # Errors
    /// Fails with `EACCES` if the caller may not inspect the process. Fails with `ESRCH` as
    /// [`Self::process`] does: if the process was reaped, or the subject is another thread than the
    /// main thread and has ended.
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

    /// Returns the table of open files of `process`, the subject's process. Returns `None` if the
    /// subject's thread has ended or the process has no table any more.
    pub(super) fn files(&self, process: &Process) -> Option<Arc<FileTable>> {
        process.files().filter(|_| !self.has_ended(process))
    }

    /// Returns the root and working directory of `process`, the subject's process. Returns `None`
    /// if the subject's thread has ended or the process has no such directories any more.
    pub(super) fn fs(&self, process: &Process) -> Option<Arc<Context>> {
        process.fs().filter(|_| !self.has_ended(process))
    }

    /// Returns the number of the thread, or that of the process if the subject is a process.
    pub(super) fn number(&self) -> u32 {
        self.tid.unwrap_or(self.pid)
    }

    /// Returns the user and the group that own an entry of the subject's directory: the effective
    /// IDs of the process. `open` is `true` for directories with the mode 0555, and `false` for all
    /// other entries. If `open` is `false`, returns root if the process is not dumpable or the
    /// thread has ended. Always returns root if [`Self::process`] finds no process.
    pub(super) fn owner(&self, open: bool) -> [u32; 2] {
        let Ok(process) = self.process() else {
            return [0; 2];
        };
        if !open && (self.has_ended(&process) || !process.is_dumpable()) {
            return [0; 2];
        }
        let who = process.credentials();
        [who.users.effective, who.groups.effective]
    }

    /// Checks that the caller may inspect the process.
    ///
    /// # Errors
    /// Fails with `EACCES` if the caller may not, and with `ESRCH` if the process was reaped or the
    /// thread has ended.
    pub(super) fn check_look(&self) -> Result<(), Errno> {
        let process = self.process()?;
        caller::look_into(&process, LooksAs::OfFiles).map_err(|_| Errno::EACCES)
    }

    /// Returns the inode number of the file with the number `file` in the subject's directory. The
    /// directory itself has the number 0.
    pub(super) fn inode(&self, file: u64) -> u64 {
        /// This bit distinguishes a thread's files from the process's.
        const THREAD: u64 = 1 << 24;
        let base = u64::from(self.number()) << PID_SHIFT;
        base | file | if self.tid.is_some() { THREAD } else { 0 }
    }
}

/// The content of a directory about a process.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// All files and directories about the process.
    Top,
    /// The descriptors of the process, as links (`fd`).
    Descriptors,
    /// The descriptors of the process, as texts (`fdinfo`).
    DescriptorInfos,
    /// The network, which is the same for all processes.
    Net,
    /// The threads of the process.
    Threads,
    /// The namespaces of the process.
    Namespaces,
}

impl Kind {
    /// Returns the name of the directory in the directory of the process or thread. Returns an
    /// empty string for [`Kind::Top`], whose name is the number of its process or thread.
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

    /// Returns the number of the directory among the files of a process, from which
    /// [`Subject::inode`] makes its inode number. 0 is the directory of the process itself. The
    /// other numbers are above those of the files and links in that directory.
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
