//! Applies all measures that confine a QEMU. `ebb` prepares them, and the new process applies them
//! before it executes QEMU.

use super::calls::HugePageAdvice;
use super::measures::Measure;
use super::namespaces::{Ids, NamespaceSetup, Namespaces};
use super::{calls, files};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{Gid, Uid};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Resource, Rlimit, Signal, geteuid, getpid, getppid, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::BpfProgram;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The flag of close_range(2) that marks descriptors to be closed by `exec`, instead of closing
/// them.
const CLOSE_BY_EXEC: u32 = 4;

/// The largest number of open descriptors of a QEMU.
const DESCRIPTORS_MAX: u64 = 1024;
/// The largest number of threads in addition to one per virtual CPU. QEMU starts a thread for each
/// block request in progress.
const THREADS_MAX: u64 = 256;
/// The largest private memory of a QEMU in bytes: 1 GiB of translated code, and the same again for
/// all else.
const DATA_MAX: u64 = 2 << 30;
/// Additional private memory in bytes for each virtual CPU: its thread's stack and heap.
const CPU_DATA_MAX: u64 = 64 << 20;
/// The guest's memory divided by this is additional private memory, for tables that describe guest
/// memory.
const DATA_SHARE: u64 = 64;

/// The resources of the host that a QEMU needs, which the sandbox allows it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Needs {
    /// Whether QEMU opens `/dev/kvm`.
    pub(crate) kvm: bool,
    /// The memory of the guest in bytes.
    pub(crate) memory_bytes: u64,
    /// The number of virtual CPUs.
    pub(crate) cpus: u32,
    /// An inherited file on a tmpfs that QEMU reopens, the guest's RAM.
    pub(crate) ram: Option<RawFd>,
}

/// The error if a host lacks seccomp or close_range(2), without which `ebb` confines no QEMU.
#[derive(Debug, thiserror::Error)]
#[error("QEMU cannot be confined on this host: {measure}")]
pub(crate) struct SandboxError {
    measure: Measure,
    source: io::Error,
}

/// The preparation of a [`QemuSandbox`], while a process creates its namespaces. It holds nothing
/// if QEMU will run unconfined.
#[derive(Debug)]
pub(crate) struct Preparation(Option<io::Result<NamespaceSetup>>);

/// The measures that confine the QEMUs of a run. It is empty if QEMU runs unconfined.
#[derive(Debug)]
pub(crate) struct QemuSandbox(Option<Confinement>);

#[derive(Debug)]
struct Confinement {
    namespaces: Option<Namespaces>,
    /// The user and groups of QEMU, if they differ from those of `ebb`.
    ids: Option<Ids>,
    filters: [BpfProgram; 2],
    missing: Vec<(Measure, String)>,
}

/// The result of [`QemuSandbox::apply_to`], which tells which measure failed if the new process
/// could not be started.
#[derive(Debug)]
pub(crate) struct Progress(OwnedFd);

impl Preparation {
    /// Starts to prepare a sandbox, without waiting. If `unconfined`, does nothing, and
    /// [`Self::finish`] returns an empty sandbox. If the process for the namespaces cannot be
    /// started, the sandbox will lack them.
    pub(crate) fn begin(unconfined: bool) -> Self {
        Self((!unconfined).then(NamespaceSetup::start))
    }

    /// Waits for the namespaces and returns the sandbox. `advice` says whether QEMU's
    /// `MADV_HUGEPAGE` is allowed. Other measures that this host lacks, such as namespaces and
    /// Landlock, are no error; [`QemuSandbox::missing`] lists them.
    ///
    /// # Errors
    /// If the seccomp filters cannot be made, or the kernel does not know close_range(2).
    pub(crate) fn finish(self, advice: HugePageAdvice) -> Result<QemuSandbox, SandboxError> {
        let Some(setup) = self.0 else {
            return Ok(QemuSandbox(None));
        };
        let lacks = |measure| move |source| SandboxError { measure, source };
        let filters = calls::of_qemu(advice).map_err(lacks(Measure::Seccomp))?;
        // The highest descriptor number is never open. This call only tests whether the kernel
        // knows close_range(2).
        calls::close_range(u32::MAX, u32::MAX, CLOSE_BY_EXEC)
            .map_err(lacks(Measure::Descriptors))?;
        let mut missing = Vec::new();
        let mut lacking = |measure, why: String| missing.push((measure, why));
        let namespaces = match setup.and_then(NamespaceSetup::finish) {
            Ok(namespaces) => {
                if let Err(error) = &namespaces.network {
                    lacking(Measure::NetworkNamespace, error.to_string());
                }
                if let Err(error) = &namespaces.ipc {
                    lacking(Measure::IpcNamespace, error.to_string());
                }
                Some(namespaces)
            }
            Err(error) => {
                for measure in [
                    Measure::UserNamespace,
                    Measure::NetworkNamespace,
                    Measure::IpcNamespace,
                ] {
                    lacking(measure, error.to_string());
                }
                None
            }
        };
        let ids = match &namespaces {
            Some(namespaces) => namespaces.ids,
            None if may_change_user() => Ids::nobody(),
            None => None,
        };
        if ids.is_none() && geteuid().is_root() {
            lacking(Measure::User, "root cannot become another user here".into());
        }
        if let Err(error) = files::rule(Path::new("/bin/sh"), None, None) {
            lacking(Measure::Files, error.to_string());
        }
        missing.sort();
        Ok(QemuSandbox(Some(Confinement {
            namespaces,
            ids,
            filters,
            missing,
        })))
    }
}

/// Returns whether `ebb` may change its user and group.
fn may_change_user() -> bool {
    let wanted = CapabilitySet::SETUID | CapabilitySet::SETGID;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
}

impl QemuSandbox {
    /// Returns an empty sandbox, with which QEMU keeps all rights of `ebb`.
    #[cfg(test)]
    pub(crate) fn open() -> Self {
        Self(None)
    }

    /// Returns whether QEMU is confined. Returns `false` for an empty sandbox.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the measures that this host lacks, sorted, each with the reason as text. The list is
    /// empty for an unconfined QEMU.
    pub(crate) fn missing(&self) -> &[(Measure, String)] {
        self.0.as_ref().map_or(&[], |inner| &inner.missing)
    }

    /// Returns the measures that are applied to each QEMU of the run. There are none for an
    /// unconfined QEMU.
    pub(crate) fn measures(&self) -> impl Iterator<Item = Measure> + '_ {
        let all = Measure::ALL.into_iter().filter(|_| self.is_closed());
        all.filter(|measure| !self.missing().iter().any(|(missing, _)| missing == measure))
    }

    /// Returns whether `ebb` must keep the capabilities to change users and to kill other users'
    /// processes. That is so if QEMU runs as another user without a user namespace.
    pub(crate) fn changes_user(&self) -> bool {
        let inner = self.0.as_ref();
        inner.is_some_and(|inner| inner.namespaces.is_none() && inner.ids.is_some())
    }

    /// Sets `command` up so that its process is confined before it executes `program`. Empties its
    /// environment. The process inherits the descriptors `kept` with the same numbers, and the
    /// caller keeps them open until it has started. The process is killed when the thread that
    /// starts it ends. `needs` has the resources that it may use. Without confinement, only the
    /// rules for descriptors and the thread hold. If starting the process fails, the result tells
    /// which measure failed.
    ///
    /// # Errors
    /// If the host cannot provide a descriptor, or a Landlock rule cannot be made.
    pub(crate) fn apply_to(
        &self,
        command: &mut Command,
        program: &Path,
        kept: &[OwnedFd],
        needs: Needs,
    ) -> io::Result<Progress> {
        let told = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let tells = told.try_clone()?;
        let kept: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).collect();
        let parent = getpid();
        let Some(inner) = &self.0 else {
            let begin = move || {
                keep_open(&kept)?;
                Ok(die_with(parent)?)
            };
            // SAFETY: the closure runs in the forked child before exec. It makes system calls, and
            // it neither allocates nor takes a lock.
            unsafe { command.pre_exec(begin) };
            return Ok(Progress(told));
        };
        let own_kvm = inner.namespaces.as_ref().and_then(Namespaces::kvm);
        let is_missing = |measure| inner.missing.iter().any(|(missing, _)| *missing == measure);
        let mut entry = Entry {
            parent,
            kept,
            ids: inner.ids.map(|ids| ids.of_process(needs.kvm)),
            namespaces: inner
                .namespaces
                .as_ref()
                .map(Namespaces::try_clone)
                .transpose()?,
            needs,
            files: (!is_missing(Measure::Files))
                .then(|| files::rule(program, own_kvm, needs.ram))
                .transpose()?,
            filters: inner.filters.clone(),
        };
        command.env_clear();
        let enter = move || {
            entry.enter().map_err(|(measure, error)| {
                let number = Measure::ALL.iter().position(|one| *one == measure);
                let number = number.map_or(0, |at| at as u64 + 1);
                // If this write fails, the error alone must explain the failure.
                let _ = rustix::io::write(&tells, &number.to_ne_bytes());
                error
            })
        };
        // SAFETY: the closure runs in the forked child before exec. `enter` makes system calls with
        // values that were prepared before the fork. It neither allocates nor takes a lock.
        unsafe { command.pre_exec(enter) };
        Ok(Progress(told))
    }
}

impl fmt::Display for QemuSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(inner) = &self.0 else {
            return f.write_str("QEMU is not confined");
        };
        let names: Vec<_> = self.measures().map(|measure| measure.to_string()).collect();
        write!(f, "QEMU is confined: {}", names.join(", "))?;
        if let Some(ids) = inner.ids {
            write!(f, "; its user is {}", ids.user)?;
        }
        Ok(())
    }
}

impl Progress {
    /// Returns the measure that failed in a process that could not be started. Returns `None` if no
    /// measure failed, or if this was called before.
    pub(crate) fn failed(&self) -> Option<Measure> {
        let mut bytes = [0; 8];
        rustix::io::read(&self.0, &mut bytes).ok()?;
        let number = usize::try_from(u64::from_ne_bytes(bytes)).ok()?;
        Measure::ALL.get(number.checked_sub(1)?).copied()
    }
}

/// The steps that a new process performs before it executes QEMU.
struct Entry {
    parent: rustix::process::Pid,
    kept: Vec<RawFd>,
    ids: Option<(u32, u32)>,
    namespaces: Option<Namespaces>,
    needs: Needs,
    files: Option<OwnedFd>,
    filters: [BpfProgram; 2],
}

impl Entry {
    /// Applies all measures to the calling process. Allocates nothing. The error names the measure
    /// that failed.
    fn enter(&mut self) -> Result<(), (Measure, io::Error)> {
        let failed = |measure| move |error: Errno| (measure, error.into());
        keep_open(&self.kept).map_err(|error| (Measure::Descriptors, error))?;
        if let Some(namespaces) = &self.namespaces {
            namespaces
                .enter(self.needs.kvm)
                .map_err(failed(Measure::UserNamespace))?;
        }
        // The change of the mount namespace has also changed the working folder.
        rustix::process::chdir(c"/").map_err(failed(Measure::Folder))?;
        bound_capabilities().map_err(failed(Measure::Capabilities))?;
        if let Some((user, group)) = self.ids {
            become_user(user, group).map_err(failed(Measure::User))?;
        }
        self.limit().map_err(failed(Measure::Limits))?;
        drop_capabilities().map_err(failed(Measure::Capabilities))?;
        rustix::thread::set_no_new_privs(true).map_err(failed(Measure::NoNewPrivileges))?;
        if let Some(rule) = &self.files {
            files::apply(rule.as_fd()).map_err(|error| (Measure::Files, error))?;
        }
        // A change of users clears this setting, so it must come later.
        die_with(self.parent).map_err(failed(Measure::User))?;
        for filter in &mut self.filters {
            calls::put_in_own_process(filter);
            calls::apply(filter).map_err(|error| (Measure::Seccomp, error))?;
        }
        Ok(())
    }
}

impl Entry {
    /// Limits the host's resources that the process may use.
    fn limit(&self) -> Result<(), Errno> {
        let cpus = u64::from(self.needs.cpus);
        let data = DATA_MAX + cpus * CPU_DATA_MAX + self.needs.memory_bytes / DATA_SHARE;
        for (resource, most) in [
            // No image of the guest's memory may be left on the host's disk.
            (Resource::Core, 0),
            (Resource::Nofile, DESCRIPTORS_MAX),
            (Resource::Data, data),
            (Resource::Fsize, self.needs.memory_bytes),
            (Resource::Memlock, 0),
        ] {
            lower(resource, most)?;
        }
        // The limit counts all processes of a user. It makes sense only for a user of QEMU's own.
        if self.ids.is_some() {
            lower(Resource::Nproc, THREADS_MAX + cpus)?;
        }
        Ok(())
    }
}

/// Lowers a limit of the calling process to `most`. A limit that is already lower stays.
fn lower(resource: Resource, most: u64) -> Result<(), Errno> {
    let now = getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let limit = Rlimit {
        current: least(now.current),
        maximum: least(now.maximum),
    };
    setrlimit(resource, limit)
}

/// Has `exec` close all descriptors above stderr except `kept`. Fails if the kernel lacks
/// close_range(2).
fn keep_open(kept: &[RawFd]) -> io::Result<()> {
    calls::close_range(3, u32::MAX, CLOSE_BY_EXEC)?;
    for number in kept {
        // SAFETY: the parent keeps them open until the process has started.
        let file = unsafe { BorrowedFd::borrow_raw(*number) };
        fcntl_setfd(file, FdFlags::empty())?;
    }
    Ok(())
}

/// Has the kernel kill the calling process when the thread of `parent` that started it ends. Fails
/// with `ESRCH` if `parent` has ended.
fn die_with(parent: rustix::process::Pid) -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that ended before that call sends no signal.
    if getppid() == Some(parent) {
        Ok(())
    } else {
        Err(Errno::SRCH)
    }
}

/// Changes the user and group of the calling process, and drops all supplementary groups. The
/// process must have one thread.
fn become_user(user: u32, group: u32) -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)
}

/// Removes all capabilities from the bounding set, so that no executed program can gain one. This
/// must come before the change of users, which may remove the right to do it.
fn bound_capabilities() -> Result<(), Errno> {
    for capability in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A process without capabilities may not do this. An older kernel does not know all
            // capabilities.
            Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Drops all capabilities of the calling thread.
fn drop_capabilities() -> Result<(), Errno> {
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
}
