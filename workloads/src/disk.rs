//! `disk`: measures how fast a disk is read, one request after the other.

use crate::args::{self, Until};
use crate::clock::{monotonic_ns, ratio};
use crate::mapping::{Mapping, PageSize};
use crate::output::{Better, Labels, Metric, Output};
use crate::percentiles::spread;
use crate::{Experiment, Failure};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Duration;

/// The experiment `disk`, with its arguments, help text and function: measures how fast a disk is
/// read, one request after the other.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "disk",
    usage: "[FILE [SECONDS|ROUNDSr]]",
    summary: "a disk is read around the cache: 128 KiB in a row, 4 KiB at random",
    help: "\
Reads FILE (/dev/vda), a disk or a file of at least 128 KiB, with O_DIRECT and one request at a
time: from the front in pieces of 128 KiB, and again when it ends; then 4 KiB at places that are the
same in every run. Each for SECONDS (2), or for a fixed number of rounds of 128 pieces (10r).
Nothing is written.

Prints bytes a second in a row (sequential_bytes_per_second), reads a second at random
(random_reads_per_second) and how long these took, by percentile (random_read_ns).",
    run,
};

const DEFAULT_FILE: &str = "/dev/vda";
const DEFAULT_UNTIL: Until = Until::Elapsed(Duration::from_secs(2));
const SEQUENTIAL_BYTES: usize = 128 << 10;
const RANDOM_BYTES: usize = 4 << 10;
/// Number of reads between two readings of the clock.
const PIECES_A_ROUND: u64 = 128;
/// The largest number of times kept. Later reads are not part of the distribution.
const MAX_TIMES: usize = 1 << 20;

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 2)?;
    let path = words.first().map_or(DEFAULT_FILE, String::as_str);
    let until = words
        .get(1)
        .map_or(Ok(DEFAULT_UNTIL), |word| Until::parse(word))?;
    let (file, bytes) = open(path)?;
    let mut buffer = Mapping::anonymous(SEQUENTIAL_BYTES, PageSize::Base)?;
    let buffer = buffer.as_mut_slice();
    sequential(&file, path, bytes, buffer, until, out)?;
    random(&file, path, bytes, &mut buffer[..RANDOM_BYTES], until, out)
}

/// Opens the file for direct I/O. Returns it with its size in bytes, rounded down to whole large
/// reads. Fails with `Unsupported` if it does not exist or does not allow direct I/O.
fn open(path: &str) -> Result<(File, u64), Failure> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::Unsupported(format!("there is no disk {path}")));
        }
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            return Err(Failure::Unsupported(format!(
                "{path} cannot be read around the cache"
            )));
        }
        Err(source) => return Err(Failure::system(format!("open {path}"))(source)),
    };
    let end = file
        .seek(SeekFrom::End(0))
        .map_err(Failure::system(format!("find the end of {path}")))?;
    let bytes = end - end % SEQUENTIAL_BYTES as u64;
    if bytes == 0 {
        return Err(Failure::Usage(format!(
            "{path:?} has {end} bytes; {SEQUENTIAL_BYTES} are the least"
        )));
    }
    Ok((file, bytes))
}

/// Measures sequential reads.
fn sequential(
    file: &File,
    path: &str,
    bytes: u64,
    buffer: &mut [u8],
    until: Until,
    out: &mut Output,
) -> Result<(), Failure> {
    let begin = monotonic_ns();
    let (mut rounds, mut read, mut at) = (0, 0, 0);
    while !until.reached(rounds, monotonic_ns() - begin) {
        for _ in 0..PIECES_A_ROUND {
            read_at(file, path, buffer, at)?;
            read += buffer.len() as u64;
            at = (at + buffer.len() as u64) % bytes;
        }
        rounds += 1;
    }
    out.result(&Metric {
        name: "sequential_bytes_per_second",
        value: ratio(read, monotonic_ns() - begin) * 1e9,
        unit: "1/s",
        better: Better::Higher,
        labels: labels(SEQUENTIAL_BYTES),
    })
}

/// Measures random reads.
fn random(
    file: &File,
    path: &str,
    bytes: u64,
    buffer: &mut [u8],
    until: Until,
    out: &mut Output,
) -> Result<(), Failure> {
    let pages = bytes / buffer.len() as u64;
    let mut times = Vec::new();
    let mut place = Places(1);
    let begin = monotonic_ns();
    let (mut rounds, mut reads) = (0, 0);
    while !until.reached(rounds, monotonic_ns() - begin) {
        for _ in 0..PIECES_A_ROUND {
            let started = monotonic_ns();
            read_at(file, path, buffer, place.next(pages) * buffer.len() as u64)?;
            if times.len() < MAX_TIMES {
                times.push(monotonic_ns() - started);
            }
        }
        reads += PIECES_A_ROUND;
        rounds += 1;
    }
    out.result(&Metric {
        name: "random_reads_per_second",
        value: ratio(reads, monotonic_ns() - begin) * 1e9,
        unit: "1/s",
        better: Better::Higher,
        labels: labels(RANDOM_BYTES),
    })?;
    out.distribution(&spread("random_read_ns", times, labels(RANDOM_BYTES)))
}

fn labels(bytes: usize) -> Labels {
    Labels::from([("bytes", bytes.to_string())])
}

fn read_at(file: &File, path: &str, buffer: &mut [u8], at: u64) -> Result<(), Failure> {
    file.read_exact_at(buffer, at)
        .map_err(Failure::system(format!("read {path} at {at}")))
}

/// A pseudo-random generator with the same numbers in every run: Marsaglia's xorshift.
struct Places(u64);

impl Places {
    /// Returns a number less than `count`.
    fn next(&mut self, count: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_within_the_disk_and_all_over_it() {
        let mut places = Places(1);
        let mut seen = [false; 32];
        for _ in 0..1000 {
            seen[usize::try_from(places.next(32)).expect("small")] = true;
        }
        assert!(seen.iter().all(|&seen| seen));
    }
}
