//! The drivers that a stock kernel has as modules.

use crate::failure::Failure;
use ebb_wire::boot::MODULES;
use rustix::io::Errno;
use rustix::system::finit_module;
use std::fs::{self, File};
use std::path::PathBuf;

/// Loads each module, in the order of their names, and removes its file, which would only take memory from here on.
pub(crate) fn load_all() -> Result<(), Failure> {
    let failed = |source| Failure::new(format!("list {MODULES}"), source);
    let mut paths = Vec::new();
    match fs::read_dir(MODULES) {
        Ok(entries) => {
            for entry in entries {
                paths.push(entry.map_err(failed)?.path());
            }
        }
        // A kernel can have all of them built in.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    paths.sort();
    paths.into_iter().try_for_each(load)
}

fn load(path: PathBuf) -> Result<(), Failure> {
    let name = path.display();
    let file = File::open(&path).map_err(|error| Failure::new(format!("open {name}"), error))?;
    match finit_module(&file, c"", 0) {
        // Already there: built in after all.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(Failure::new(format!("load {name}"), errno)),
    }
    fs::remove_file(&path).map_err(|error| Failure::new(format!("remove {name}"), error))
}
