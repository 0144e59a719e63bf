//! Writes the seeds for fuzzing: valid requests of both transports, each in a file, with a folder
//! for each fuzz target.
//!
//! ```text
//! cargo run -p ebb-blk --example seeds -- target/fuzz/corpus
//! ```

use std::path::PathBuf;
use std::{env, fs, io};

#[path = "../tests/request/blkif.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "shared with the fuzz target"
)]
mod blkif;
#[path = "../tests/request/exercise.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "shared with the fuzz target"
)]
mod exercise;

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("seeds: into which folder?"))?;
    for (target, seeds) in [("request", exercise::seeds()), ("blkif", blkif::seeds())] {
        let folder = folder.join(target);
        fs::create_dir_all(&folder)?;
        for (name, input) in seeds {
            fs::write(folder.join(name), input)?;
        }
    }
    Ok(())
}
