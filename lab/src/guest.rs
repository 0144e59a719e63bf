//! Two guests, one way to run a program in them: Ebb, and the stock kernel in the same QEMU.

use crate::Failure;
use crate::ram::Ram;
use crate::stock::{self, Stock};
use crate::watch::{self, Limits, Record};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Which kernel a program runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// `ebb run`.
    Ebb,
    /// Debian's stock kernel.
    Linux,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ebb => "Ebb",
            Self::Linux => "Linux",
        }
    }
}

/// Whether the guest reports its free pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reporting {
    On,
    Off,
}

/// What a guest is given.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Shape {
    pub(crate) memory_mib: u64,
    pub(crate) cpus: u32,
    pub(crate) reporting: Reporting,
    /// Guest time is the number of executed instructions; on one CPU only.
    pub(crate) icount: bool,
}

impl Shape {
    pub(crate) fn memory_bytes(self) -> u64 {
        self.memory_mib << 20
    }
}

/// Times that a stock guest is started: under TCG, on a busy host, it sometimes fails to calibrate
/// its clock against the PIT, and then hangs before its init.
const LINUX_ATTEMPTS: u32 = 6;
/// By then a stock guest runs its init, or hangs.
const LINUX_BOOT_LIMIT: Duration = Duration::from_secs(40);

/// The guests of this machine.
#[derive(Debug)]
pub(crate) struct Guests {
    pub(crate) ebb: PathBuf,
    pub(crate) workloads: PathBuf,
    pub(crate) stock: Option<Stock>,
}

impl Guests {
    /// Runs one experiment of `ebb-workloads` to its end.
    pub(crate) fn experiment(
        &self,
        kind: Kind,
        shape: Shape,
        words: &[&str],
        limit: Duration,
    ) -> Result<Record, Failure> {
        match kind {
            Kind::Ebb => self.on_ebb(shape, &self.workloads, words, limit),
            Kind::Linux => self.on_linux(shape, &self.workloads, words, limit),
        }
    }

    /// Runs any static program on Ebb to its end.
    pub(crate) fn on_ebb(
        &self,
        shape: Shape,
        program: &Path,
        words: &[&str],
        limit: Duration,
    ) -> Result<Record, Failure> {
        let mut command = Command::new(&self.ebb);
        command.args(["run", "--accel", "tcg"]);
        command.args([
            "-m",
            &format!("{}M", shape.memory_mib),
            "-c",
            &shape.cpus.to_string(),
        ]);
        let give_back = match shape.reporting {
            Reporting::On => "reporting",
            Reporting::Off => "off",
        };
        command.args(["--give-back", give_back]);
        if shape.icount {
            command.arg("--icount");
        }
        command.arg("--").arg(program).args(words);
        let bytes = shape.memory_bytes();
        watch::run(
            command,
            |pid| Ram::of_process(pid, bytes),
            Limits::whole(limit),
        )
    }

    /// Runs any static program on the stock kernel to its end.
    pub(crate) fn on_linux(
        &self,
        shape: Shape,
        program: &Path,
        words: &[&str],
        limit: Duration,
    ) -> Result<Record, Failure> {
        let stock = self.stock.as_ref().ok_or_else(|| {
            Failure::Stock("no stock kernel was looked for in this run".to_owned())
        })?;
        let archive = Scratch::new("initramfs", &stock.initramfs(program, words)?)?;
        let mut attempt = 1;
        loop {
            let ram = Ram::create(shape.memory_bytes())?;
            let command = linux_command(stock, shape, &ram, &archive.0);
            let same = |_| Ram::of_process(std::process::id(), shape.memory_bytes());
            let limits = Limits {
                whole: limit,
                ready: Some((stock::UP, LINUX_BOOT_LIMIT)),
            };
            match watch::run(command, same, limits) {
                Err(Failure::TimedOut { .. }) if attempt < LINUX_ATTEMPTS => {
                    eprintln!("lab: the stock guest hangs; once more");
                    attempt += 1;
                }
                other => return other,
            }
        }
    }
}

/// The machine that both guests get; what differs is in docs/measurements.md.
pub(crate) const LINUX_MACHINE: &str = "microvm,acpi=on,rtc=on,pit=on,pic=on,ioapic2=off,\
     isa-serial=on,auto-kernel-cmdline=off,memory-backend=ram";
/// The stock guest's CPU where instructions are counted. QEMU counts each round of a `rep` as an
/// instruction, and where the CPU has ERMS Linux clears pages byte by byte: 4,096 instead of 512.
/// Without it the comparison is the kinder one for Linux.
pub(crate) const LINUX_ICOUNT_CPU: &str = "max,-erms";
/// The stock kernel's command line.
pub(crate) const LINUX_APPEND: &str = "console=ttyS0 quiet reboot=t panic=-1";

fn linux_command(stock: &Stock, shape: Shape, ram: &Ram, archive: &Path) -> Command {
    let reporting = match shape.reporting {
        Reporting::On => "on",
        Reporting::Off => "off",
    };
    let mut command = Command::new("/usr/bin/qemu-system-x86_64");
    let cpu = if shape.icount {
        LINUX_ICOUNT_CPU
    } else {
        "max"
    };
    command.args(["-accel", "tcg", "-cpu", cpu, "-machine", LINUX_MACHINE]);
    command.arg("-object").arg(format!(
        "memory-backend-file,id=ram,size={},mem-path={},share=on",
        shape.memory_bytes(),
        ram.path()
    ));
    command.args([
        "-m",
        &format!("{}M", shape.memory_mib),
        "-smp",
        &shape.cpus.to_string(),
    ]);
    command.args([
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
    ]);
    command.args(["-serial", "stdio", "-append", LINUX_APPEND]);
    command
        .arg("-kernel")
        .arg(&stock.image)
        .arg("-initrd")
        .arg(archive);
    command.args([
        "-device",
        &format!("virtio-balloon-device,free-page-reporting={reporting},deflate-on-oom=on"),
    ]);
    if shape.icount {
        command.args(["-icount", "shift=0,sleep=off"]);
    }
    command
}

/// A file that is gone when it is dropped.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("ebb-lab-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes)
            .map_err(|e| Failure::io(format!("write {}", path.display()), e))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Only a temporary folder that went away makes this fail, and then so did the file.
        let _ = std::fs::remove_file(&self.0);
    }
}
