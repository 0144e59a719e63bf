//! What was measured, as JSON with every figure and as Markdown for people.

use crate::Failure;
use crate::boots::Boots;
use crate::fault::Fault;
use crate::give_back::Returned;
use crate::guest::{Guests, Kind, LINUX_APPEND, LINUX_MACHINE, Reporting};
use crate::start::Started;
use serde::Serialize;
use std::fmt::Write as _;
use std::process::Command;

/// One run of this command.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    host: Host,
    pub(crate) returned: Vec<Returned>,
    pub(crate) started: Vec<Started>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) boots: Option<Boots>,
}

/// What the figures were measured on.
#[derive(Debug, Serialize)]
struct Host {
    cpu: String,
    cpus: usize,
    kernel: String,
    qemu: String,
    linux_guest: Option<String>,
    ebb: String,
    linux_machine: &'static str,
    linux_append: &'static str,
}

impl Report {
    pub(crate) fn new(guests: &Guests) -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            host: Host {
                cpu: cpu.map_or("unknown", |(_, name)| name.trim()).to_owned(),
                cpus: std::thread::available_parallelism().map_or(0, usize::from),
                kernel: said("uname", &["-sr"]),
                qemu: said("qemu-system-x86_64", &["--version"]),
                linux_guest: guests.stock.as_ref().map(|stock| stock.release.clone()),
                ebb: said(&guests.ebb.to_string_lossy(), &["--version"]),
                linux_machine: LINUX_MACHINE,
                linux_append: LINUX_APPEND,
            },
            returned: Vec::new(),
            started: Vec::new(),
            faults: Vec::new(),
            boots: None,
        }
    }

    pub(crate) fn json(&self) -> Result<String, Failure> {
        serde_json::to_string_pretty(self)
            .map_err(|e| Failure::io("write the figures as JSON".to_owned(), e.into()))
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from(
            "# Measurements\n\nWritten by `make measure`. Times under TCG mean nothing alone; the two guests of one run\n\
             may be compared. How each figure is taken stands at its heading.\n\n",
        );
        let host = &self.host;
        for (name, value) in [
            ("Host CPU", format!("{}, {} CPUs", host.cpu, host.cpus)),
            ("Host kernel", host.kernel.clone()),
            ("QEMU", format!("{}, TCG", host.qemu)),
            ("Ebb", format!("{}, machine microvm", host.ebb)),
            (
                "Linux guest",
                host.linux_guest.as_ref().map_or("not measured".to_owned(), |release| {
                    format!("{release}, machine microvm (with PIT and PIC, which it needs to boot), `{LINUX_APPEND}`")
                }),
            ),
        ] {
            line(&mut text, &format!("- {name}: {value}"));
        }
        self.write_returned(&mut text);
        self.write_started(&mut text);
        self.write_faults(&mut text);
        self.write_boots(&mut text);
        text
    }

    fn write_returned(&self, text: &mut String) {
        if self.returned.is_empty() {
            return;
        }
        text.push_str(
            "\n## Return: how long freed memory takes to come back\n\n\
             A guest of 2 GiB with 2 CPUs runs `memhog 1433M 1 30`: it touches 1.4 GiB, holds it for a second, frees it\n\
             and stays alive for 30 s. Resident memory is the `st_blocks` of the guest's RAM, sampled 25 times a second;\n\
             time 0 is when the program's line \"freed\" reaches the host. *Left behind* is resident at the end less\n\
             resident when the program began; *beyond used* is resident at the end less (RAM − `MemFree`), which is\n\
             negative where the guest counts as used what it never touched.\n\n\
             | guest | resident before | peak | half back after | 95 % back after | resident at the end | left behind | beyond used |\n\
             |---|---|---|---|---|---|---|---|\n",
        );
        for r in &self.returned {
            line(
                text,
                &format!(
                    "| {} | {} | {} | {} | {} | {} | {} | {} |",
                    r.guest.name(),
                    mib(r.before_bytes.cast_signed()),
                    mib(r.peak_bytes.cast_signed()),
                    seconds(r.half_seconds),
                    seconds(r.nearly_all_seconds),
                    mib(r.end_bytes.cast_signed()),
                    mib(r.left_behind_bytes()),
                    mib(r.beyond_used_bytes()),
                ),
            );
        }
    }

    fn write_started(&self, text: &mut String) {
        if self.started.is_empty() {
            return;
        }
        text.push_str(
            "\n## Start: what a guest takes before its program does anything\n\n\
             One CPU, program `idle`: its first statement reads the guest's monotonic clock, which both kernels start\n\
             near their entry. Resident memory and wall time (from the start of the host's process) are taken when its\n\
             line reaches the host.\n\n\
             | guest | memory | guest clock at the first statement | wall time | resident |\n|---|---|---|---|---|\n",
        );
        for s in &self.started {
            line(
                text,
                &format!(
                    "| {} | {} MiB | {}.{:03} s | {:.2} s | {} |",
                    s.guest.name(),
                    s.shape.memory_mib,
                    s.first_user_ns / 1_000_000_000,
                    s.first_user_ns % 1_000_000_000 / 1_000_000,
                    s.wall_seconds,
                    mib(s.resident_bytes.cast_signed()),
                ),
            );
        }
    }

    fn write_faults(&self, text: &mut String) {
        if self.faults.is_empty() {
            return;
        }
        text.push_str(
            "\n## Fault: instructions of a 4 KiB anonymous write fault, all in\n\n\
             `page-fault 4k 1 10r` on one CPU of a 1 GiB guest under `-icount shift=0,sleep=off`: 128 MiB are mapped, one\n\
             byte is written into each page, and they are unmapped; the figure is all of a round's instructions over its\n\
             32,768 faults, after a round that warms up. Linux gets a CPU without ERMS (`-cpu max,-erms`): QEMU counts each\n\
             round of a `rep` as an instruction, and with ERMS Linux clears pages by bytes, at 3,584 instructions more.\n\n\
             | guest | reporting | instructions a fault | cheapest to dearest round |\n|---|---|---|---|\n",
        );
        for f in &self.faults {
            let reporting = if f.shape.reporting == Reporting::On {
                "on"
            } else {
                "off"
            };
            line(
                text,
                &format!(
                    "| {} | {reporting} | {:.1} | {:.1} to {:.1} |",
                    f.guest.name(),
                    f.instructions,
                    f.by_round.0,
                    f.by_round.1
                ),
            );
        }
        for kind in [Kind::Ebb, Kind::Linux] {
            let mean = |reporting| {
                let all: Vec<f64> = self
                    .faults
                    .iter()
                    .filter(|f| f.guest == kind && f.shape.reporting == reporting)
                    .map(|f| f.instructions)
                    .collect();
                let count = u32::try_from(all.len()).ok().filter(|&count| count > 0)?;
                Some(all.iter().sum::<f64>() / f64::from(count))
            };
            if let (Some(on), Some(off)) = (mean(Reporting::On), mean(Reporting::Off)) {
                let percent = (on - off) / off * 100.0;
                let name = kind.name();
                line(
                    text,
                    &format!("\nReporting costs {percent:+.2} % a fault on {name}."),
                );
            }
        }
    }

    fn write_boots(&self, text: &mut String) {
        let Some(boots) = &self.boots else { return };
        text.push_str(
            "\n## Boots: many in a row\n\n\
             Guests of 256 MiB with 1 to 8 CPUs in turn run a busybox shell with a pipe and children; every byte of\n\
             output and the exit status are compared.\n\n",
        );
        line(
            text,
            &format!(
                "{} boots, {} failed; {:.2} s median, {:.2} s slowest, from start to end.",
                boots.boots,
                boots.failures.len(),
                boots.median_seconds,
                boots.slowest_seconds
            ),
        );
        for failure in &boots.failures {
            line(text, &format!("- {failure}"));
        }
    }
}

fn line(text: &mut String, content: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{content}");
}

/// The first line that a command prints.
fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    let text = output
        .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
        .unwrap_or_default();
    text.lines().next().unwrap_or("unknown").trim().to_owned()
}

fn mib(bytes: i64) -> String {
    let tenths = (bytes * 10) >> 20;
    let sign = if tenths < 0 { "−" } else { "" };
    format!("{sign}{}.{} MiB", tenths.abs() / 10, tenths.abs() % 10)
}

fn seconds(value: Option<f64>) -> String {
    value.map_or("never".to_owned(), |value| format!("{value:.1} s"))
}
