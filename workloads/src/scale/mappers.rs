//! Part `mappers`: processes that map one file.

use super::children::with_children;
use super::{Figures, Part, time};
use crate::Failure;
use crate::mapping::{Mapping, PAGE_BYTES};
use crate::memory_file;

/// The part `mappers` of the experiment `scale`: its numbers of objects and its function.
pub(super) const PART: Part = Part {
    name: "mappers",
    counts: "mappers",
    usual: [50, 3_200],
    most: 20_000,
    run,
};

/// Size of the file in bytes.
const BYTES: usize = 16 * PAGE_BYTES;

fn run(number: u64) -> Result<Figures, Failure> {
    let file = memory_file::filled(BYTES)?;
    // The children inherit the mapping.
    let mapping = Mapping::of_shared_file(&file, BYTES)?;
    with_children(number, || {
        drop(mapping);
        let untouched = time(|_| Mapping::of_shared_file(&file, BYTES).map(drop))?;
        let touched = time(|_| {
            let mut mapping = Mapping::of_shared_file(&file, BYTES)?;
            mapping.touch_part(0..PAGE_BYTES);
            Ok(())
        })?;
        Ok(vec![
            ("map_file_ns", untouched),
            ("map_and_touch_file_ns", touched),
        ])
    })
}
