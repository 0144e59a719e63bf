//! `holes`: memory of a file that is touched, given back by punching a hole, and touched again.
//!
//! A host does the same with a guest's memory. Run on the host, the experiment shows what memory
//! that comes and goes costs there without a guest.

use crate::clock::{monotonic_ns, ratio};
use crate::mapping::{HUGE_BYTES, Mapping};
use crate::output::{Better, Labels, Metric, Output};
use crate::{Experiment, Failure, args, size};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

/// The experiment `holes`, with its arguments, help text and function: touches the memory of a
/// file, frees it by punching a hole, and touches it again.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "holes",
    usage: "FOLDER [SIZE [ROUNDS [REST_SECONDS]]]",
    summary: "touch a file's memory, punch it out, rest, and touch it again",
    help: "\
FOLDER is on a tmpfs; its mount option `huge` decides what pages the file gets. A file without a name
is made there, mapped, and SIZE (512M) of it is touched, once in each page of 4 KiB. ROUNDS (5) times
all of it is punched out, nothing happens for REST_SECONDS (0), and it is touched again.

Prints the time of touching SIZE the first time (first_s), of punching it out (punch_s), and of
touching it again (again_s). The last two are means over the rounds.",
    run,
};

const DEFAULT_BYTES: usize = 512 << 20;
const DEFAULT_ROUNDS: u64 = 5;
const MAX_ROUNDS: u64 = 1000;

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 4)?;
    let mut words = words.iter();
    let folder = words
        .next()
        .ok_or_else(|| Failure::Usage("which folder?".to_owned()))?;
    let bytes = words.next().map_or(Ok(DEFAULT_BYTES), |w| size::parse(w))?;
    let rounds = words.next().map_or(Ok(DEFAULT_ROUNDS), |w| {
        args::number(w, "rounds", 1, MAX_ROUNDS)
    })?;
    let rest = words
        .next()
        .map_or(Ok(Duration::ZERO), |w| args::duration(w))?;
    let bytes = bytes.next_multiple_of(HUGE_BYTES);
    let file = unnamed(folder, bytes)?;
    let mut memory = Mapping::of_shared_file(&file, bytes)?;

    let first = timed(|| memory.touch());
    let (mut punch, mut again) = (0, 0);
    for _ in 0..rounds {
        let mut outcome = Ok(());
        punch += timed(|| outcome = punch_out(&file, bytes));
        outcome?;
        std::thread::sleep(rest);
        again += timed(|| memory.touch());
        memory.check()?;
    }
    result(out, "first_s", first, 1)?;
    result(out, "punch_s", punch, rounds)?;
    result(out, "again_s", again, rounds)
}

/// Returns how long `work` takes, in ns.
fn timed(work: impl FnOnce()) -> u64 {
    let begin = monotonic_ns();
    work();
    monotonic_ns() - begin
}

/// Prints the metric `name`: the mean over `rounds` of `ns` nanoseconds, in seconds.
fn result(out: &mut Output, name: &'static str, ns: u64, rounds: u64) -> Result<(), Failure> {
    out.result(&Metric {
        name,
        value: ratio(ns, rounds * 1_000_000_000),
        unit: "s",
        better: Better::Lower,
        labels: Labels::new(),
    })
}

/// Makes a file of `bytes` bytes in `folder` that has no name and no memory yet.
fn unnamed(folder: &str, bytes: usize) -> Result<File, Failure> {
    let what = || format!("make a file of {bytes} bytes in {folder:?}");
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(folder)
        .map_err(Failure::system(what()))?;
    file.set_len(bytes as u64)
        .map_err(Failure::system(what()))?;
    Ok(file)
}

/// Frees the memory of the first `bytes` bytes of `file`, which keeps its size.
fn punch_out(file: &File, bytes: usize) -> Result<(), Failure> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let length = libc::off_t::try_from(bytes)
        .map_err(|_| Failure::Usage(format!("{bytes} bytes are more than a file can have")))?;
    // SAFETY: the call reads and writes no memory of this program; pages of `file` that are mapped
    // here read as zero afterwards.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, length) } {
        0 => Ok(()),
        _ => Err(Failure::last_os(format!("punch out {bytes} bytes"))),
    }
}
