//! `build`: memory use grows and is freed in rounds, as on a machine that builds programs.
//!
//! In each round several jobs grow at the same time and write files. A last job reads all files at
//! once. Then all memory is freed, and the guest rests. Memory that the host still holds during the
//! rest, beyond the memory in use, is not available to other programs.

use crate::clock::{monotonic_ns, ratio};
use crate::mapping::{Mapping, PAGE_BYTES, PageSize};
use crate::memory_file;
use crate::output::{Better, Labels, Metric, Output};
use crate::tasks::Child;
use crate::{Experiment, Failure, args, size};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The experiment `build`, with its arguments, help text and function: memory use grows and is
/// freed in rounds, as on a machine that builds programs.
pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "build",
    usage: "[SIZE [ROUNDS [REST_SECONDS]]]",
    summary: "jobs grow, write files and end, round by round, with a rest after each",
    help: "\
In each of ROUNDS (5) four processes grow side by side to half of SIZE (512M) together and write files
in memory of a quarter of SIZE; when they have ended, another one takes a quarter of SIZE, reads all
files into it, and checks them. Then all is let go, and for REST_SECONDS (4) nothing happens. The work
is the same in every round and in every run.

Prints the phases start, released (once a round) and end, and the time of all rounds without the
rests (work_s).",
    run,
};

const DEFAULT_BYTES: usize = 512 << 20;
const DEFAULT_ROUNDS: usize = 5;
const MOST_ROUNDS: usize = 1000;
const DEFAULT_REST: Duration = Duration::from_secs(4);
const JOBS: usize = 4;
/// Number of steps in which a job and its file grow.
const STEPS: usize = 16;
/// Number of 64-bit words that a job computes in each page.
const WORDS_A_PAGE: usize = 64;

fn run(words: Vec<String>, out: &mut Output) -> Result<(), Failure> {
    args::no_more(&words, 3)?;
    let mut words = words.iter();
    let bytes = words.next().map_or(Ok(DEFAULT_BYTES), |w| size::parse(w))?;
    let rounds = words.next().map_or(Ok(DEFAULT_ROUNDS), |w| rounds(w))?;
    let rest = words
        .next()
        .map_or(Ok(DEFAULT_REST), |w| args::duration(w))?;
    out.phase("start", Some(bytes))?;
    let mut work_ns = 0;
    for _ in 0..rounds {
        let begin = monotonic_ns();
        round(bytes)?;
        work_ns += monotonic_ns() - begin;
        out.phase("released", Some(bytes))?;
        std::thread::sleep(rest);
    }
    out.phase("end", None)?;
    out.result(&Metric {
        name: "work_s",
        value: ratio(work_ns, 1_000_000_000),
        unit: "s",
        better: Better::Lower,
        labels: Labels::new(),
    })
}

fn rounds(text: &str) -> Result<usize, Failure> {
    match text.parse() {
        Ok(rounds @ 1..=MOST_ROUNDS) => Ok(rounds),
        _ => Err(Failure::Usage(format!(
            "{text:?} is no number of rounds, 1 to {MOST_ROUNDS}"
        ))),
    }
}

/// Runs one round: the jobs at the same time, then the one that reads their files.
fn round(bytes: usize) -> Result<(), Failure> {
    let part = (bytes / JOBS / STEPS / 4 / PAGE_BYTES).max(1) * PAGE_BYTES;
    let mut files = Vec::new();
    for _ in 0..JOBS {
        files.push(memory_file::empty()?);
    }
    let mut jobs = Vec::new();
    for (number, file) in files.iter().enumerate() {
        jobs.push(Child::fork(|| job(number, file, part))?);
    }
    for job in jobs {
        ended_well(job)?;
    }
    ended_well(Child::fork(|| link(&files, part))?)
}

/// Waits for a job. Fails if its exit status is not 0.
fn ended_well(child: Child) -> Result<(), Failure> {
    match child.wait()? {
        status if status.success() => Ok(()),
        status => Err(Failure::Wrong(format!("a job ended with {status}"))),
    }
}

/// Runs one job. It grows by two parts of `part` bytes in each step and writes one of them to its
/// file.
fn job(number: usize, file: &File, part: usize) -> Result<(), Failure> {
    let mut memory = Mapping::anonymous(2 * part * STEPS, PageSize::Default)?;
    let slice = memory.as_mut_slice();
    for step in 0..STEPS {
        let grown = &mut slice[2 * part * step..2 * part * (step + 1)];
        for (index, page) in grown.chunks_exact_mut(PAGE_BYTES).enumerate() {
            fill(page, word(number, step, index));
        }
        let offset = (part * step) as u64;
        file.write_all_at(&grown[..part], offset)
            .map_err(Failure::system("write a job's file"))?;
    }
    Ok(())
}

/// Reads all files into memory and checks that they have the contents that the jobs wrote.
fn link(files: &[File], part: usize) -> Result<(), Failure> {
    let mut memory = Mapping::anonymous(part * STEPS * files.len(), PageSize::Default)?;
    let each = memory.as_mut_slice().chunks_exact_mut(part * STEPS);
    for (number, (file, place)) in files.iter().zip(each).enumerate() {
        file.read_exact_at(place, 0)
            .map_err(Failure::system("read a job's file"))?;
        for (step, written) in place.chunks_exact(part).enumerate() {
            for (index, page) in written.chunks_exact(PAGE_BYTES).enumerate() {
                if page[..8] != word(number, step, index).to_le_bytes() {
                    return Err(Failure::Wrong(format!(
                        "page {index} of step {step} in the file of job {number} is not what was \
                         written"
                    )));
                }
            }
        }
    }
    Ok(())
}

/// Returns the first word of a page that job `number` writes in `step`.
fn word(number: usize, step: usize, index: usize) -> u64 {
    0x9e37_79b9_7f4a_7c15_u64
        .wrapping_mul(((number * STEPS + step) << 32 | index) as u64 + 1)
        .max(1)
}

/// Fills a page with words computed from its first one.
fn fill(page: &mut [u8], first: u64) {
    let mut state = first;
    for place in page.chunks_exact_mut(8).take(WORDS_A_PAGE) {
        place.copy_from_slice(&state.to_le_bytes());
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_job_finds_what_the_others_wrote_and_nothing_else() {
        let part = 4 * PAGE_BYTES;
        let file = memory_file::empty().expect("a file in memory");
        job(0, &file, part).expect("it is written");
        link(std::slice::from_ref(&file), part).expect("it is as it was written");
        file.write_all_at(&[0], (5 * part + PAGE_BYTES) as u64)
            .expect("it can be changed");
        let error = link(&[file], part).expect_err("a byte is wrong");
        assert!(error.to_string().contains("page 1 of step 5"), "{error}");
    }

    #[test]
    fn rounds_have_a_bound() {
        assert_eq!(rounds("5").ok(), Some(5));
        for wrong in ["0", "1001", "-1", "x"] {
            assert!(rounds(wrong).is_err(), "{wrong}");
        }
    }
}
