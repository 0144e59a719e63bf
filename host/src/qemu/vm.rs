//! One virtual machine: its RAM, its sockets and its QEMU process.

use super::boot_files::BootFiles;
use super::command::{Board, command_line};
use super::monitor::{Monitor, MonitorError};
use super::process::{Handle, Qemu, SpawnError};
use super::ram::GuestRam;
use super::ram_file::{Backing, HUGE_PAGE, RamMaker};
use super::vcpus::Vcpus;
use crate::confine::{Needs, QemuSandbox, refuse_descriptors};
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

/// The description of a VM to start, without its files and sockets.
#[derive(Debug)]
pub(crate) struct Spec<'a> {
    /// The program to start as QEMU.
    pub(crate) qemu: &'a Path,
    /// The confinement of the QEMU process.
    pub(crate) sandbox: &'a QemuSandbox,
    /// The contents of the kernel's file.
    pub(crate) kernel: &'a [u8],
    /// The guest kernel that boots, Ebb's or Linux, which decides some details of the board.
    pub(crate) dialect: Dialect,
    /// The board that QEMU emulates.
    pub(crate) machine: Machine,
    /// What runs the guest's instructions, KVM or TCG.
    pub(crate) accel: Accel,
    /// The size of the guest's RAM.
    pub(crate) memory: Size,
    /// Makes the RAM file.
    pub(crate) ram: &'a RamMaker,
    pub(crate) cpus: u32,
    /// Whether the balloon device offers free page reporting.
    pub(crate) reporting: bool,
    /// Whether the host changes words of the guest's allocator by atomic operations while the guest
    /// runs.
    pub(crate) shared: bool,
    /// Whether QEMU counts instructions (`-icount`), which makes runs repeatable.
    pub(crate) icount: bool,
    /// The seed of the guest's random numbers if `icount` is set.
    pub(crate) seed: u32,
    /// Whether the guest sends files to the host.
    pub(crate) out: bool,
    /// Whether the guest can ask for files of the host.
    pub(crate) root: bool,
    /// The guest kernel's command line.
    pub(crate) kernel_arguments: String,
    /// More arguments for QEMU, added at the end.
    pub(crate) extra: Vec<OsString>,
}

/// A VM whose QEMU runs but whose CPUs are not started yet, with the host's ends of its sockets.
pub(crate) struct Vm {
    pub(crate) qemu: Qemu,
    pub(crate) ram: Arc<GuestRam>,
    pub(crate) monitor: Monitor,
    /// Stops and resumes the virtual CPUs. Usable once the CPUs run and a thread reads the monitor.
    pub(crate) vcpus: Arc<Vcpus>,
    /// The guest's serial console.
    pub(crate) console: UnixStream,
    /// The program's stdin and stdout.
    pub(crate) stdio: UnixStream,
    /// The program's stderr.
    pub(crate) stderr: UnixStream,
    /// The control port, on which the host sends requests.
    pub(crate) control: UnixStream,
    /// The socket on which the guest sends files, or `None` if no files are wanted.
    pub(crate) out: Option<UnixStream>,
    /// The socket on which the guest asks for files of the host, or `None` if its root does not
    /// show them.
    pub(crate) root: Option<UnixStream>,
    /// A second QMP monitor, on which the handshake has not happened yet.
    pub(crate) second_monitor: UnixStream,
    /// The memory of the kernel image and the initramfs.
    pub(crate) boot_files: BootFiles,
    /// The arguments with which QEMU was started.
    pub(crate) line: Vec<OsString>,
}

/// The reason why a VM could not be started.
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

/// What QEMU inherits, and the host's ends of the sockets.
struct Parts {
    board: Board,
    ram: GuestRam,
    boot_files: BootFiles,
    inherited: Vec<OwnedFd>,
    ours: [UnixStream; 6],
    out: Option<UnixStream>,
    root: Option<UnixStream>,
}

/// The maximum number of lines of QEMU's stderr in an error.
const QEMU_LINES: usize = 10;

impl Vm {
    /// Makes the RAM and the sockets, starts QEMU with its CPUs stopped, and connects to its
    /// monitor.
    ///
    /// `disks` are the vhost-user sockets of the disks' back-ends, the first for `/dev/vda`.
    /// `shown_on` shows QEMU's own messages. `started` gets the handle of the QEMU process before
    /// its monitor answers, which may take long.
    ///
    /// Fails if memory or sockets cannot be set up, or QEMU cannot be started. If its monitor does
    /// not answer, kills QEMU and fails with the last lines of its stderr.
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
            // A memfd needs no permission; QEMU may open it by its descriptor anyway.
            ram: (parts.ram.backing() == Backing::Huge).then_some(parts.board.ram),
        };
        let mut qemu = Qemu::spawn(
            program,
            &arguments,
            inherited,
            spec.sandbox,
            needs,
            shown_on,
        )?;
        started(qemu.handle());
        let (ports, out) = (parts.board.ports, parts.board.out);
        // Close this process's copies of QEMU's ends. Otherwise reads here would not end when QEMU
        // ends.
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
        // By now QEMU has set its ends to non-blocking. It drops output of a console whose socket
        // is full. The flag belongs to the open file description, which this process shares, so it
        // can be cleared here; QEMU then blocks instead. Ebb's kernel keeps to a window, so this
        // only protects against kernels that do not. Linux guests use ports instead of consoles,
        // which make the guest wait.
        let consoles = parts.board.dialect == Dialect::Ebb;
        for fd in blocking.into_iter().filter(|_| consoles) {
            let block = || {
                let flags = rustix::fs::fcntl_getfl(&fd)?;
                rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK)
            };
            block().map_err(|errno| setup("the output sockets", errno))?;
        }
        let vcpus = monitor.sender();
        let vcpus = vcpus.and_then(|monitor_sender| Vcpus::new(monitor_sender, qemu.pid()));
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
    /// Returns whether the guest's atomic operations are also atomic with respect to other
    /// processes on the host. Returns `false` with `-icount`, and on TCG for a machine that can
    /// only ever have one CPU.
    pub(crate) fn is_atomic_for_others(&self) -> bool {
        match self.accel {
            Accel::Kvm => true,
            Accel::Tcg => !self.icount && (self.cpus > 1 || self.shared),
        }
    }

    /// Returns the arguments with which [`Vm::new`] would start QEMU, without starting it. Makes
    /// the same files and sockets, and closes them again. Fails if one cannot be made.
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
    /// Makes the RAM file, the memfds and the sockets. The error names the part that failed.
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

/// Keeps the parts of RAM in base pages that Ebb's kernel uses sparsely. These are the kernel
/// itself, the page descriptors of most frames with the first tables behind them, and the end of
/// the initramfs.
///
/// The descriptors of the first 128 MiB are left in a huge page, since every program that grows
/// needs all of them.
fn keep_sparse_parts(ram: &mut GuestRam) {
    ram.keep_in_base_pages(0, KERNEL_END);
    let sparse = DESCRIPTORS + HUGE_PAGE;
    let end = DESCRIPTORS + ram.bytes() / DESCRIBED + BEHIND_DESCRIPTORS;
    ram.keep_in_base_pages(sparse, end.saturating_sub(sparse));
    // QEMU loads the initramfs at the end of low RAM.
    let end = ram.low_bytes();
    ram.keep_in_base_pages(end.saturating_sub(1), 1);
}

/// The guest-physical end of the last 2 MiB block that contains a part of the kernel's image.
const KERNEL_END: u64 = 6 << 20;
/// The guest-physical address at which Ebb's kernel puts the page descriptors. The memory below may
/// contain remains of the firmware.
const DESCRIPTORS: u64 = 16 << 20;
/// The number of bytes of RAM per byte of page descriptors.
const DESCRIBED: u64 = 64;
/// The size of the tables and allocator metadata behind the page descriptors, in bytes.
const BEHIND_DESCRIPTORS: u64 = 2 << 20;

/// Returns the error that `what` could not be set up.
fn setup(what: &'static str, errno: Errno) -> VmError {
    VmError::Setup {
        what,
        source: errno.into(),
    }
}

/// Returns the error number of `error`, or `EIO` if it has none.
fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
