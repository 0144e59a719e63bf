//! Code that all runs share: the arguments of `ebb run`, and turning results into a run of the
//! report.

use super::super::balloon::Balloon;
use super::super::elastic::Kind;
use super::super::give_back_mode::GiveBackMode;
use super::super::interrupt::Interrupt;
use super::super::schema::{Event, Guest as Kernel, Outcome, Run};
use super::super::scratch::Scratch;
use super::column::{Column, Method};
use super::guest::Guest;
use crate::failure::Failure;
use crate::machine::GiveBack;
use crate::text::{Size, milliseconds};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The settings with which all guests of this comparison are started.
pub(super) struct Setup<'a> {
    pub(super) scratch: &'a Scratch,
    pub(super) interrupt: &'a Interrupt,
    /// The name of the accelerator.
    pub(super) accel: &'static str,
    /// The program to start as QEMU.
    pub(super) qemu: &'a Path,
    pub(super) cpus: u32,
    /// The timeout of a run.
    pub(super) timeout: Duration,
}

impl Setup<'_> {
    /// Returns the path of the socket of QEMU's second monitor, by which the host controls the
    /// balloon or virtio-mem device. Nothing listens there in other columns.
    pub(super) fn socket(&self) -> PathBuf {
        self.scratch.file("elasticity-qmp")
    }

    /// Starts a guest with `memory` for `column`, whose program waits for its first turn. Removes
    /// the monitor's socket of the guest before. Fails if the process cannot be started.
    pub(super) fn start(
        &self,
        kind: Kind,
        memory: Size,
        column: &Column,
    ) -> Result<Guest<'_>, Failure> {
        let _ = std::fs::remove_file(self.socket());
        Guest::start(self.interrupt, self.words(kind, memory, column))
    }

    /// Returns the arguments of `ebb run`, the program of `kind` included. Options that `column`
    /// sets itself are not set a second time.
    pub(super) fn words(&self, kind: Kind, memory: Size, column: &Column) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["run", "--root", "none"].map(OsString::from).into();
        let mut option = |name: &str, value: OsString| {
            if !column.variant.gives(name) {
                words.extend([OsString::from(format!("--{name}")), value]);
            }
        };
        let leaving = kind.leaving(memory);
        let base = match column.by {
            Method::Plug => memory.bytes() - leaving,
            _ => memory.bytes(),
        };
        option("memory", Size(base).to_string().into());
        option("cpus", self.cpus.to_string().into());
        option("accel", self.accel.into());
        option("qemu", self.qemu.into());
        option("timeout", milliseconds(self.timeout).into());
        option("give-back", give_back(column.by).name().into());
        words.extend(column.variant.options.iter().map(OsString::from));
        if let Method::Balloon | Method::Plug = column.by {
            let arguments = Balloon::arguments(&self.socket()).into_iter();
            let unconfined = column.variant.gives("unconfined");
            let arguments = arguments.filter(|word| !(unconfined && word == "--unconfined"));
            words.extend(arguments.map(OsString::from));
        }
        if column.by == Method::Plug {
            words.extend(plug(memory.bytes(), leaving));
        }
        if let Some(compiler) = kind.compiler(memory) {
            for file in compiler.files() {
                words.extend(["--file".into(), file.into()]);
            }
        }
        words.push("--".into());
        words.push((&self.scratch.workloads).into());
        words.extend(["--json", "--turns"].map(OsString::from));
        words.extend(kind.words(memory).into_iter().map(OsString::from));
        words
    }

    /// Creates a run of the report from a guest's outcome, error and events. `round` counts from 1.
    pub(super) fn finished(
        &self,
        (kind, memory, column, round): (Kind, Size, &Column, u32),
        (outcome, error): (Outcome, Option<String>),
        events: Vec<Event>,
    ) -> Run {
        let words = self.words(kind, memory, column);
        let command = words.iter().map(|word| word.to_string_lossy().into_owned());
        Run {
            experiment: subject(kind, memory, self.cpus),
            arguments: std::iter::once("ebb-workloads".to_owned())
                .chain(kind.words(memory))
                .collect(),
            guest: if column.variant.is_linux() {
                Kernel::Linux
            } else {
                Kernel::Ebb
            },
            give_back: GiveBackMode::Guest(give_back(column.by)),
            icount: false,
            cpus: self.cpus,
            memory_bytes: memory.bytes(),
            round,
            command: std::iter::once("ebb".to_owned()).chain(command).collect(),
            record: None,
            events,
            turns: Vec::new(),
            host_cpus: Vec::new(),
            timeline: Vec::new(),
            expenses: Vec::new(),
            outcome,
            error,
        }
    }

    /// Returns round 1 of an experiment that cannot be run in `column`: without events, with the
    /// outcome `Unsupported` and the error `why`.
    pub(super) fn unsupported(&self, kind: Kind, memory: Size, column: &Column, why: &str) -> Run {
        self.finished(
            (kind, memory, column, 1),
            (Outcome::Unsupported, Some(why.to_owned())),
            Vec::new(),
        )
    }
}

/// Returns the experiment's name in the table, with the guest's memory and number of CPUs. For a
/// build it also says whether the host's compiler is used.
pub(super) fn subject(kind: Kind, memory: Size, cpus: u32) -> String {
    let plural = if cpus == 1 { "" } else { "s" };
    let compiler = match (kind, kind.compiler(memory)) {
        (Kind::Build | Kind::Builds, Some(_)) => ", gcc",
        (Kind::Build | Kind::Builds, None) => ", without a compiler",
        _ => "",
    };
    format!("{}, {memory}, {cpus} CPU{plural}{compiler}", kind.name())
}

/// Returns the mode in which the guest gives memory back at its start. In the mode `Shared`,
/// [`MemoryControl`](super::memory_control::MemoryControl) changes it later, which needs a QEMU
/// that was started for that mode.
fn give_back(by: Method) -> GiveBack {
    match by {
        Method::Shared => GiveBack::Shared,
        Method::Itself => GiveBack::Reporting,
        Method::Reclaim | Method::Balloon | Method::Plug | Method::Nothing => GiveBack::Off,
    }
}

/// Returns the arguments for a virtio-mem device that has `leaving` of the guest's `memory` bytes.
fn plug(memory: u64, leaving: u64) -> Vec<OsString> {
    let arguments = [
        "-m".to_owned(),
        format!("slots=0,maxmem={}M", (memory >> 20) + 1024),
        "-object".to_owned(),
        format!("memory-backend-memfd,id=vmem,size={leaving}"),
        "-device".to_owned(),
        format!("virtio-mem-pci,id=vm0,memdev=vmem,requested-size={leaving}"),
    ];
    let mut words: Vec<OsString> = Vec::new();
    for argument in arguments {
        words.extend(["--qemu-arg".into(), argument.into()]);
    }
    // Only memory in a movable zone can be unplugged again.
    words.extend(["--append", "memhp_default_state=online_movable"].map(OsString::from));
    words
}
