//! Packs Debian's static busybox, for scripts and for commands that a guest lacks.

use super::examiner::Examiner;
use super::format::Format;
use super::host_file::HostFile;
use super::initramfs::{GuestPath, Initramfs, Node, PackError, Source};
use crate::system::search_path;
use crate::text::one_line;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The absolute path of busybox in the guest.
pub(crate) const GUEST_PATH: &str = "/bin/busybox";
/// The largest number of applets of a busybox.
const APPLETS_MAX: usize = 2000;

/// The static busybox of this host, which guests can run, with the names of its applets.
#[derive(Debug)]
pub(crate) struct Busybox {
    file: HostFile,
    applets: BTreeSet<String>,
}

/// The reason why busybox cannot be packed: `PATH` has none, it is not static, its applets cannot
/// be listed, or its path in the guest conflicts with a packed file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BusyboxError {
    #[error("there is no busybox in PATH")]
    Missing,
    #[error("{} is not a static x86-64 program", one_line(.0))]
    NotStatic(PathBuf),
    #[error("cannot run {} --list", one_line(path))]
    List { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Pack(#[from] PackError),
}

impl Busybox {
    /// Examines the first busybox in `PATH`, runs it to list its applets, and returns it. Keeps at
    /// most 2000 applets. Fails with `Missing` if `PATH` has no busybox, with `NotStatic` if the
    /// first one cannot be read or is no static x86-64 program, and with `List` if it cannot be
    /// run. Does not try another busybox.
    pub(super) fn find(examiner: &mut Examiner) -> Result<Self, BusyboxError> {
        let path = search_path(OsStr::new("busybox")).ok_or(BusyboxError::Missing)?;
        let not_static = || BusyboxError::NotStatic(path.clone());
        let file = HostFile::open(&path).map_err(|_| not_static())?;
        let opened = file.file().map_err(|_| not_static())?;
        let program = examiner.examine(&opened).map_err(|_| not_static())?;
        if program.format != Format::Static {
            return Err(not_static());
        }
        let failed = |source| BusyboxError::List {
            path: path.clone(),
            source,
        };
        let output = Command::new(&path)
            .arg("--list")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .map_err(failed)?;
        let list = String::from_utf8_lossy(&output.stdout);
        let name = |line: &&str| !line.is_empty() && !line.contains(['/', '\0']) && *line != "..";
        let applets = list
            .lines()
            .filter(name)
            .take(APPLETS_MAX)
            .map(str::to_owned)
            .collect();
        Ok(Self { file, applets })
    }

    /// Returns whether `name` is `busybox` or one of its applets.
    pub(crate) fn has(&self, name: &OsStr) -> bool {
        name == "busybox"
            || name
                .to_str()
                .is_some_and(|name| self.applets.contains(name))
    }

    /// Adds busybox, a link in `/bin` for each applet, `/etc/passwd` and `/etc/group` to `tree`,
    /// and the link `/usr/bin/env` if there is an applet `env`. Entries that `tree` already has
    /// stay. Fails with `Conflict` if one of these folders is a packed file or link in `tree`.
    pub(crate) fn pack(&self, tree: &mut Initramfs) -> Result<(), PackError> {
        let source = Source::Host(self.file.clone());
        tree.add_missing(
            GuestPath::parse(GUEST_PATH.as_bytes())?,
            Node::File {
                mode: 0o755,
                source,
            },
        )?;
        let link = |target: &str| Node::Symlink {
            target: target.as_bytes().to_vec(),
        };
        for applet in &self.applets {
            let path = Path::new("/bin").join(applet);
            let path = GuestPath::parse(path.as_os_str().as_encoded_bytes())?;
            tree.add_missing(path, link("busybox"))?;
        }
        // These files let `ls -l`, `id` and `tar` print the name of the user who runs programs.
        for (path, text) in [
            ("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("/etc/group", "root:x:0:\n"),
        ] {
            tree.add_missing(
                GuestPath::parse(path.as_bytes())?,
                Node::File {
                    mode: 0o644,
                    source: Source::Bytes(text.as_bytes().to_vec()),
                },
            )?;
        }
        // Portable scripts begin with `#!/usr/bin/env sh`.
        if self.applets.contains("env") {
            tree.add_missing(GuestPath::parse(b"/usr/bin/env")?, link(GUEST_PATH))?;
        }
        Ok(())
    }
}
