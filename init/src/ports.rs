//! Finds ebb's ports: virtio-serial ports, known by the names that the host gave them.

use crate::failure::Failure;
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::thread;
use std::time::Duration;

const CLASS: &str = "/sys/class/virtio-ports";
/// Names arrive from the host a moment after the driver was loaded.
const TRIES: u32 = 10_000;
const PAUSE: Duration = Duration::from_millis(1);

/// Opens the port `name` in both directions, as soon as it is there. A port can be opened once.
pub(crate) fn open(name: &'static str) -> Result<File, Failure> {
    for _ in 0..TRIES {
        if let Some(device) = find(name) {
            let path = Path::new("/dev").join(device);
            match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => return Ok(file),
                // Its node comes a moment after its name.
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

fn find(name: &str) -> Option<std::ffi::OsString> {
    let entries = fs::read_dir(CLASS).ok()?;
    entries.flatten().find_map(|entry| {
        let text = fs::read_to_string(entry.path().join("name")).ok()?;
        (text.trim_end() == name).then(|| entry.file_name())
    })
}
