//! One virtual machine: its memory, its sockets, its QEMU.

use super::boot_files::BootFiles;
use super::command::{Board, command_line};
use super::monitor::{Monitor, MonitorError};
use super::process::{Handle, Qemu, SpawnError};
use super::ram::GuestRam;
use super::ram_file::{Backing, HUGE_PAGE, RamMaker};
use super::vcpus::Vcpus;
use crate::confine::{Cage, Needs, refuse_descriptors};
use crate::machine::{Accel, Dialect, Machine};
use crate::system::memory_file;
use crate::text::{Size, Terminal};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// What a VM is made of.
#[derive(Debug)]
pub(crate) struct Spec<'a> {
    pub(crate) qemu: &'a Path,
    /// What confines it.
    pub(crate) cage: &'a Cage,
    /// The kernel's file.
    pub(crate) kernel: &'a [u8],
    /// What of the board that kernel must have in its own way.
    pub(crate) dialect: Dialect,
    pub(crate) machine: Machine,
    pub(crate) accel: Accel,
    pub(crate) memory: Size,
    /// What makes the file of its memory.
    pub(crate) ram: &'a RamMaker,
    pub(crate) cpus: u32,
    pub(crate) reporting: bool,
    /// The host takes part in the guest's allocator from the start.
    pub(crate) shared: bool,
    pub(crate) icount: bool,
    pub(crate) seed: u32,
    /// Files are wanted of the guest.
    pub(crate) out: bool,
    /// The guest has a tree of the host's.
    pub(crate) root: bool,
    pub(crate) kernel_arguments: String,
    pub(crate) extra: Vec<OsString>,
}

/// A VM whose CPUs do not run yet, and our ends of its sockets.
pub(crate) struct Vm {
    pub(crate) qemu: Qemu,
    pub(crate) ram: Arc<GuestRam>,
    pub(crate) monitor: Monitor,
    /// Stops the virtual CPUs as soon as they run and the monitor is read.
    pub(crate) vcpus: Arc<Vcpus>,
    pub(crate) console: UnixStream,
    pub(crate) stdio: UnixStream,
    pub(crate) stderr: UnixStream,
    pub(crate) control: UnixStream,
    /// Where files come, if any are wanted.
    pub(crate) out: Option<UnixStream>,
    /// Where the guest asks for the host's tree, if it has one.
    pub(crate) root: Option<UnixStream>,
    /// A monitor on which nobody has said anything yet.
    pub(crate) second_monitor: UnixStream,
    pub(crate) boot_files: BootFiles,
    /// The arguments with which QEMU was started.
    pub(crate) line: Vec<OsString>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VmError {
    #[error("cannot set up the guest: {what}")]
    Setup {
        what: &'static str,
        source: io::Error,
    },
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("QEMU did not start the guest")]
    Monitor {
        source: MonitorError,
        qemu: Vec<String>,
    },
}

/// What QEMU inherits, and our ends of it.
struct Parts {
    board: Board,
    ram: GuestRam,
    boot_files: BootFiles,
    inherited: Vec<OwnedFd>,
    ours: [UnixStream; 6],
    out: Option<UnixStream>,
    root: Option<UnixStream>,
}

/// Lines of QEMU's that go into an error.
const QEMU_LINES: usize = 10;

impl Vm {
    /// Starts QEMU with its CPUs stopped. `disks` are sockets of their back-ends; `shown_on` gets
    /// QEMU's own messages. `started` gets QEMU's process before its monitor answers, which may take long.
    pub(crate) fn new(
        spec: &Spec<'_>,
        initramfs: &File,
        disks: Vec<OwnedFd>,
        shown_on: Option<Arc<Terminal>>,
        started: impl FnOnce(Handle),
    ) -> Result<Self, VmError> {
        let program = spec.qemu;
        let parts =
            Parts::new(spec, initramfs, disks).map_err(|(what, errno)| setup(what, errno))?;
        let arguments = command_line(&parts.board);
        let inherited = &parts.inherited;
        let needs = Needs {
            kvm: spec.accel == Accel::Kvm,
            memory_bytes: spec.memory.bytes(),
            cpus: spec.cpus,
            // QEMU may open a memfd by its number anyway.
            ram: (parts.ram.backing() == Backing::Huge).then_some(parts.board.ram),
        };
        let mut qemu = Qemu::spawn(program, &arguments, inherited, spec.cage, needs, shown_on)?;
        started(qemu.handle());
        let (ports, out) = (parts.board.ports, parts.board.out);
        // Our copies of QEMU's ends must go, or its death would not end our reads.
        let (blocking, rest): (Vec<_>, Vec<_>) = parts.inherited.into_iter().partition(|fd| {
            let fd = fd.as_raw_fd();
            ports[..2].contains(&fd) || out == Some(fd)
        });
        drop(rest);
        let [monitor, console, stdio, stderr, control, second_monitor] = parts.ours;
        let monitor = Monitor::connect(monitor).map_err(|source| {
            qemu.handle().kill();
            VmError::Monitor {
                source,
                qemu: qemu.last_words(QEMU_LINES),
            }
        })?;
        // QEMU has set its ends to non-blocking by now, and drops the output of a console whose
        // socket is full. The flag belongs to the open file, which we share: without it QEMU
        // waits instead. The kernel keeps to a window, so this is for kernels that do not. Ports
        // that are no consoles make the guest wait.
        let consoles = parts.board.dialect == Dialect::Ebb;
        for fd in blocking.into_iter().filter(|_| consoles) {
            let block = || {
                let flags = rustix::fs::fcntl_getfl(&fd)?;
                rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK)
            };
            block().map_err(|errno| setup("the output sockets", errno))?;
        }
        let vcpus = monitor.inquiries();
        let vcpus = vcpus.and_then(|inquiries| Vcpus::new(inquiries, qemu.pid()));
        let vcpus = vcpus.map_err(|error| setup("asking QEMU", errno(&error)))?;
        let ram = Arc::new(parts.ram);
        Ok(Self {
            qemu,
            ram,
            monitor,
            vcpus: Arc::new(vcpus),
            console,
            stdio,
            stderr,
            control,
            out: parts.out,
            root: parts.root,
            second_monitor,
            boot_files: parts.boot_files,
            line: arguments,
        })
    }
}

impl Spec<'_> {
    /// Whether what the guest's CPUs do atomically is atomic for other processes, too.
    pub(crate) fn is_atomic_for_others(&self) -> bool {
        match self.accel {
            Accel::Kvm => true,
            Accel::Tcg => !self.icount && (self.cpus > 1 || self.shared),
        }
    }

    /// The arguments with which QEMU would be started.
    pub(crate) fn command_line(
        &self,
        initramfs: &File,
        disks: Vec<OwnedFd>,
    ) -> Result<Vec<OsString>, VmError> {
        let parts =
            Parts::new(self, initramfs, disks).map_err(|(what, errno)| setup(what, errno))?;
        Ok(command_line(&parts.board))
    }
}

impl Parts {
    fn new(
        spec: &Spec<'_>,
        initramfs: &File,
        disks: Vec<OwnedFd>,
    ) -> Result<Self, (&'static str, Errno)> {
        let mut ram = GuestRam::made_by(spec.ram, spec.machine, spec.memory.bytes())
            .map_err(|errno| (spec.ram.what(), errno))?;
        if ram.backing().is_huge() && spec.dialect == Dialect::Ebb {
            keep_sparse_parts(&mut ram);
        }
        let shared = ram.fd().try_clone_to_owned();
        let shared = shared.map_err(|error| ("the guest's memory", errno(&error)))?;
        let kernel = memory_file("ebb-kernel").and_then(|mut file| {
            file.write_all(spec.kernel).map_err(|error| errno(&error))?;
            Ok(file)
        });
        let kernel = OwnedFd::from(kernel.map_err(|errno| ("the kernel image", errno))?);
        let initramfs = initramfs
            .try_clone()
            .map_err(|error| ("the initramfs", errno(&error)))?;
        let initramfs = OwnedFd::from(initramfs);
        let again = |file: &OwnedFd, what| {
            let file = file.try_clone();
            file.map_err(|error| (what, errno(&error)))
        };
        let boot_files = BootFiles::new(
            again(&kernel, "the kernel image")?,
            again(&initramfs, "the initramfs")?,
        );
        let mut theirs = Vec::new();
        let mut pair = || -> Result<UnixStream, (&'static str, Errno)> {
            let sockets = UnixStream::pair().map_err(|error| ("a socket", errno(&error)))?;
            refuse_descriptors(&sockets.0);
            theirs.push(OwnedFd::from(sockets.1));
            Ok(sockets.0)
        };
        let ours = [pair()?, pair()?, pair()?, pair()?, pair()?, pair()?];
        let out = spec.out.then(&mut pair).transpose()?;
        let root = spec.root.then(&mut pair).transpose()?;
        let number = |index: usize| theirs.get(index).map_or(-1, AsRawFd::as_raw_fd);
        let board = Board {
            dialect: spec.dialect,
            machine: spec.machine,
            accel: spec.accel,
            memory_bytes: spec.memory.bytes(),
            huge: ram.backing().is_huge(),
            cpus: spec.cpus,
            reporting: spec.reporting,
            shared: spec.shared,
            icount: spec.icount,
            seed: spec.seed,
            kernel_arguments: spec.kernel_arguments.clone(),
            ram: shared.as_raw_fd(),
            kernel: kernel.as_raw_fd(),
            initramfs: initramfs.as_raw_fd(),
            monitor: number(0),
            console: number(1),
            ports: [number(2), number(3), number(4)],
            second_monitor: number(5),
            out: out.is_some().then(|| number(6)),
            root: root
                .is_some()
                .then(|| number(6 + usize::from(out.is_some()))),
            extra: spec.extra.clone(),
            disks: disks.iter().map(AsRawFd::as_raw_fd).collect(),
        };
        let mut inherited = vec![shared, kernel, initramfs];
        inherited.extend(theirs);
        inherited.extend(disks);
        Ok(Self {
            board,
            ram,
            boot_files,
            inherited,
            ours,
            out,
            root,
        })
    }
}

/// Keeps in base pages the parts of RAM that Ebb's kernel touches only here and there: itself, the
/// descriptors of most frames with its first tables, and the place of the initramfs. The descriptors
/// of the first 128 MiB are in a huge page, since every program that grows needs all of them.
fn keep_sparse_parts(ram: &mut GuestRam) {
    ram.keep_in_base_pages(0, KERNEL_END);
    let sparse = DESCRIPTORS + HUGE_PAGE;
    let end = DESCRIPTORS + ram.bytes() / DESCRIBED + BEHIND_DESCRIPTORS;
    ram.keep_in_base_pages(sparse, end.saturating_sub(sparse));
    // QEMU puts the initramfs at the end.
    let end = ram.low_bytes();
    ram.keep_in_base_pages(end.saturating_sub(1), 1);
}

/// Where the last block ends that the kernel's image is in.
const KERNEL_END: u64 = 6 << 20;
/// Where a kernel puts the descriptors of frames: behind what firmware may leave of itself.
const DESCRIPTORS: u64 = 16 << 20;
/// The descriptors of this number of bytes of RAM take one byte.
const DESCRIBED: u64 = 64;
/// Bytes of what stands behind the descriptors: tables, and the allocator's metadata.
const BEHIND_DESCRIPTORS: u64 = 2 << 20;

fn setup(what: &'static str, errno: Errno) -> VmError {
    VmError::Setup {
        what,
        source: errno.into(),
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
