//! The back-ends, each in a process of its own.

use crate::Options;
use crate::frontend::{Client, Failed};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time in which a back-end must start to listen.
const START: Duration = Duration::from_secs(10);
/// A time longer than a squeezed pool takes to be freed.
const RETURN: Duration = Duration::from_millis(150);

/// The back-end to measure.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Backend {
    Ebb,
    Qemu,
    /// With an I/O thread of its own, which polls before it sleeps.
    QemuIothread,
}

impl Backend {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ebb => "ebb blk",
            Self::Qemu => "qemu-storage-daemon",
            Self::QemuIothread => "qemu-storage-daemon, iothread",
        }
    }
}

/// A running back-end, which is killed when this value is dropped.
pub(crate) struct Served {
    child: Child,
    folder: PathBuf,
    ebb: Option<PathBuf>,
}

/// Memory of a process in KiB, without the memory it shares with the front-end.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Memory {
    /// Its anonymous memory.
    pub(crate) anonymous: u64,
    /// The memory of its program and libraries.
    pub(crate) program: u64,
}

impl Served {
    /// Starts a back-end that serves `image`, and waits until it listens. Fails if it does not.
    pub(crate) fn start(which: Backend, options: &Options, image: &Path) -> Result<Self, Failed> {
        let folder =
            std::env::temp_dir().join(format!("ebb-drive-{}-{which:?}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let socket = folder.join("d.sock");
        let ours = which == Backend::Ebb;
        let mut command = if ours {
            let mut command = Command::new(&options.ebb);
            command.args(["blk", "serve", "--disk", &format!("d={}", image.display())]);
            command.arg("--control").arg(folder.join("control.sock"));
            command
        } else {
            let mut command = Command::new("qemu-storage-daemon");
            let (file, path) = (image.display(), socket.display());
            let mut export = format!(
                "type=vhost-user-blk,id=e,node-name=f,writable=on,addr.type=unix,addr.path={path}"
            );
            if which == Backend::QemuIothread {
                command.args(["--object", "iothread,id=t"]);
                export.push_str(",iothread=t");
            }
            let node =
                format!("driver=file,node-name=f,filename={file},cache.direct=on,aio=io_uring");
            command.args(["--blockdev", &node, "--export", &export]);
            command
        };
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let ebb = ours.then(|| options.ebb.clone());
        let served = Self { child, folder, ebb };
        let started = Instant::now();
        while !socket.exists() {
            if started.elapsed() > START {
                return Err(format!("{} does not start", which.name()).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(served)
    }

    /// Connects a front-end.
    pub(crate) fn connect(&self) -> Result<Client, Failed> {
        Client::connect(UnixStream::connect(self.folder.join("d.sock"))?, 1)
    }

    /// Reads the memory of the back-end's process. Fails if the process has ended.
    pub(crate) fn memory(&self) -> Result<Memory, Failed> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field = |name: &str| -> Result<u64, Failed> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
            Ok(number.ok_or_else(|| format!("no {name}"))?.trim().parse()?)
        };
        Ok(Memory {
            anonymous: field("RssAnon:")?,
            program: field("RssFile:")?,
        })
    }

    /// Has an `ebb blk` free its pool, and waits for 150 ms. For other back-ends, which have no
    /// such command, only waits.
    pub(crate) fn squeeze(&self) -> Result<(), Failed> {
        self.command(&["squeeze"])?;
        std::thread::sleep(RETURN);
        Ok(())
    }

    /// Sets the number of free pages that an `ebb blk` keeps.
    pub(crate) fn keep_pages(&self, pages: u32) -> Result<(), Failed> {
        self.command(&["set", &format!("max_buffer_pages={pages}")])
    }

    /// Runs an `ebb blk` command for the back-end and waits for it. Does nothing if that is no `ebb
    /// blk`. Fails if the command does.
    fn command(&self, arguments: &[&str]) -> Result<(), Failed> {
        let Some(ebb) = &self.ebb else {
            return Ok(());
        };
        let mut command = Command::new(ebb);
        command.arg("blk").args(arguments).stdout(Stdio::null());
        let status = command
            .arg("--control")
            .arg(self.folder.join("control.sock"))
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("{arguments:?} failed").into())
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
