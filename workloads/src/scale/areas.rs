//! Part `areas`: memory areas (VMAs) of the address space.

use super::call::Reserved;
use super::{Figures, Part, time};
use crate::Failure;

/// The part `areas` of the experiment `scale`: its numbers of objects and its function.
pub(super) const PART: Part = Part {
    name: "areas",
    counts: "areas",
    usual: [1_000, 30_000],
    // Linux allows 65,530 areas, and the program has some itself.
    most: 60_000,
    run,
};

/// Number of pages of an area that is protected as a whole.
const WHOLE: usize = 16;
/// Distance in pages between two such areas, so that they never merge.
const STEP: usize = WHOLE + 1;
/// Number of such areas. The calls use them in turn.
const WHOLES: usize = 32;

fn run(number: u64) -> Result<Figures, Failure> {
    let number = usize::try_from(number).expect("it is at most 60,000");
    // Every other page is writable, so each page is an area.
    let pages = Reserved::new(number + 2)?;
    pages.map(0, number)?;
    for page in (1..number).step_by(2) {
        pages.protect(page, 1, false)?;
    }
    let wholes = Reserved::new(WHOLES * STEP)?;
    for index in 0..WHOLES {
        wholes.map(index * STEP, WHOLE)?;
        wholes.touch(index * STEP, WHOLE);
    }
    // Making a page in the middle writable merges it with both adjacent areas. Making it read-only
    // splits them again.
    let middle = number / 4 * 2 + 1;
    let place = |index: usize| {
        let near = middle + index / 2 % 8 * 2;
        if near < number { near } else { number - 1 }
    };
    let one = time(|index| pages.protect(place(index), 1, index % 2 == 0))?;
    let whole = time(|index| {
        let turn = index / WHOLES % 2 == 1;
        wholes.protect(index % WHOLES * STEP, WHOLE, turn)
    })?;
    let map = time(|_| {
        pages.map(number + 1, 1)?;
        pages.unmap(number + 1, 1)
    })?;
    Ok(vec![
        ("mprotect_ns", one),
        ("mprotect_16_pages_ns", whole),
        ("mmap_munmap_ns", map),
    ])
}
