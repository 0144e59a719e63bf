//! Debian's static busybox, packed for scripts and for the commands that a guest has not.

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

/// Where the guest has it.
pub(crate) const GUEST_PATH: &str = "/bin/busybox";
/// An applet list longer than this is no busybox's.
const APPLETS_MAX: usize = 2000;

/// A busybox that guests can run.
#[derive(Debug)]
pub(crate) struct Busybox {
    file: HostFile,
    applets: BTreeSet<String>,
}

/// Why there is none.
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
    /// Looks along PATH and asks it for its applets.
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

    /// Whether `name` is one of its commands.
    pub(crate) fn has(&self, name: &OsStr) -> bool {
        name == "busybox"
            || name
                .to_str()
                .is_some_and(|name| self.applets.contains(name))
    }

    /// Adds it and a link for each applet, but where the user packed something else.
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
        // So that `ls -l`, `id` and `tar` name the user that programs are run by.
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
        // `#!/usr/bin/env sh` is how portable scripts begin.
        if self.applets.contains("env") {
            tree.add_missing(GuestPath::parse(b"/usr/bin/env")?, link(GUEST_PATH))?;
        }
        Ok(())
    }
}
