//! Opens ebb's virtio-serial ports by the names that the host gave them.

use crate::failure::Failure;
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::thread;
use std::time::Duration;

const CLASS: &str = "/sys/class/virtio-ports";
/// Number of tries and the time between them. The host sends a port's name a moment after the
/// driver was loaded.
const TRIES: u32 = 10_000;
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until the port `name` exists, 10 seconds at most, and opens it for reading and writing. A
/// port can be opened only once. Fails with `NoPort` if it does not appear in time. Also fails if
/// it cannot be opened.
pub(crate) fn open(name: &'static str) -> Result<File, Failure> {
    for _ in 0..TRIES {
        if let Some(device) = find(name) {
            let path = Path::new("/dev").join(device);
            match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => return Ok(file),
                // The device file appears a moment after the name.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Failure::new(format!("open {}", path.display()), error));
                }
            }
        }
        thread::sleep(PAUSE);
    }
    Err(Failure::NoPort(name))
}

/// Returns the device name of the port `name`. Returns `None` if there is none yet.
fn find(name: &str) -> Option<std::ffi::OsString> {
    let entries = fs::read_dir(CLASS).ok()?;
    entries.flatten().find_map(|entry| {
        let text = fs::read_to_string(entry.path().join("name")).ok()?;
        (text.trim_end() == name).then(|| entry.file_name())
    })
}
