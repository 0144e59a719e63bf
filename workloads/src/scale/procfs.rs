//! Part `procfs`: text files about a process and memory.

use super::call::Reserved;
use super::{Figures, Part, time};
use crate::Failure;
use std::fs::File;
use std::io::Read;

/// The part `procfs` of the experiment `scale`: its numbers of objects and its function.
pub(super) const PART: Part = Part {
    name: "procfs",
    counts: "areas",
    usual: [10, 10_000],
    most: 60_000,
    run,
};

/// Size of a read in bytes.
const BUFFER_BYTES: usize = 64 << 10;

fn run(number: u64) -> Result<Figures, Failure> {
    let areas = usize::try_from(number).expect("it is at most 60,000");
    let pages = Reserved::new(areas)?;
    pages.map(0, areas)?;
    for page in (1..areas).step_by(2) {
        pages.protect(page, 1, false)?;
    }
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut read = |path: &str| {
        let what = || format!("read {path}");
        let mut file = File::open(path).map_err(Failure::system(what()))?;
        let mut lines = 0;
        loop {
            match file.read(&mut buffer).map_err(Failure::system(what()))? {
                0 => return Ok::<_, Failure>(lines),
                count => lines += buffer[..count].iter().filter(|b| **b == b'\n').count(),
            }
        }
    };
    // The time includes counting the lines, which takes the same few instructions on every kernel.
    let lines = read("/proc/self/maps")?.max(1);
    let maps = time(|_| read("/proc/self/maps").map(drop))?;
    let meminfo = time(|_| read("/proc/meminfo").map(drop))?;
    let stat = time(|_| read("/proc/self/stat").map(drop))?;
    drop(pages);
    let lines = u32::try_from(lines).expect("an area has a line");
    Ok(vec![
        ("maps_line_ns", maps / f64::from(lines)),
        ("maps_ns", maps),
        ("meminfo_ns", meminfo),
        ("stat_ns", stat),
    ])
}
