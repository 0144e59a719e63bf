//! The file of `--record`: one JSON object with the settings and the results of a run. The comments
//! on fields are the text of docs/json.md.

use super::options::RunOptions;
use super::sampler::Started;
use super::summary::Summary;
use crate::failure::Failure;
use crate::guest::Kernel;
use crate::guest::WaitStatus;
use crate::machine::Accel;
use crate::machine::Machine;
use crate::qemu::{CpuTime, cpu_time};
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the file's format.
const SCHEMA: u32 = 1;

/// The settings and the results of a run. Results are zero or null until the run has ended.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Record {
    /// The version of the format, which is 1. It rises when a field changes its meaning or goes,
    /// not when one is added.
    schema: u32,
    /// The version of `ebb`, with the commit in brackets if the build knew it.
    ebb_version: &'static str,
    /// The guest's kernel.
    kernel: KernelRecord,
    /// The command line of the guest's kernel.
    kernel_arguments: String,
    /// The machine type of QEMU: `microvm` or `q35`.
    machine: &'static str,
    /// The accelerator: `kvm` or `tcg`.
    accel: String,
    /// Whether instructions were counted, by `--icount`.
    icount: bool,
    /// The guest's RAM in bytes.
    memory: u64,
    /// The number of virtual CPUs.
    cpus: u32,
    /// How free memory went back to the host: `shared`, `hinting`, `reporting` or `off`.
    give_back: &'static str,
    /// The QEMU that ran the guest.
    qemu: QemuRecord,
    /// The CPU time of QEMU on the host. Null if it is unknown.
    qemu_cpu_seconds: Option<CpuRecord>,
    /// The CPU time of `ebb run` itself on the host, without QEMU. Null if it is unknown.
    ebb_cpu_seconds: Option<CpuRecord>,
    /// The number of times that the guest was started until it booted.
    pub(crate) attempts: u32,
    /// Host time from the start of the CPUs to the start of the program, exact to about 5 ms. Null
    /// if the start was not seen.
    started_s: Option<f64>,
    /// The guest's clock at the start of the program. Null if it is unknown.
    started_guest_s: Option<f64>,
    /// The guest's clock at the end of the program, exact to the nanosecond. Null if it is unknown.
    ended_guest_s: Option<f64>,
    /// The number of page faults of the program and its children. Null if it is unknown.
    faults: Option<u64>,
    /// The guest's memory that was resident on the host at the start of the program, in bytes.
    /// Null if the start was not seen.
    resident_at_start: Option<u64>,
    /// Host time from the start of the CPUs to the end of QEMU.
    wall_s: f64,
    /// The part of `wall_s` in which the CPUs were paused or a signal had stopped QEMU.
    stood_still_s: f64,
    /// The figures that `--summary` prints. Null if the guest did not run to its end.
    summary: Option<Summary>,
    /// The end of the program. Null if the guest ended without telling.
    status: Option<StatusRecord>,
}

/// The kernel of a guest.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct KernelRecord {
    /// The kernel's name: `ebb` or `linux`.
    name: &'static str,
    /// The kernel's version.
    version: String,
}

/// The QEMU of a run.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct QemuRecord {
    /// QEMU's version.
    version: String,
    /// Every word of its command line, the program first.
    command: Vec<String>,
}

/// The CPU time of a process, exact to 10 ms.
#[derive(Copy, Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CpuRecord {
    /// The time in its own code, in seconds.
    user: f64,
    /// The time in the host's kernel, in seconds.
    system: f64,
}

/// The end of a program.
#[derive(Copy, Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StatusRecord {
    /// The exit status as a shell shows it: 128 plus the signal's number after a signal.
    code: u8,
    /// The number of the signal that ended the program. Null if none did.
    signal: Option<i32>,
}

impl Record {
    /// Creates a record with the settings of a run on `accel` with `cpus` virtual CPUs, and without
    /// results.
    pub(crate) fn new(options: &RunOptions, kernel: &dyn Kernel, accel: Accel, cpus: u32) -> Self {
        Self {
            schema: SCHEMA,
            ebb_version: crate::embedded::version(),
            kernel: KernelRecord {
                name: kernel.kind().word(),
                version: kernel.release().to_owned(),
            },
            kernel_arguments: String::new(),
            machine: match options.machine {
                Machine::Microvm => "microvm",
                Machine::Q35 => "q35",
            },
            accel: accel.to_string().to_ascii_lowercase(),
            icount: options.icount,
            memory: 0,
            cpus,
            give_back: options.give_back().name(),
            qemu: QemuRecord::default(),
            qemu_cpu_seconds: None,
            ebb_cpu_seconds: None,
            attempts: 0,
            started_s: None,
            started_guest_s: None,
            ended_guest_s: None,
            faults: None,
            resident_at_start: None,
            wall_s: 0.0,
            stood_still_s: 0.0,
            summary: None,
            status: None,
        }
    }

    /// Sets the version of QEMU, its command line (`program` with the arguments `line`) and the
    /// command line of the guest's kernel.
    pub(crate) fn started_with(
        &mut self,
        version: &str,
        program: &Path,
        line: &[OsString],
        kernel_arguments: &str,
    ) {
        let program = program.as_os_str().to_owned();
        self.qemu.version = version.to_owned();
        self.qemu.command = std::iter::once(&program)
            .chain(line)
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        self.kernel_arguments = kernel_arguments.to_owned();
    }

    /// Sets the results of the run. `started` is when the program was first seen to run, `cpu` the
    /// CPU time of QEMU, `status` how the program ended, and `stopped` for how long the guest was
    /// paused or stopped. Each `None` is not known.
    pub(crate) fn ended_with(
        &mut self,
        summary: &Summary,
        started: Option<Started>,
        cpu: Option<CpuTime>,
        status: Option<WaitStatus>,
        stopped: Duration,
    ) {
        let seconds = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e6;
        self.memory = summary.memory;
        self.started_s = started.map(|started| seconds(started.at));
        self.resident_at_start = started.map(|started| started.resident);
        self.started_guest_s = summary.start.map(|start| start.as_secs_f64());
        // Not rounded: with `--icount` a nanosecond is an instruction.
        self.ended_guest_s = summary.ended.map(|ended| ended.as_secs_f64());
        self.faults = summary.faults;
        self.wall_s = seconds(summary.ran);
        self.stood_still_s = seconds(stopped);
        let spent = |cpu: CpuTime| CpuRecord {
            user: seconds(cpu.user),
            system: seconds(cpu.system),
        };
        self.qemu_cpu_seconds = cpu.map(spent);
        self.ebb_cpu_seconds = cpu_time(std::process::id()).map(spent);
        self.summary = Some(summary.clone());
        self.status = status.map(|status| StatusRecord {
            code: status.code(),
            signal: status.signal(),
        });
    }
}

/// The open file of `--record`. It is created before the guest runs, so that a wrong path fails at
/// once.
#[derive(Debug)]
pub(crate) struct RecordFile {
    path: PathBuf,
    file: File,
}

impl RecordFile {
    /// Creates the file at `path`, or truncates the one that is there. A new file is readable by
    /// its user only, because command lines may have secrets.
    ///
    /// # Errors
    /// Fails if the file cannot be created or opened for writing.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        match crate::system::create_private_file(path) {
            Ok(file) => Ok(Self {
                path: path.to_owned(),
                file,
            }),
            Err(source) => Err(Failure::Write {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// Writes `record` as one line of JSON.
    ///
    /// # Errors
    /// Fails if the file cannot be written, for example if its file system is full.
    pub(crate) fn finish(mut self, record: &Record) -> Result<(), Failure> {
        let written = serde_json::to_vec(record)
            .map_err(io::Error::from)
            .and_then(|mut bytes| {
                bytes.push(b'\n');
                self.file.write_all(&bytes)
            });
        written.map_err(|source| Failure::Write {
            path: self.path,
            source,
        })
    }
}
