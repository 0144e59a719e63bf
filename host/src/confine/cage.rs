//! Everything that confines a QEMU: prepared in `ebb`, put on in the new process before it becomes
//! QEMU.

use super::calls::HugePageAdvice;
use super::measures::Measure;
use super::namespaces::{Ids, Making, Namespaces};
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

/// Marks descriptors to be closed by `exec`, instead of closing them.
const CLOSE_BY_EXEC: u32 = 4;

/// The most descriptors of a QEMU.
const DESCRIPTORS_MAX: u64 = 1024;
/// The most threads beside those of the virtual CPUs: QEMU starts one for each block request under way.
const THREADS_MAX: u64 = 256;
/// The most private memory of a QEMU: 1 GiB of translations, and as much for the rest.
const DATA_MAX: u64 = 2 << 30;
/// More of it for each virtual CPU: its thread's stack and heap.
const CPU_DATA_MAX: u64 = 64 << 20;
/// The part of a guest's memory that tables about it take.
const DATA_SHARE: u64 = 64;

/// What a QEMU needs of the host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Needs {
    /// It opens `/dev/kvm`.
    pub(crate) kvm: bool,
    pub(crate) memory_bytes: u64,
    pub(crate) cpus: u32,
    /// A file on a tmpfs among what it inherits, which it opens again.
    pub(crate) ram: Option<RawFd>,
}

/// Why a QEMU cannot be confined as every host has to.
#[derive(Debug, thiserror::Error)]
#[error("QEMU cannot be confined on this host: {measure}")]
pub(crate) struct CageError {
    measure: Measure,
    source: io::Error,
}

/// A cage whose namespaces are being made.
#[derive(Debug)]
pub(crate) struct Preparation(Option<io::Result<Making>>);

/// What confines the QEMUs of a run.
#[derive(Debug)]
pub(crate) struct Cage(Option<Confinement>);

#[derive(Debug)]
struct Confinement {
    namespaces: Option<Namespaces>,
    /// Whom QEMU runs as, if not who runs `ebb`.
    ids: Option<Ids>,
    filters: [BpfProgram; 2],
    missing: Vec<(Measure, String)>,
}

/// Tells which measure failed in a new process.
#[derive(Debug)]
pub(crate) struct Progress(OwnedFd);

impl Preparation {
    /// Starts to prepare a cage, or none if QEMU is to run `unconfined`.
    pub(crate) fn begin(unconfined: bool) -> Self {
        Self((!unconfined).then(Making::start))
    }

    /// Returns the cage, in which QEMU's `advice` about huge pages is heeded or not.
    ///
    /// # Errors
    /// If the host lacks a measure that every host must have.
    pub(crate) fn finish(self, advice: HugePageAdvice) -> Result<Cage, CageError> {
        let Some(making) = self.0 else {
            return Ok(Cage(None));
        };
        let lacks = |measure| move |source| CageError { measure, source };
        let filters = calls::of_qemu(advice).map_err(lacks(Measure::Seccomp))?;
        // The highest number is never open: this only asks whether the call is there.
        calls::close_range(u32::MAX, u32::MAX, CLOSE_BY_EXEC)
            .map_err(lacks(Measure::Descriptors))?;
        let mut missing = Vec::new();
        let mut lacking = |measure, why: String| missing.push((measure, why));
        let namespaces = match making.and_then(Making::finish) {
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
        Ok(Cage(Some(Confinement {
            namespaces,
            ids,
            filters,
            missing,
        })))
    }
}

/// Whether root of this system can become another user.
fn may_change_user() -> bool {
    let wanted = CapabilitySet::SETUID | CapabilitySet::SETGID;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
}

impl Cage {
    /// None: QEMU has all the rights that `ebb` has.
    #[cfg(test)]
    pub(crate) fn open() -> Self {
        Self(None)
    }

    /// Whether there is one.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_some()
    }

    /// The measures that this host lacks, and why.
    pub(crate) fn missing(&self) -> &[(Measure, String)] {
        self.0.as_ref().map_or(&[], |inner| &inner.missing)
    }

    /// The measures that hold.
    pub(crate) fn measures(&self) -> impl Iterator<Item = Measure> + '_ {
        let all = Measure::ALL.into_iter().filter(|_| self.is_closed());
        all.filter(|measure| !self.missing().iter().any(|(missing, _)| missing == measure))
    }

    /// Whether `ebb` must be able to change users to start and to end a QEMU.
    pub(crate) fn changes_user(&self) -> bool {
        let inner = self.0.as_ref();
        inner.is_some_and(|inner| inner.namespaces.is_none() && inner.ids.is_some())
    }

    /// Has the process of `command` confined before it becomes `program`, which may take the
    /// memory and devices that it `needs`. It inherits `kept` under their present numbers.
    ///
    /// # Errors
    /// The host's, for descriptors.
    pub(crate) fn put_on(
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
            // SAFETY: the closure runs in the forked child before exec; it makes system calls, and
            // neither allocates nor takes a lock.
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
                .map(Namespaces::again)
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
                // Without it the error alone says what went wrong.
                let _ = rustix::io::write(&tells, &number.to_ne_bytes());
                error
            })
        };
        // SAFETY: the closure runs in the forked child before exec; `enter` makes system calls with
        // values that were prepared before the fork, and neither allocates nor takes a lock.
        unsafe { command.pre_exec(enter) };
        Ok(Progress(told))
    }
}

impl fmt::Display for Cage {
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
    /// The measure that failed in a process that could not be started, if it was one.
    pub(crate) fn failed(&self) -> Option<Measure> {
        let mut bytes = [0; 8];
        rustix::io::read(&self.0, &mut bytes).ok()?;
        let number = usize::try_from(u64::from_ne_bytes(bytes)).ok()?;
        Measure::ALL.get(number.checked_sub(1)?).copied()
    }
}

/// What a new process does before it becomes QEMU.
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
    /// Puts everything on. Allocates nothing; the error names the measure that failed.
    fn enter(&mut self) -> Result<(), (Measure, io::Error)> {
        let failed = |measure| move |error: Errno| (measure, error.into());
        keep_open(&self.kept).map_err(|error| (Measure::Descriptors, error))?;
        if let Some(namespaces) = &self.namespaces {
            namespaces
                .enter(self.needs.kvm)
                .map_err(failed(Measure::UserNamespace))?;
        }
        // A change of mounts has led to its root, too.
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
        // A change of users forgets this, so it comes after that.
        die_with(self.parent).map_err(failed(Measure::User))?;
        for filter in &mut self.filters {
            calls::put_in_own_process(filter);
            calls::apply(filter).map_err(|error| (Measure::Seccomp, error))?;
        }
        Ok(())
    }
}

impl Entry {
    /// Bounds what the process may take of the host.
    fn limit(&self) -> Result<(), Errno> {
        let cpus = u64::from(self.needs.cpus);
        let data = DATA_MAX + cpus * CPU_DATA_MAX + self.needs.memory_bytes / DATA_SHARE;
        for (resource, most) in [
            // No image of the guest's memory is left on the host's disk.
            (Resource::Core, 0),
            (Resource::Nofile, DESCRIPTORS_MAX),
            (Resource::Data, data),
            (Resource::Fsize, self.needs.memory_bytes),
            (Resource::Memlock, 0),
        ] {
            lower(resource, most)?;
        }
        // Of a user that others have, too, it would count their processes.
        if self.ids.is_some() {
            lower(Resource::Nproc, THREADS_MAX + cpus)?;
        }
        Ok(())
    }
}

/// Lowers a limit of the calling process; one that is lower already stays.
fn lower(resource: Resource, most: u64) -> Result<(), Errno> {
    let now = getrlimit(resource);
    let least = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let limit = Rlimit {
        current: least(now.current),
        maximum: least(now.maximum),
    };
    setrlimit(resource, limit)
}

/// Has `exec` close all descriptors above stderr but these.
fn keep_open(kept: &[RawFd]) -> io::Result<()> {
    calls::close_range(3, u32::MAX, CLOSE_BY_EXEC)?;
    for number in kept {
        // SAFETY: the parent holds them open until the process is started.
        let file = unsafe { BorrowedFd::borrow_raw(*number) };
        fcntl_setfd(file, FdFlags::empty())?;
    }
    Ok(())
}

/// Has the calling process killed when the thread of `parent` that started it ends.
fn die_with(parent: rustix::process::Pid) -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that ended before that call sends no signal.
    if getppid() == Some(parent) {
        Ok(())
    } else {
        Err(Errno::SRCH)
    }
}

/// Makes the calling process, which has one thread, run as a user without further groups.
fn become_user(user: u32, group: u32) -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)
}

/// Takes all capabilities from what a program could bring. A change of users may take the right to it.
fn bound_capabilities() -> Result<(), Errno> {
    for capability in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A process without capabilities may not, and an older kernel does not know this one.
            Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives up all capabilities.
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
