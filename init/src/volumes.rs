//! The host's folders that programs write (`--volume`).

use crate::caches::Caches;
use crate::failure::Failure;
use crate::fuse::{self, Folder};
use crate::host_port::HostPort;
use crate::string_list;
use ebb_wire::volume::LIST;
use rustix::mount::MountFlags;
use rustix::time::{ClockId, Timespec, clock_settime};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The mount points of all mounted volumes.
#[derive(Debug, Default)]
pub(crate) struct Volumes(Vec<PathBuf>);

impl Volumes {
    /// Mounts the volumes of the list that ebb has packed. If there are any, sets the clock to the
    /// host's time. Fails if the list or `/proc/sys/vm/drop_caches` cannot be opened, the clock
    /// cannot be set, or a volume cannot be mounted.
    pub(crate) fn mount(host_port: &Arc<HostPort>) -> Result<Self, Failure> {
        let words = string_list::read(LIST)?;
        let caches = Arc::new(Caches::start()?);
        let mut points = Vec::new();
        for volume in words.chunks_exact(3) {
            let [access, point, source] = volume else {
                continue;
            };
            let point = PathBuf::from(point);
            let failed = |error: std::io::Error| {
                Failure::new(format!("have a volume at {}", point.display()), error)
            };
            fs::create_dir_all(&point).map_err(failed)?;
            let (folder, time) =
                Folder::new(host_port.clone(), points.len() as u64, caches.clone())
                    .map_err(|errno| failed(errno.into()))?;
            if points.is_empty() {
                set_clock(time)?;
            }
            let mut flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME;
            flags.set(MountFlags::RDONLY, access == "ro");
            fuse::mount(folder, "fuse.hostfs", source.as_bytes(), &point, flags)?;
            points.push(point);
        }
        Ok(Self(points))
    }

    /// Waits until all child processes have ended, and then writes all changes of the volumes to
    /// the host. Ignores errors, since the guest ends. Call this when all other processes were
    /// killed.
    pub(crate) fn settle(&self) {
        if self.0.is_empty() {
            return;
        }
        // All other processes were killed. `wait` fails when no child is left.
        while rustix::process::wait(rustix::process::WaitOptions::empty()).is_ok() {}
        // `sync` sends the dirty pages of mappings to the host; the requests below follow them.
        rustix::fs::sync();
        for point in &self.0 {
            // Fails if the host is gone.
            let _ = File::open(point).and_then(|folder| folder.sync_all());
        }
    }
}

/// Sets the guest's clock to the host's time, since the files of volumes have the host's times.
/// Fails if Linux refuses the time.
fn set_clock(time: Duration) -> Result<(), Failure> {
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(0),
        tv_nsec: time.subsec_nanos().into(),
    };
    clock_settime(ClockId::Realtime, time).map_err(|errno| Failure::new("set the clock", errno))
}
