//! The knobs of `/proc/sys` that the boot line sets before the program starts.

use super::system;
use crate::fs::{self, lookup};
use crate::process::task;
use alloc::string::String;
use logic::errno::Errno;

/// Applies the `sysctl.NAME=VALUE` words of the command line: writes VALUE to `/proc/sys/NAME`,
/// with the dots in NAME as slashes. Must be called by a task, since knobs check the caller's
/// rights and signals.
///
/// # Errors
/// Fails with the error of the first word that cannot be applied, and names that word on the
/// console. `ebb` looks for this line.
pub fn apply_boot_line() -> Result<(), Errno> {
    for word in system::boot_line().split_ascii_whitespace() {
        let Some((name, value)) = word.strip_prefix("sysctl.").and_then(|w| w.split_once('='))
        else {
            continue;
        };
        let mut path = String::from("/proc/sys/");
        path.extend(name.chars().map(|c| if c == '.' { '/' } else { c }));
        if let Err(error) = store(&path, value) {
            let shown = logic::path::printable(word.trim_start_matches("sysctl.").as_bytes());
            let why = match error {
                Errno::ENOENT | Errno::ENOTDIR => "there is no such knob",
                Errno::EACCES | Errno::EISDIR => "it can only be read",
                Errno::EINVAL => "the knob does not take this value",
                _ => {
                    machine::console!("init: cannot set {shown}: {error}");
                    return Err(error);
                }
            };
            machine::console!("init: cannot set {shown}: {why}");
            return Err(error);
        }
    }
    Ok(())
}

/// Writes `value` to the file at `path`. Fails if there is no such file, and with the error of the
/// write.
fn store(path: &str, value: &str) -> Result<(), Errno> {
    let root = fs::root();
    let found = lookup::resolve(
        &task::root_credentials(),
        &root,
        &root,
        path.as_bytes(),
        lookup::LastLink::Keep,
    )?;
    let flags = fs::OpenFlags::WRITE_ONLY;
    let file = fs::OpenFile::open(found.existing()?, None, flags)?;
    file.write(&mut fs::io::SliceSource::new(
        value.as_bytes(),
        fs::io::NO_LIMIT,
    ))?;
    Ok(())
}
