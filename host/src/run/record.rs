//! The file of `--record`: one JSON object with the settings and the results of a run.

use super::options::RunOptions;
use super::sampler::Started;
use super::summary::Summary;
use crate::failure::Failure;
use crate::guest::Kernel;
use crate::guest::WaitStatus;
use crate::machine::Accel;
use crate::machine::Machine;
use crate::qemu::CpuTime;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the file's format.
const SCHEMA: u32 = 1;

/// The content of the file of `--record`: settings and results of a run. Times are in seconds,
/// amounts in bytes. Results are zero or empty until the run has ended.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
    schema: u32,
    /// The version of `ebb`, with the commit from which it was built if that is known.
    ebb_version: &'static str,
    kernel: KernelRecord,
    kernel_arguments: String,
    machine: &'static str,
    accel: String,
    icount: bool,
    memory: u64,
    cpus: u32,
    give_back: &'static str,
    qemu: QemuRecord,
    /// CPU time of QEMU on the host.
    qemu_cpu_seconds: Option<CpuRecord>,
    /// How often the guest was started before it booted.
    pub(crate) attempts: u32,
    /// Host time from the start of the CPUs to the start of the program. `None` if it was not seen
    /// to start.
    started_s: Option<f64>,
    /// Guest time when the program started.
    started_guest_s: Option<f64>,
    /// Guest time when the program had ended.
    ended_guest_s: Option<f64>,
    /// Page faults of the program and its children.
    faults: Option<u64>,
    resident_at_start: Option<u64>,
    /// Host time from the start of the CPUs to the end of QEMU.
    wall_s: f64,
    /// The part of `wall_s` in which the CPUs were paused or a signal had stopped QEMU.
    stood_still_s: f64,
    summary: Option<Summary>,
    /// How the program ended. `None` if the guest ended without telling.
    status: Option<StatusRecord>,
}

#[derive(Clone, Debug, Serialize)]
struct KernelRecord {
    name: &'static str,
    version: String,
}

#[derive(Clone, Debug, Default, Serialize)]
struct QemuRecord {
    version: String,
    command: Vec<String>,
}

/// CPU time in seconds.
#[derive(Copy, Clone, Debug, Serialize)]
struct CpuRecord {
    user: f64,
    system: f64,
}

#[derive(Copy, Clone, Debug, Serialize)]
struct StatusRecord {
    /// The exit status as a shell shows it: 128 plus the signal's number after a signal.
    code: u8,
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
        self.qemu_cpu_seconds = cpu.map(|cpu| CpuRecord {
            user: seconds(cpu.user),
            system: seconds(cpu.system),
        });
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
