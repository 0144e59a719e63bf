//! Areas of the address space.

use super::call::Reserved;
use super::{Figures, Part, time};
use crate::Failure;

pub(super) const PART: Part = Part {
    name: "areas",
    counts: "areas",
    usual: [1_000, 30_000],
    // Linux has 65,530 at most, and the program some of its own.
    most: 60_000,
    run,
};

/// Pages of an area that is protected as a whole.
const WHOLE: usize = 16;
/// Pages from the start of one of these to that of the next, so that they never join.
const STEP: usize = WHOLE + 1;
/// Areas of that kind; the calls go round among them.
const WHOLES: usize = 32;

fn run(number: u64) -> Result<Figures, Failure> {
    let number = usize::try_from(number).expect("it is at most 60,000");
    // Every other page is writable: so many areas.
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
    // A page in the middle that becomes writable joins both its neighbours, and parts them again.
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
