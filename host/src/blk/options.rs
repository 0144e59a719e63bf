//! Options of `ebb blk`.

use super::disk::DiskArgument;
use crate::failure::Failure;
use clap::{Args, Subcommand};
use ebb_blk::knobs::{KnobError, Setting};
use ebb_blk::server::{Options, Server};
use ebb_blk::watcher::DEFAULT_BACKEND;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  ebb blk serve --disk data=disk.img --disk scratch=ram:64M
  ebb blk serve --disk data=disk.img --set max_buffer_pages=256 --set squeeze_hold_ms=0
  ebb blk serve --disk data=disk.img,max_buffer_pages=64 --disk log=log.img     # of one disk
  ebb blk get
  ebb blk set max_buffer_pages=0 --instance data
  ebb blk squeeze
  ebb blk get --guest build           # the disks of `ebb run --name build --disk …`
  ebb blk serve --xen                 # in dom0: every backend/qdisk/DOMAIN/DEVICE

A guest of QEMU's gets a disk so (its memory has to be shared):
  qemu-system-x86_64 -m 1G -object memory-backend-memfd,id=ram,size=1G,share=on \\
    -machine q35,memory-backend=ram -chardev socket,id=c,path=DIR/data.sock \\
    -device vhost-user-blk-pci,chardev=c …";

/// Options of `ebb blk`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BlkOptions {
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Action {
    /// Serve disks to guests by vhost-user, or to Xen domains, until Ctrl-C; a second Ctrl-C ends
    /// at once
    Serve(ServeOptions),
    /// Show the served disks, their page pools and settings
    Get {
        /// Only this disk
        #[arg(long, value_name = "NAME")]
        instance: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        selector: DiskSelector,
    },
    /// Change a setting of served disks
    Set {
        /// `max_buffer_pages`, `buffer_squeeze_duration_ms`, `squeeze_hold_ms` or `log_stats`; of
        /// disks of Xen's domains also `max_persistent_grants` or
        /// `persistent_grant_unused_seconds`
        #[arg(value_name = "KNOB=VALUE")]
        setting: Setting,
        /// Only of this disk
        #[arg(long, value_name = "NAME")]
        instance: Option<String>,
        #[command(flatten)]
        selector: DiskSelector,
    },
    /// Free the unused pages of all pools, as under memory pressure
    Squeeze {
        /// Only of this disk
        #[arg(long, value_name = "NAME")]
        instance: Option<String>,
        #[command(flatten)]
        selector: DiskSelector,
    },
}

/// Options of `ebb blk serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeOptions {
    /// A disk: a raw file, a block device, or memory; `ro` refuses writes, `cached` uses the host's
    /// page cache. KNOB=VALUE is a setting of this disk alone, in place of --set's. With `incoming`
    /// another back-end may use the image until a guest that migrates here runs
    #[arg(
        long = "disk",
        value_name = "NAME=PATH|ram:SIZE[,ro][,cached][,KNOB=VALUE…][,incoming]",
        required_unless_present = "xen"
    )]
    pub(crate) disks: Vec<DiskArgument>,

    /// Also serve Xen domains: the disks that the toolstack names below backend/NAME in xenstore,
    /// as they come and go [default NAME: qdisk]. On Ctrl-C they stay connected: their requests
    /// wait for the next start
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = DEFAULT_BACKEND)]
    pub(crate) xen: Option<String>,

    /// A setting of all disks at their start, as `ebb blk set` changes it later; for more than one,
    /// repeat the option
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub(crate) settings: Vec<Setting>,

    /// Folder for the disks' sockets, each NAME.sock [default: the control socket's]
    #[arg(long, value_name = "DIR")]
    pub(crate) socket_dir: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) socket: SocketOption,
}

/// Where the control socket is.
#[derive(Args, Debug)]
pub(crate) struct SocketOption {
    /// Control socket [default: ebb-blk/control.sock in $XDG_RUNTIME_DIR, else in /run or /tmp]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// Whose disks are meant.
#[derive(Args, Debug)]
pub(crate) struct DiskSelector {
    #[command(flatten)]
    pub(crate) socket: SocketOption,

    /// The disks of an `ebb run`, by the guest's name or process number (`ebb top` shows them)
    #[arg(long, value_name = "NAME|PID", conflicts_with = "control")]
    pub(crate) guest: Option<String>,
}

impl SocketOption {
    /// Returns the control socket's path: the one that the user gave, or `control.sock` in the
    /// default folder. Creates the default folder if that is used. Fails if that folder cannot be
    /// created or belongs to another user. Does not look whether the socket exists.
    pub(crate) fn path(&self) -> Result<PathBuf, Failure> {
        if let Some(path) = &self.control {
            return Ok(path.clone());
        }
        let user = rustix::process::getuid();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        // The XDG specification says that a relative path must be ignored.
        let folder = match runtime.filter(|folder| folder.is_absolute()) {
            Some(folder) => folder.join("ebb-blk"),
            None if user.is_root() => PathBuf::from("/run/ebb-blk"),
            None => PathBuf::from(format!("/tmp/ebb-blk-{}", user.as_raw())),
        };
        let failed = |source| Failure::Socket {
            path: folder.clone(),
            source,
        };
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        // The owner of a folder in /tmp could replace the sockets in it.
        let owner = rustix::fs::lstat(&folder)
            .map_err(|errno| failed(errno.into()))?
            .st_uid;
        if owner != user.as_raw() {
            return Err(failed(io::Error::other(
                "the folder belongs to another user",
            )));
        }
        Ok(folder.join("control.sock"))
    }
}

impl ServeOptions {
    /// Makes the server, without disks, with the settings that `--set` gives. If a setting is given
    /// twice, the last value counts. Fails if a setting is for disks of Xen's domains alone, and
    /// there is no `--xen`.
    pub(crate) fn server(&self) -> Result<Server, Failure> {
        let server = Server::new(Options {
            xen: self.xen.is_some(),
            ..Options::default()
        });
        for setting in &self.settings {
            let knob = setting.knob();
            if knob.is_for_xen_alone() && self.xen.is_none() {
                let setting = setting.to_string();
                let error = KnobError::ForXenAlone { setting, knob };
                return Err(Failure::Usage(format!("--set: {error}")));
            }
            server.knobs().apply(*setting);
        }
        Ok(server)
    }

    /// Returns the folder for the disks' sockets: `--socket-dir`, or the control socket's folder.
    /// Does not create it, unless it is the default one. Fails if the default folder is needed and
    /// cannot be used.
    pub(crate) fn folder(&self) -> Result<PathBuf, Failure> {
        if let Some(folder) = &self.socket_dir {
            return Ok(folder.clone());
        }
        let control = self.socket.path()?;
        Ok(control.parent().map_or_else(PathBuf::new, PathBuf::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use ebb_blk::knobs::{Knob, Knobs};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }

    #[test]
    fn disks_start_with_the_settings_that_are_given() {
        let parse = |settings: &[&str]| {
            let line = ["serve", "--disk", "d=ram:1M"];
            Line::try_parse_from(line.iter().chain(settings))
        };
        let given = ["--set", "max_buffer_pages=7", "--set", "log_stats=1"];
        let options = parse(&given).ok().unwrap().options;
        let server = options.server().unwrap();
        let value = |knob| server.knobs().get(knob);
        assert_eq!(value(Knob::MaxBufferPages), 7);
        assert_eq!(value(Knob::LogStats), 1);
        assert_eq!(
            value(Knob::SqueezeHoldMs),
            Knobs::default().get(Knob::SqueezeHoldMs)
        );
        for bad in ["log_stats=2", "pages=1", "log_stats"] {
            assert!(parse(&["--set", bad]).is_err(), "{bad}");
        }
        let grants = ["--set", "max_persistent_grants=7", "--xen"];
        let refused = parse(&grants[..2]).ok().unwrap().options.server();
        let why = refused.unwrap_err().to_string();
        assert!(
            why.contains("max_persistent_grants is for disks of Xen's domains"),
            "{why}"
        );
        let server = parse(&grants).ok().unwrap().options.server().unwrap();
        assert_eq!(server.knobs().get(Knob::MaxPersistentGrants), 7);
    }
}
