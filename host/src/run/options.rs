//! Options of `ebb run`.

use super::root::RootChoice;
use super::user::UserChoice;
use crate::blk::{DISKS_MAX, ImageArgument};
use crate::machine::{
    AccelChoice, GiveBack, HostPages, KernelChoice, Machine, Sysctl, give_back_parser,
};
use crate::text::{Size, one_line, parse_duration};
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

const RUN_EXAMPLES: &str = "\
Examples:
  ebb run -- python3 job.py                 the host's programs and this folder, for reading
  ebb run -m 4G -c 2 -- ./job < in > out    streams work as they do for any command
  ebb run -- sh -c 'free -m; ps'            busybox provides what the host lacks
  ebb run -it -- bash                       a shell at your terminal
  ebb run --root none --file data.csv -- ./stats data.csv    only these two files
  ebb run --user nobody -- ./job            as another user than root
  ebb run --out /results -- ./job /results  copies /results to this folder at the end
  ebb run -v .:/src -w /src -- make         changes in /src are made here
  ebb run --timeline mem.jsonl --summary -- ./job

Exit status: the program's own; 128 + N if signal N ended it; 124 after --timeout; 125 if ebb or
the guest kernel failed; 126 if the program cannot run in the guest; 127 if it was not found.

Signals go to the program. After SIGTERM it has --grace to end, then the VM is ended, with status
143; so does a second SIGTERM, more than a second later. Ctrl-C, SIGHUP and SIGQUIT end nothing but
what the program lets them end; three signals within 3 seconds end the VM. nohup(1) keeps SIGHUP
from ebb and the program. With -it Ctrl-C and all other keys are the guest's: the VM ends with the
program, or by SIGTERM from elsewhere.";

/// Options of `ebb run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = RUN_EXAMPLES, args_override_self = true)]
pub(crate) struct RunOptions {
    /// Give the program your input; needed only with -t, since without a terminal it always has it
    #[arg(short, long)]
    pub(crate) interactive: bool,

    /// Give the program a terminal; with -i it is your terminal: `ebb run -it -- sh`
    #[arg(short, long)]
    pub(crate) tty: bool,

    /// Memory of the guest, from 32M to 512G
    #[arg(
        short,
        long,
        value_name = "SIZE",
        default_value = "1G",
        allow_hyphen_values = true
    )]
    pub(crate) memory: Size,

    /// Virtual CPUs, 1 to 64 [default: the host's, at most 8]
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) cpus: Option<u32>,

    /// Kernel of the guest: ebb's own, or a stock Linux [default: ebb]
    #[arg(
        long,
        value_name = "ebb|linux[:VMLINUZ]",
        default_value = "ebb",
        hide_default_value = true
    )]
    pub(crate) kernel: KernelChoice,

    /// How freed memory goes back to the host [default: shared; reporting with Linux, --icount or
    /// --reporting-order; off with --host-pages pool]
    #[arg(long = "give-back", value_name = "MODE", value_parser = give_back_parser())]
    pub(crate) asked_give_back: Option<GiveBack>,

    /// Kind of the host's pages that hold the guest's memory
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) host_pages: HostPages,

    /// How the guest's instructions run; `auto` uses KVM if a test guest boots on it
    #[arg(long, default_value = "auto")]
    pub(crate) accel: AccelChoice,

    /// QEMU machine type
    #[arg(long, default_value = "microvm")]
    pub(crate) machine: Machine,

    /// Copy a file or directory into the guest at DEST; changes to the copy stay in the guest
    /// [default: as given, under /]
    #[arg(long = "file", value_name = "SRC[:/DEST]")]
    pub(crate) files: Vec<OsString>,

    /// Files that the guest can read: `host`, the system folders and the working folder; a folder
    /// or an image (a tar archive, also of `docker save` or OCI) as its root; or `none`. Changes of
    /// the program there stay in the guest [default: host; none with Linux, --icount, --host-pages
    /// pool, --dump-initramfs or where disks leave no room]
    #[arg(long = "root", value_name = "host|DIR|IMAGE|none")]
    pub(crate) asked_root: Option<RootChoice>,

    /// Run the program as this user instead of root: a name in the guest's /etc/passwd, or a
    /// number. The user has its groups, and a new home if the guest does not see the host's
    #[arg(
        short,
        long,
        value_name = "NAME|UID[:GROUP|GID]",
        allow_hyphen_values = true
    )]
    pub(crate) user: Option<UserChoice>,

    /// Share a folder of the host with the guest at DST, for writing. With `ro` the guest can only
    /// read; with `max=2G` it can add 2G at most. It sees nothing outside SRC, and files that it
    /// writes are yours
    #[arg(short = 'v', long = "volume", value_name = "SRC:DST[:ro|:max=SIZE]")]
    pub(crate) volumes: Vec<OsString>,

    /// Copy a file or folder of the guest to the host when the program has ended, also if it
    /// failed. GUESTPATH starts at `/`, also without a slash. A file at HOSTPATH is replaced, a
    /// folder that is not empty is refused, and `FOLDER/` puts the copy into it [default HOSTPATH:
    /// its name, in the working folder]
    #[arg(long = "out", value_name = "GUESTPATH[:HOSTPATH]")]
    pub(crate) outs: Vec<OsString>,

    /// Limit for all copies of --out together; each file counts 4K at least [default: the guest's
    /// memory]
    #[arg(long, value_name = "SIZE", requires = "outs", hide_short_help = true)]
    pub(crate) out_max: Option<Size>,

    /// Attach a disk, /dev/vda for the first: a raw file, a block device, or memory; `ro` refuses
    /// writes, `cached` uses the host's page cache. KNOB is a setting of the disk's page pool
    /// (max_buffer_pages, buffer_squeeze_duration_ms, squeeze_hold_ms) or log_stats; `ebb blk set
    /// --guest` changes it later
    #[arg(
        long = "disk",
        value_name = "PATH|ram:SIZE[,ro][,cached][,KNOB=VALUE…]"
    )]
    pub(crate) disks: Vec<ImageArgument>,

    /// Set a variable of the program's environment; `K` alone copies the host's value
    #[arg(short, long, value_name = "K=V")]
    pub(crate) env: Vec<OsString>,

    /// Set the variables in a file: a line `K=V` or `K` for each; `--env` comes on top
    #[arg(long = "env-file", value_name = "FILE")]
    pub(crate) env_files: Vec<PathBuf>,

    /// Folder in which the program starts [default: the one that ebb is run in, where the guest
    /// sees it; the image's]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,

    /// Host name of the guest [default: the host's with --root host, otherwise ebb]
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    pub(crate) hostname: Option<String>,

    /// Accepted for those who know it from containers: a guest leaves nothing behind anyway
    #[arg(long, hide = true)]
    #[allow(dead_code, reason = "the option changes nothing")]
    rm: bool,

    /// Name of the guest in `ebb top` [default: the program and ebb's process number]
    #[arg(long, value_name = "NAME", value_parser = guest_name)]
    pub(crate) name: Vec<String>,

    /// Write a JSON object at the end: settings, versions, command lines, times, memory, status
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// Set a kernel knob before the program starts; the run fails if the kernel refuses it
    #[arg(long, value_name = "vm.NAME=VALUE")]
    pub(crate) sysctl: Vec<Sysctl>,

    /// Lowest order of the free blocks that are reported or hinted, 0 to 10 [default: 9, 2 MiB]
    #[arg(long, value_name = "ORDER", value_parser = clap::value_parser!(u8).range(0..=10))]
    pub(crate) reporting_order: Option<u8>,

    /// Pack busybox and its applets even if the program does not need it to start
    #[arg(long)]
    pub(crate) busybox: bool,

    /// Write memory over time as JSON lines: used in the guest, resident on the host, reported
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline: Option<PathBuf>,

    /// Print the whole summary at the end, also with --quiet and if stderr is no terminal [default:
    /// one line of it, at a terminal]
    #[arg(long)]
    pub(crate) summary: bool,

    /// Print nothing but the program's output and errors
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Show the kernel's log and what ebb does on stderr
    #[arg(long)]
    pub(crate) verbose: bool,

    /// Count instructions as the guest's time (1 ns each), on one CPU, for exact measurements
    #[arg(long)]
    pub(crate) icount: bool,

    /// With --icount: seed of the guest's random numbers
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        requires = "icount",
        hide_short_help = true
    )]
    pub(crate) seed: u32,

    /// End the VM after this time, with status 124: seconds, or with a unit (500ms, 2s, 5m, 1h)
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,

    /// Time that the program has to end after SIGTERM, before the VM is ended
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = parse_duration,
        allow_hyphen_values = true
    )]
    pub(crate) grace: Duration,

    /// Run QEMU unconfined, with all of ebb's rights, on a host where confining it fails
    #[arg(long, hide_short_help = true)]
    pub(crate) unconfined: bool,

    /// QEMU program [default: qemu-system-x86_64, or qemu-system-x86_64-microvm if it is installed
    /// and suffices]
    #[arg(long, value_name = "PATH")]
    pub(crate) qemu: Option<PathBuf>,

    /// Boot this kernel image instead of the one in this binary (for kernel developers)
    #[arg(
        long,
        value_name = "PATH",
        env = "EBB_KERNEL_IMAGE",
        hide_short_help = true
    )]
    pub(crate) kernel_image: Option<PathBuf>,

    /// Add text to the kernel's command line (for kernel developers)
    #[arg(
        long,
        value_name = "TEXT",
        hide_short_help = true,
        allow_hyphen_values = true
    )]
    pub(crate) append: Vec<String>,

    /// Hand an argument to QEMU (for kernel developers)
    #[arg(
        long,
        value_name = "ARG",
        hide_short_help = true,
        allow_hyphen_values = true
    )]
    pub(crate) qemu_arg: Vec<OsString>,

    /// Print QEMU's command line and stop
    #[arg(long, hide_short_help = true)]
    pub(crate) print_qemu: bool,

    /// Write the initramfs to a file and stop
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) dump_initramfs: Option<PathBuf>,

    /// Program and its arguments: an x86-64 program, a script, or a busybox applet. The `--` before
    /// them may be left out [default: that of --root IMAGE]
    // Without `allow_hyphen_values`, a word with a hyphen before the program is always taken for an
    // option of `ebb`.
    #[arg(required_unless_present = "asked_root", trailing_var_arg = true)]
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}

impl RunOptions {
    /// Returns the files that the guest sees as its root: the choice of `--root`, or else the
    /// host's files where that is possible.
    ///
    /// The default is none for a stock Linux, which would start more slowly. It is none with
    /// `--icount`, whose counts must not depend on the host's files. It is also none for memory of
    /// the huge page pool (`--host-pages pool`), with `--dump-initramfs`, and for a microvm without
    /// a free device slot.
    pub(crate) fn root(&self) -> RootChoice {
        self.asked_root.clone().unwrap_or({
            let linux = matches!(self.kernel, KernelChoice::Linux(_));
            let dumped = self.dump_initramfs.is_some();
            let pool = self.host_pages == HostPages::Pool;
            if linux || self.icount || pool || dumped || self.windows(true) > self.windows_max() {
                RootChoice::Nothing
            } else {
                RootChoice::Host
            }
        })
    }

    /// Returns the number of virtio-mmio windows (device slots) that a microvm needs for disks and
    /// optional ports. `--out` takes one. The root (if `with_root`) and all volumes share one.
    pub(crate) fn windows(&self, with_root: bool) -> usize {
        let files = with_root || !self.volumes.is_empty();
        self.disks.len() + usize::from(!self.outs.is_empty()) + usize::from(files)
    }

    /// Returns the number of virtio-mmio windows (device slots) that a machine has for disks and
    /// optional ports: 4 on a microvm, whose other 4 are for the fixed ports and the balloon.
    /// `usize::MAX` on other machines.
    pub(crate) fn windows_max(&self) -> usize {
        match self.machine {
            Machine::Microvm => DISKS_MAX,
            Machine::Q35 => usize::MAX,
        }
    }

    /// Returns how freed memory goes back to the host: the choice of `--give-back`, or else the
    /// fastest mode that works.
    ///
    /// The default is off for memory of the huge page pool. It is reporting for a stock Linux and
    /// for `--reporting-order`, which knows no other mode. It is reporting with `--icount` too,
    /// where the host cannot share the guest's metadata. Otherwise it is shared.
    pub(crate) fn give_back(&self) -> GiveBack {
        self.asked_give_back.unwrap_or({
            let linux = matches!(self.kernel, KernelChoice::Linux(_));
            if self.host_pages == HostPages::Pool {
                GiveBack::Off
            } else if linux || self.icount || self.reporting_order.is_some() {
                GiveBack::Reporting
            } else {
                GiveBack::Shared
            }
        })
    }

    /// Returns the guest's name among the guests of this host: the first `--name`, or the file name
    /// of the program, made printable and cut to 53 characters, with the process number of `ebb`.
    pub(crate) fn guest_name(&self) -> String {
        self.name.first().cloned().unwrap_or_else(|| {
            let program = self.program.first().map(Path::new);
            let program = program.and_then(Path::file_name).unwrap_or_default();
            // An image may have chosen the program, so the name is made printable.
            let program = one_line(program).to_string();
            let short: String = program.chars().take(NAME_MAX - 11).collect();
            format!("{short}-{}", std::process::id())
        })
    }

    /// Returns the program and its arguments joined by blanks, for messages. Bytes that are not
    /// UTF-8 are replaced.
    pub(crate) fn program_text(&self) -> String {
        let words: Vec<_> = self
            .program
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        words.join(" ")
    }
}

/// Longest host name, in bytes.
const HOST_NAME_MAX: usize = 64;

/// Parses a host name. Fails if it is empty, too long, or has bytes that do not belong in one,
/// which would also not be safe on a kernel command line.
fn host_name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match (text.len(), text.bytes().all(plain)) {
        (1..=HOST_NAME_MAX, true) => Ok(text.to_owned()),
        _ => Err(format!(
            "a host name has 1 to {HOST_NAME_MAX} letters, digits, `-`, `.` and `_`"
        )),
    }
}

/// Longest name of a guest, in characters.
const NAME_MAX: usize = 64;

fn guest_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err("a name has at least one character, and none that is not printable".into());
    }
    match text.chars().count() {
        count if count > NAME_MAX => Err(format!(
            "it has {count} characters; a name has at most {NAME_MAX}"
        )),
        _ => Ok(text.to_owned()),
    }
}
