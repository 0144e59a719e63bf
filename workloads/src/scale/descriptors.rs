//! Part `descriptors`: descriptors of open files.

use super::call::raise_limit;
use super::children::fork_and_wait;
use super::{Figures, Part, time};
use crate::Failure;
use std::fs::File;

/// The part `descriptors` of the experiment `scale`: its numbers of objects and its function.
pub(super) const PART: Part = Part {
    name: "descriptors",
    counts: "descriptors",
    usual: [100, 20_000],
    most: 100_000,
    run,
};

fn run(number: u64) -> Result<Figures, Failure> {
    raise_limit(libc::RLIMIT_NOFILE, number + 1_000)?;
    let open = || File::open("/dev/null").map_err(Failure::system("open /dev/null"));
    let mut files = Vec::new();
    for _ in 0..number {
        files.push(open()?);
    }
    let open_close = time(|_| open().map(drop))?;
    // The lowest free descriptor is in the middle.
    let middle = files.len() / 2;
    let again = time(|_| {
        files.swap_remove(middle);
        files.push(open()?);
        Ok(())
    })?;
    let (fork, end) = fork_and_wait()?;
    drop(files);
    let (fork_after, end_after) = fork_and_wait()?;
    Ok(vec![
        ("open_close_ns", open_close),
        ("close_open_one_of_all_ns", again),
        ("fork_with_them_ns", fork),
        ("end_and_wait_with_them_ns", end),
        ("fork_after_them_ns", fork_after),
        ("end_and_wait_after_them_ns", end_after),
    ])
}
