//! Chooses the accelerator, KVM or TCG, by booting this kernel on KVM.
//!
//! A `/dev/kvm` can exist and not work, for example in nested hosts without the extensions that
//! they announce. So `--accel auto` boots a probe guest whose program returns a known number. The
//! result is cached until the host's boot, QEMU or the kernel changes.

use super::program::Programs;
use crate::archive::{Budget, GuestPath, Initramfs, Node, Source, nul_terminated};
use crate::confine::QemuSandbox;
use crate::failure::{Failure, describe};
use crate::guest::{Kernel, Stage};
use crate::machine::{Accel, AccelChoice, Machine};
use crate::qemu::{Qemu, RamMaker, Spec, Vm};
use crate::system::{OwnFolder, OwnFolderError, memory_file, search_path};
use crate::text::stderr;
use ebb_wire::boot;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

const DEVICE: &str = "/dev/kvm";
/// Interval between two looks at the probe.
const TICK: Duration = Duration::from_millis(10);
/// The exit status of the probe's program.
const ANSWER: u8 = 42;
const PROGRAM: &str = "/probe";
/// Number of QEMU's lines that go into the reason of a failed probe.
const QEMU_LINES: usize = 2;

/// The accelerator and the QEMU program for a guest, and the reason for the accelerator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    /// KVM or TCG.
    pub(crate) accel: Accel,
    /// Why this accelerator was chosen, for messages.
    pub(crate) reason: String,
    /// The QEMU program to start.
    pub(crate) qemu: PathBuf,
}

/// A cached probe result, with a description of the host for which it is valid.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Verdict {
    host: String,
    works: bool,
    reason: String,
}

/// Chooses the accelerator by `choice` and the QEMU program from `programs`. To test KVM or the
/// small QEMU, boots a probe guest with `kernel` on `machine` under `sandbox`, which blocks until
/// the guest answers or a time limit passes. The result is cached in a file. If other users could
/// write to the cache's directory, prints that once and caches nothing.
///
/// `auto` takes TCG with `icount` or if KVM does not work. `kvm` is not tested, but `/dev/kvm` must
/// open. The small QEMU is taken on KVM if the kernel boots on it.
///
/// # Errors
/// Fails with [`Failure::Accel`] if `choice` is `kvm` and `/dev/kvm` cannot be opened.
pub(crate) fn choose(
    choice: AccelChoice,
    icount: bool,
    machine: Machine,
    kernel: &dyn Kernel,
    programs: &Programs,
    sandbox: &QemuSandbox,
) -> Result<Choice, Failure> {
    let tcg = |reason: &str| Choice {
        accel: Accel::Tcg,
        reason: reason.to_owned(),
        qemu: programs.any.clone(),
    };
    let small = || small_that_boots(machine, kernel, programs, sandbox);
    match choice {
        AccelChoice::Tcg => Ok(tcg("asked for")),
        AccelChoice::Auto if icount => Ok(tcg("--icount needs it")),
        AccelChoice::Kvm => match open_device() {
            Ok(()) => Ok(Choice {
                accel: Accel::Kvm,
                reason: "asked for".into(),
                qemu: small().unwrap_or_else(|| programs.any.clone()),
            }),
            Err(error) => Err(Failure::Accel(format!("--accel kvm: {DEVICE}: {error}"))),
        },
        AccelChoice::Auto => match open_device() {
            Err(error) => Ok(tcg(&format!("{DEVICE}: {error}"))),
            Ok(()) => {
                let mut choice = remembered_probe(machine, kernel, &programs.any, "", sandbox);
                if choice.accel == Accel::Kvm
                    && let Some(qemu) = small()
                {
                    choice.qemu = qemu;
                }
                Ok(choice)
            }
        },
    }
}

/// Returns the small QEMU program. Returns `None` if it is not installed or the kernel does not
/// boot on it.
fn small_that_boots(
    machine: Machine,
    kernel: &dyn Kernel,
    programs: &Programs,
    sandbox: &QemuSandbox,
) -> Option<PathBuf> {
    let qemu = programs.small.as_deref()?;
    let choice = remembered_probe(machine, kernel, qemu, "-small", sandbox);
    (choice.accel == Accel::Kvm).then_some(choice.qemu)
}

fn open_device() -> io::Result<()> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(DEVICE, flags, Mode::empty()).map(drop)?)
}

/// Returns the cached probe result for `qemu`, or probes and caches it. `name` tells the cache
/// files of several QEMUs apart.
fn remembered_probe(
    machine: Machine,
    kernel: &dyn Kernel,
    qemu: &Path,
    name: &str,
    sandbox: &QemuSandbox,
) -> Choice {
    let host = identity(machine, kernel, qemu);
    let cache = cache();
    let file = format!("kvm-{}{name}.json", kernel.kind().word());
    let remembered = cache
        .as_ref()
        .and_then(|folder| recall(folder, &file))
        .filter(|verdict| verdict.host == host);
    let verdict = remembered.unwrap_or_else(|| {
        let result = probe(machine, kernel, qemu, sandbox);
        let works = result.is_ok();
        let reason = result
            .err()
            .unwrap_or_else(|| "a probe booted on it".to_owned());
        let verdict = Verdict {
            host,
            works,
            reason,
        };
        if let Some(folder) = &cache {
            // If it cannot be cached, the next run probes again.
            let _ = remember(folder, &file, &verdict);
        }
        verdict
    });
    let accel = if verdict.works {
        Accel::Kvm
    } else {
        Accel::Tcg
    };
    Choice {
        accel,
        reason: verdict.reason,
        qemu: qemu.to_owned(),
    }
}

/// Describes everything on which a probe's result depends: the host's boot, kernel and QEMU, and
/// the guest's kernel and machine.
fn identity(machine: Machine, kernel: &dyn Kernel, qemu: &Path) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy();
    let path = if qemu.components().count() > 1 {
        Some(qemu.to_owned())
    } else {
        search_path(qemu.as_os_str())
    };
    let stamp = path
        .as_deref()
        .and_then(|path| fs::metadata(path).ok())
        .map_or_else(String::new, |file| {
            format!("{}:{}:{}", file.ino(), file.size(), file.mtime())
        });
    let mut hasher = DefaultHasher::new();
    kernel.bytes().hash(&mut hasher);
    let (qemu, image) = (qemu.display(), hasher.finish());
    format!(
        "{} {release} {qemu}:{stamp} {machine:?} {image:016x}",
        boot.trim()
    )
}

/// Opens the folder of cached results. Returns `None` if there is none. Prints once why, if other
/// users could write to it.
fn cache() -> Option<OwnFolder> {
    static SAID: Once = Once::new();
    match OwnFolder::cache() {
        Ok(folder) => folder,
        // For example, a home directory that is read-only.
        Err(OwnFolderError::Open { .. }) => None,
        Err(error) => {
            SAID.call_once(|| {
                stderr::say(&format!(
                    "ebb: {error}: whether KVM works is found out anew at each run"
                ));
            });
            None
        }
    }
}

fn recall(folder: &OwnFolder, name: &str) -> Option<Verdict> {
    serde_json::from_slice(&folder.read(name).ok()?).ok()
}

fn remember(folder: &OwnFolder, name: &str, verdict: &Verdict) -> io::Result<()> {
    folder.replace(name, &serde_json::to_vec(verdict)?)
}

/// Boots a guest on KVM and checks that its program returns [`ANSWER`].
///
/// # Errors
/// Returns the reason as text if the guest fails, or does not answer in time.
fn probe(
    machine: Machine,
    kernel: &dyn Kernel,
    qemu: &Path,
    sandbox: &QemuSandbox,
) -> Result<(), String> {
    let text = |error: Failure| format!("the probe failed: {}", error.cause());
    let archive = archive(kernel).map_err(text)?;
    let wanted = kernel.probe();
    let cpus = 2;
    let spec = Spec {
        qemu,
        sandbox,
        kernel: kernel.bytes(),
        dialect: kernel.dialect(),
        machine,
        accel: Accel::Kvm,
        memory: wanted.memory,
        ram: &RamMaker::base(),
        // On hosts where KVM half works, the start of a second CPU often fails.
        cpus,
        shared: false,
        reporting: true,
        icount: false,
        seed: 0,
        out: false,
        root: false,
        kernel_arguments: wanted.arguments,
        extra: Vec::new(),
    };
    let vm = Vm::new(&spec, &archive, Vec::new(), None, drop);
    let mut vm = vm.map_err(|error| text(error.into()))?;
    vm.monitor.start().map_err(|error| {
        vm.qemu.handle().kill();
        because(format!("the probe failed: {error}"), &mut vm.qemu)
    })?;
    let deadline = Instant::now() + wanted.timeout;
    let guest = kernel.guest(&vm.ram, cpus, false);
    vm.monitor
        .sender()
        .map_err(|error| format!("the probe failed: {error}"))
        .and_then(|monitor_sender| {
            Arc::clone(&guest)
                .attend(&vm.control, monitor_sender)
                .map_err(|error| text(Failure::setup("listening to the guest")(error)))
        })?;
    // Kills QEMU as soon as it stops the guest for an internal error, the usual sign of a broken
    // KVM.
    let (handle, learner) = (vm.qemu.handle(), Arc::clone(&guest));
    let vcpus = Arc::clone(&vm.vcpus);
    thread::spawn(move || {
        vm.monitor
            .wait_for_end(&handle, &vcpus, |answer| learner.learn(answer))
    });
    loop {
        let ended = vm
            .qemu
            .wait(TICK, &vm.vcpus)
            .map_err(|error| format!("the probe failed: {error}"))?;
        match guest.stage() {
            Some(Stage::Exited(status)) if status.code() == ANSWER => return Ok(()),
            Some(Stage::Exited(_)) => return Err("the probe's program failed on KVM".into()),
            Some(Stage::Panicked) => return Err("the kernel panicked on KVM".into()),
            _ => {}
        }
        if let Some(complaint) = guest.complaint() {
            return Err(text(complaint.into()));
        }
        if let Some(ended) = ended {
            let what = format!("the kernel does not run on KVM here: {}", describe(ended));
            return Err(because(what, &mut vm.qemu));
        }
        if Instant::now() >= deadline {
            let seconds = wanted.timeout.as_secs();
            vm.qemu.handle().kill();
            let what = format!("the kernel does not boot on KVM here within {seconds} s");
            return Err(because(what, &mut vm.qemu));
        }
    }
}

/// Returns `what` with the first lines of QEMU's output. A dump of registers follows them, so the
/// last lines say less.
fn because(what: String, qemu: &mut Qemu) -> String {
    let words = qemu.first_words(QEMU_LINES);
    if words.is_empty() {
        return what;
    }
    format!("{what}; QEMU said: {}", words.join("; "))
}

fn archive(kernel: &dyn Kernel) -> Result<fs::File, Failure> {
    let mut tree = Initramfs::default();
    let path = |text: &str| GuestPath::parse(text.as_bytes());
    let file = |mode: u32, bytes: Vec<u8>| Node::File {
        mode,
        source: Source::Bytes(bytes),
    };
    tree.add(path(PROGRAM)?, file(0o755, returning_program(ANSWER)))?;
    tree.add(
        path(boot::ARGUMENTS)?,
        file(0o400, nul_terminated([OsStr::new(PROGRAM)])),
    )?;
    tree.add(path(boot::ENVIRONMENT)?, file(0o400, Vec::new()))?;
    kernel.furnish(&mut tree)?;
    let archive = memory_file("ebb-probe").map_err(Failure::setup("the probe's initramfs"))?;
    // The archive holds only `ebb`'s own small files.
    let memory = kernel.probe().memory;
    let bytes = memory.bytes();
    tree.write(&archive, kernel.alignment(), Budget { bytes, memory })?;
    Ok(archive)
}

/// Builds the smallest Linux program, an ELF file that calls `exit_group(status)`.
fn returning_program(status: u8) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let code: [u8; 12] = [
        0xbf, status, 0, 0, 0, // mov edi, status
        0xb8, 231, 0, 0, 0, // mov eax, SYS_exit_group
        0x0f, 0x05, // syscall
    ];
    let size = HEADERS + 12;
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    let half = |elf: &mut Vec<u8>, value: u16| elf.extend(value.to_le_bytes());
    let word = |elf: &mut Vec<u8>, value: u32| elf.extend(value.to_le_bytes());
    let long = |elf: &mut Vec<u8>, value: u64| elf.extend(value.to_le_bytes());
    half(&mut elf, elf::abi::ET_EXEC);
    half(&mut elf, elf::abi::EM_X86_64);
    word(&mut elf, 1);
    long(&mut elf, BASE + HEADERS); // entry
    long(&mut elf, 64); // program headers
    long(&mut elf, 0); // no sections
    word(&mut elf, 0);
    for value in [64, 56, 1, 64, 0, 0] {
        half(&mut elf, value);
    }
    word(&mut elf, elf::abi::PT_LOAD);
    word(&mut elf, elf::abi::PF_R | elf::abi::PF_X);
    for value in [0, BASE, BASE, size, size, 4096] {
        long(&mut elf, value);
    }
    elf.extend(code);
    elf
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    #[test]
    fn probe_program_runs_on_linux() {
        let path = env::temp_dir().join(format!("ebb-probe-{}", std::process::id()));
        fs::write(&path, returning_program(ANSWER)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let status = Command::new(&path).status();
        fs::remove_file(&path).unwrap();
        assert_eq!(status.unwrap().code(), Some(i32::from(ANSWER)));
    }

    #[test]
    fn verdicts_are_kept() {
        let directory = env::temp_dir().join(format!("ebb-cache-{}", std::process::id()));
        let folder = OwnFolder::make(&directory.join("ebb")).unwrap();
        let verdict = Verdict {
            host: "a b".into(),
            works: false,
            reason: "why".into(),
        };
        assert_eq!(recall(&folder, "kvm.json"), None);
        remember(&folder, "kvm.json", &verdict).unwrap();
        assert_eq!(recall(&folder, "kvm.json"), Some(verdict));
        fs::write(directory.join("ebb/kvm.json"), "{").unwrap();
        assert_eq!(recall(&folder, "kvm.json"), None);
        fs::remove_dir_all(&directory).unwrap();
    }
}
