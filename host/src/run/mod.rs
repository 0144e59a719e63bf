//! The command `ebb run`: from its checked options to the exit status of the guest's program.
//!
//! [`run`] prepares all parts of a guest (files, kernel, accelerator, disks), and [`session`] boots
//! and watches it.
//!
//! # One run
//!
//! 1. [`run`] checks the options. [`crate::archive`] packs the program, its libraries and the
//!    user's files into an initramfs in a memfd. [`crate::guest`] loads the kernel, `program` finds
//!    QEMU, `accel` chooses KVM or TCG.
//! 2. `session` makes the RAM file and starts QEMU, with stopped CPUs ([`crate::qemu`]). QEMU
//!    inherits kernel, initramfs, RAM, monitors and ports as open descriptors. Then the monitor
//!    starts the CPUs. Stock Linux sometimes hangs while it boots, and is started again then.
//! 3. The guest's kernel boots (`kernel/src/main.rs`), and its first process starts the program.
//! 4. `watch` samples the guest until it ends. Other threads carry the streams, take free memory
//!    ([`crate::reclaim`]), serve the host's files (`root`, `volumes`), and answer other commands
//!    ([`crate::registry`]).
//! 5. The program ends. For `--out` the guest kills the other processes and runs `ebb-init`, which
//!    sends the files; a guest with stock Linux has that process already. Ebb's kernel writes the
//!    wait status to the header page, and the VM ends.
//! 6. `out` creates the files, `summary` computes the figures, and `ebb` exits with the program's
//!    status.

mod accel;
mod begin;
mod boot_watchdog;
mod chart;
mod delivery;
mod host_stalls;
mod options;
mod out;
mod pack;
mod pressure;
mod privileges;
mod program;
mod record;
mod refused_call;
mod root;
mod sampler;
mod session;
mod signals;
mod status_line;
mod summary;
mod timeline;
mod trace;
mod unrunnable;
mod unseen;
mod user;
mod volumes;
mod watch;

pub(crate) use options::RunOptions;
#[cfg(test)]
pub(crate) use record::Record;
#[cfg(test)]
pub(crate) use timeline::Line;

use crate::archive::{Budget, Examiner};
use crate::blk::{DISKS_MAX, Disks};
use crate::confine::Preparation;
use crate::failure::Failure;
use crate::guest::{self, BootOptions, Kernel};
use crate::machine::{AccelChoice, Dialect, GiveBack, HostPages, KernelChoice, KernelKind};
use crate::qemu::{RamMaker, Spec};
use crate::registry::Fleet;
use crate::stdout;
use crate::streams;
use crate::system::opened::{facts, kind_of};
use crate::system::{
    create_private_file, huge_pages, is_inside, is_same_file, memory_file, open_named, regular_of,
};
use crate::text::{Size, one_line, raw, stderr};
use accel::Choice;
use begin::{add_env_files, folders_to_create, working_folder};
use ebb_wire::volume::VOLUMES_MAX;
use ebb_wire::{boot, port, terminal};
use out::Outs;
use program::Programs;
use root::{RemoteImage, Root, RootChoice, View};
use rustix::fs::{FileType, OFlags};
use session::Plan;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use user::UserChoice;
use volumes::{VolumeOption, Volumes};

const MEMORY_MAX: Size = Size::mebibytes(512 << 10);
const CPUS_MAX: u32 = 64;
/// The most characters of an error message about an image. Names inside the message are shortened
/// before that.
const WHY_MAX: usize = 1024;
/// The most virtual CPUs of a guest by default. With fewer host CPUs, it gets that number.
const CPUS_DEFAULT_MAX: u32 = 8;

/// Prepares and boots a guest, runs the program in it, and returns the program's exit status (128 +
/// N after signal N). Blocks until the guest has ended. Prints messages, and copies files of
/// `--out`.
///
/// Returns 0 without booting after `--dump-initramfs` has written its file or `--print-qemu` has
/// printed QEMU's command line.
///
/// # Errors
/// Fails if an option is wrong, if the guest cannot be prepared or booted, if it ends without a
/// status of the program or runs longer than `--timeout`, or if the program succeeded and its
/// output or a file cannot be written.
pub(crate) fn run(options: &RunOptions) -> Result<u8, Failure> {
    let (memory, cpus) = check(options)?;
    // Both start helper processes, which get ready while this process goes on.
    let sandbox = Preparation::begin(options.unconfined);
    let examiner = Examiner::begin();
    let ram = ram_of(options, memory)?;
    let outs = Outs::new(&options.outs, options.out_max.unwrap_or(memory))?;
    check_results(options, outs.as_ref())?;
    let mut root = root_of(options)?;
    let mut options = options.clone();
    add_env_files(&mut options)?;
    let completed = with_image(&options, root.as_ref())?;
    let is_images = options.program.is_empty() && completed.is_some();
    let options = completed.as_ref().unwrap_or(&options);
    let (listed, mut volumes) = volumes_of(options)?;
    let pack::Packed {
        tree: mut initramfs,
        user,
        unseen,
    } = pack::pack(
        options,
        root.as_mut(),
        (&listed, volumes.as_ref()),
        is_images,
        examiner,
    )?;
    let begin = working_folder(options, root.as_mut(), &initramfs)?;
    for folder in folders_to_create(options, root.as_mut(), &begin) {
        pack::pack_missing_folder(&mut initramfs, root.as_mut(), &folder)?;
    }
    if let (Some(Root::Host(view)), Some(user)) = (&mut root, &user) {
        view.give([user.uid, user.gid]);
    }
    if let (Some(volumes), Some(user)) = (&mut volumes, &user) {
        volumes.give_to([user.uid, user.gid]);
    }
    if !listed.is_empty() {
        pack::pack_volumes(&mut initramfs, &listed)?;
    }
    if let Some(root) = &mut root {
        pack::leave_to(root, &mut initramfs);
    }
    if root.is_some() || options.workdir.is_some() {
        pack::pack_folder(&mut initramfs, begin.clone())?;
    }
    let image = options.kernel_image.as_deref();
    let extras = guest::Extras {
        disks: !options.disks.is_empty(),
        files: root.is_some() || volumes.is_some(),
        plugged: options.qemu_arg.iter().any(|word| {
            let word = word.to_string_lossy();
            word.starts_with("virtio-mem-pci") || word.starts_with("virtio-mem-device")
        }),
    };
    let kernel = guest::load(&options.kernel, image, extras)?;
    kernel.furnish(&mut initramfs)?;
    if let Some(outs) = &outs {
        pack::pack_out(&mut initramfs, outs, kernel.kind())?;
    }
    // The budget makes sure that half of the guest's memory is left beside the kernel and the
    // archive.
    let budget = Budget::of_guest(memory, kernel.span_bytes());
    if let Some(path) = &options.dump_initramfs {
        // Measured first, so that an existing file is not overwritten if the archive is refused.
        initramfs.measure(kernel.alignment(), budget)?;
        // The file is private because the archive holds the program's environment.
        let file = create_private_file(path).map_err(|source| Failure::Write {
            path: path.clone(),
            source,
        })?;
        initramfs.write(file, kernel.alignment(), budget)?;
        return Ok(0);
    }
    let archive = memory_file("ebb-initramfs").map_err(Failure::setup("the initramfs"))?;
    initramfs.write(&archive, kernel.alignment(), budget)?;
    // Closes the host files that it holds open.
    drop(initramfs);
    let sandbox = sandbox.finish(ram.backing().advice(memory.bytes()))?;
    if !options.quiet {
        for (measure, why) in sandbox.missing() {
            stderr::say(&format!(
                "ebb: this host confines QEMU without {measure}: {why}"
            ));
        }
    }
    let choice = accel::choose(
        options.accel,
        options.icount,
        options.machine,
        &*kernel,
        &Programs::new(
            options.qemu.as_deref(),
            options.machine,
            !options.disks.is_empty(),
        ),
        &sandbox,
    )?;
    let disks = Disks::new(&options.disks)?;
    let spec = Spec {
        qemu: &choice.qemu,
        sandbox: &sandbox,
        kernel: kernel.bytes(),
        dialect: kernel.dialect(),
        machine: options.machine,
        accel: choice.accel,
        memory,
        ram: &ram,
        cpus,
        // Ebb's kernel can be switched to another mode while it runs, so it gets the device in
        // every mode.
        reporting: options.give_back() != GiveBack::Off
            || kernel.dialect() == Dialect::Ebb && options.host_pages != HostPages::Pool,
        shared: options.give_back() == GiveBack::Shared,
        icount: options.icount,
        seed: options.seed,
        out: outs.is_some(),
        root: root.is_some() || volumes.is_some(),
        kernel_arguments: arguments(
            options,
            &*kernel,
            &choice,
            root.as_ref().map(|root| (root, &*begin)),
            outs.is_some(),
        ),
        extra: options.qemu_arg.clone(),
    };
    if options.print_qemu {
        let line = spec.command_line(&archive, disks.attach()?)?;
        let line = format!("{} {}\n", choice.qemu.display(), quoted(&line));
        stdout::print(&line)?;
        return Ok(0);
    }
    let plan = Plan {
        spec,
        kernel: &*kernel,
        disks: &disks,
        outs: outs.as_ref(),
        root,
        volumes,
        privileges: privileges::needed(options, &listed, outs.as_ref(), &disks, &sandbox),
    };
    let status = session::run(options, &plan, &archive, &choice)?;
    if status != 0
        && !options.quiet
        && let Some(text) = unseen.message()
    {
        stderr::say(&text);
    }
    Ok(status)
}

/// Refuses options that do not work with memory from the host's pool of huge pages (`--host-pages
/// pool`).
///
/// Memory of the pool cannot go back to the host while the guest runs, since another guest could
/// take it. The host cannot read files into it by a system call.
///
/// # Errors
/// Fails with a usage error for any `--give-back` mode but `off`, for `--volume`, and for `--root`.
fn check_pool(options: &RunOptions) -> Result<(), Failure> {
    if options.host_pages != HostPages::Pool {
        return Ok(());
    }
    let mode = options.give_back();
    if mode != GiveBack::Off {
        return Err(Failure::Usage(format!(
            "--give-back {} does not go with --host-pages pool: memory from the pool is reserved while the guest runs",
            mode.name()
        )));
    }
    let files = match options.volumes.first() {
        Some(_) => Some("--volume"),
        None => (options.root() != RootChoice::Nothing).then_some("--root"),
    };
    match files {
        Some(option) => Err(Failure::Usage(format!(
            "{option} does not go with --host-pages pool: the host's kernel writes no files into memory of its \
             pool; pack them with --file"
        ))),
        None => Ok(()),
    }
}

/// Refuses two options that write different results to one file, or one into the other's folder.
///
/// # Errors
/// Fails with a usage error if two of `--timeline`, `--record` and a copy of `outs` go to the same
/// file, or if one of the first two goes into the folder that a copy is to fill.
fn check_results(options: &RunOptions, outs: Option<&Outs>) -> Result<(), Failure> {
    let named = [
        ("--timeline", &options.timeline),
        ("--record", &options.record),
    ];
    let named = named
        .into_iter()
        .filter_map(|(option, path)| Some((option, path.as_deref()?)));
    let copies = outs.into_iter().flat_map(Outs::host_paths);
    // Copies that meet are refused before.
    let mut results: Vec<(&str, &Path)> = copies.map(|path| ("--out", path)).collect();
    for (option, path) in named {
        if let Some((other, _)) = results.iter().find(|(_, other)| is_same_file(path, other)) {
            return Err(Failure::Usage(format!(
                "{other} and {option} both go to {}",
                one_line(path)
            )));
        }
        if let Some((other, folder)) = results.iter().find(|(_, other)| is_inside(path, other)) {
            return Err(Failure::Usage(format!(
                "{option} goes to {}, into the folder that {other} fills: {}",
                one_line(path),
                one_line(folder)
            )));
        }
        results.push((option, path));
    }
    Ok(())
}

/// Selects the kind of host pages that back the guest's memory.
///
/// # Errors
/// Fails with a usage error if the host does not have the pages that `--host-pages` asks for.
fn ram_of(options: &RunOptions, memory: Size) -> Result<RamMaker, Failure> {
    let ram = RamMaker::prepare(options.host_pages, memory.bytes());
    let ram = ram.map_err(|error| Failure::Usage(error.to_string()))?;
    if !ram.backing().is_huge() {
        huge_pages::do_without();
    }
    Ok(ram)
}

/// Returns the guest kernel's command line.
///
/// It has the parameters that `kernel` needs, those that both kinds of kernel understand, and the
/// user's `--append` texts. `root` is what the guest sees, with the folder in which the program
/// begins.
fn arguments(
    options: &RunOptions,
    kernel: &dyn Kernel,
    choice: &Choice,
    root: Option<(&Root, &[u8])>,
    outs: bool,
) -> String {
    let mut text = kernel.arguments(&BootOptions {
        accel: choice.accel,
        machine: options.machine,
        give_back: options.give_back(),
        icount: options.icount,
        verbose: options.verbose,
        host_pressure: !options.icount && host_stalls::are_told(),
    });
    if streams::outputs_are_one() {
        // With two ports, the order of writes to stdout and stderr would be lost.
        text.push_str(&format!(" {}={}", boot::STDERR, boot::STDOUT));
    }
    if options.tty {
        let (rows, columns) = raw::window().unwrap_or_default();
        let size = terminal::Size { rows, columns };
        text.push_str(&format!(" {}={size}", terminal::PARAMETER));
    } else if streams::input_is_empty() {
        text.push_str(&format!(" {}={}", boot::STDIN, boot::EMPTY));
    } else if streams::input_is_terminal() && kernel.kind() == KernelKind::Linux {
        text.push_str(&format!(" {}={}", boot::STDIN, boot::TERMINAL));
    }
    let port = port::OUT + usize::from(outs);
    if !options.volumes.is_empty() {
        text.push_str(&format!(" {}={port}", ebb_wire::volume::PARAMETER));
    }
    let of_host = || {
        (options.root() == RootChoice::Host)
            .then(host_name)
            .flatten()
    };
    if let Some(name) = options.hostname.clone().or_else(of_host) {
        text.push_str(&format!(" {}={name}", boot::HOST_NAME));
    }
    if let Some((root, folder)) = root {
        text.push_str(&format!(" {}={port}", ebb_wire::root::PARAMETER));
        let is_in_tmp = |folder: &[u8]| Path::new(OsStr::from_bytes(folder)).starts_with("/tmp");
        let shows_tmp = root.is_whole() || root.shows_below_tmp();
        if shows_tmp || is_in_tmp(folder) || is_in_tmp(&root.working_folder()) {
            text.push_str(&format!(" {}=1", ebb_wire::root::TMP_PARAMETER));
        }
    }
    if let Some(order) = options.reporting_order {
        text.push_str(&format!(" page_reporting.page_reporting_order={order}"));
        if kernel.kind() == KernelKind::Ebb {
            // The guest may change its mode later, so the order is set for both modes.
            text.push_str(&format!(" page_hinting.page_hinting_order={order}"));
        }
    }
    for sysctl in &options.sysctl {
        text.push_str(&format!(" sysctl.{}={}", sysctl.name, sysctl.value));
    }
    for more in &options.append {
        text.push(' ');
        text.push_str(more);
    }
    text
}

/// Returns the host's name. Returns `None` if it has bytes that are not safe on a kernel command
/// line.
fn host_name() -> Option<String> {
    let name = rustix::system::uname();
    let name = name.nodename().to_str().ok()?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (!name.is_empty() && name.bytes().all(plain)).then(|| name.to_owned())
}

/// Opens the files that `--root` shows to the guest. Returns `None` for `--root none`.
///
/// # Errors
/// Fails with a usage error if the directory or image cannot be opened or read.
fn root_of(options: &RunOptions) -> Result<Option<Root>, Failure> {
    let cannot = |path: &Path, source: io::Error| {
        // The text may contain bytes of the image, so it is made printable and cut.
        let why = source.to_string();
        let why = one_line(&why).up_to(WHY_MAX);
        Failure::Usage(format!("--root {}: {why}", one_line(path)))
    };
    match &options.root() {
        RootChoice::Nothing => Ok(None),
        RootChoice::Host => {
            let view = View::host();
            view.map(|view| Some(Root::Host(view)))
                .map_err(|errno| cannot(Path::new("/"), errno.into()))
        }
        RootChoice::Path(path) => {
            let named =
                open_named(path, OFlags::PATH).map_err(|error| cannot(path, error.into()))?;
            let facts = facts(&named, b"").map_err(|errno| cannot(path, errno.into()))?;
            if kind_of(&facts) == FileType::Directory {
                let view = View::of_folder(named);
                return view
                    .map(|view| Some(Root::Host(view)))
                    .map_err(|errno| cannot(path, errno.into()));
            }
            // Opened so that a pipe does not block and a device is not touched.
            let file = regular_of(&named).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidInput => cannot(
                    path,
                    io::Error::other("neither a directory nor a tar archive"),
                ),
                _ => cannot(path, error),
            })?;
            match RemoteImage::open(&file, path, options.quiet) {
                Ok(image) => Ok(Some(Root::Image(Arc::new(image)))),
                Err(error) => Err(cannot(path, io::Error::other(error))),
            }
        }
    }
}

/// Returns `options` completed by the image's configuration: its program if the user gives none,
/// its environment, and its user.
///
/// Returns `None` if the root is no image.
///
/// # Errors
/// Fails with a usage error if neither the user nor the image names a program, or if the image's
/// user cannot be parsed.
fn with_image(options: &RunOptions, root: Option<&Root>) -> Result<Option<RunOptions>, Failure> {
    let config = root.and_then(Root::config);
    if options.program.is_empty() && config.is_none_or(|config| config.command.is_empty()) {
        let root = options.asked_root.as_ref().map(ToString::to_string);
        return Err(Failure::Usage(format!(
            "--root {}: it names no program to run; give one: `ebb run --root … -- PROGRAM`",
            one_line(&root.unwrap_or_default())
        )));
    }
    let Some(config) = config else {
        return Ok(None);
    };
    let mut options = options.clone();
    if options.program.is_empty() {
        options.program = config.command.iter().map(OsString::from).collect();
    }
    // The image's variables go first, so the user's `--env` overrides them.
    let own = config.environment.iter().map(OsString::from);
    options.env.splice(0..0, own);
    if let (Some(user), None) = (&config.user, &options.user) {
        let choice = user.parse();
        let choice: UserChoice = choice.map_err(|why: String| {
            Failure::Usage(format!(
                "the image's user `{}`: {why}; --user says another",
                one_line(user)
            ))
        })?;
        options.user = Some(choice.of_image());
    }
    Ok(Some(options))
}

/// Parses the `--volume` options and opens their directories. The second value is `None` without
/// such options.
///
/// # Errors
/// Fails with a usage error for a malformed option, two volumes with one destination, too many
/// volumes, or a directory that cannot be opened.
fn volumes_of(options: &RunOptions) -> Result<(Vec<VolumeOption>, Option<Volumes>), Failure> {
    let wrong = |argument: &OsString, why: String| {
        Failure::Usage(format!("--volume {}: {why}", one_line(argument)))
    };
    let mut listed: Vec<VolumeOption> = Vec::new();
    for argument in &options.volumes {
        let volume = VolumeOption::parse(argument).map_err(|why| wrong(argument, why))?;
        if listed
            .iter()
            .any(|other| other.destination == volume.destination)
        {
            return Err(wrong(argument, "another one is seen there".into()));
        }
        listed.push(volume);
    }
    if listed.is_empty() {
        return Ok((listed, None));
    }
    if listed.len() > VOLUMES_MAX {
        return Err(Failure::Usage(format!(
            "--volume {} times: a guest has at most {VOLUMES_MAX}",
            listed.len()
        )));
    }
    let opened = Volumes::open(&listed);
    let volumes =
        opened.map_err(|(number, error)| wrong(&options.volumes[number], error.to_string()))?;
    Ok((listed, Some(volumes)))
}

fn check(options: &RunOptions) -> Result<(Size, u32), Failure> {
    if let [first, second, ..] = options.name.as_slice() {
        return Err(Failure::Usage(format!(
            "--name {first} and --name {second}: a guest has one name"
        )));
    }
    if let Some(name) = options.name.first()
        && let Some(pid) = Fleet::new().run_of(name)
    {
        return Err(Failure::Usage(format!(
            "--name {name}: a guest of that name runs already (process {pid}); `ebb top` shows it"
        )));
    }
    if options.tty && options.interactive && !streams::input_is_terminal() {
        return Err(Failure::Usage(
            "-t with -i: stdin is not a terminal; leave -t out, and it goes to the program as it is"
                .into(),
        ));
    }
    let whole = options.memory.bytes().checked_next_multiple_of(1 << 20);
    let memory = Size(whole.unwrap_or(u64::MAX));
    let least = guest::memory_min(&options.kernel);
    if !(least..=MEMORY_MAX).contains(&memory) {
        let asked = options.memory;
        let whose = match options.kernel {
            KernelChoice::Ebb => "",
            KernelChoice::Linux(_) => " with Linux",
        };
        return Err(Failure::Usage(format!(
            "-m {asked} is out of range: a guest{whose} has from {least} to {MEMORY_MAX}"
        )));
    }
    let with_root = options.root() != RootChoice::Nothing;
    let more = options.windows(with_root) - options.disks.len();
    let full = more > 0 && options.windows(with_root) > options.windows_max();
    if full && options.kernel == KernelChoice::Ebb {
        return Err(Failure::Usage(format!(
            "too many disks for a microvm: --out needs one, and --root and --volume share one, \
             so {} disks are left for --disk; leave one out, or use --machine q35",
            DISKS_MAX - more
        )));
    }
    check_pool(options)?;
    if let Some(volume) = options.volumes.first() {
        let volume = one_line(volume);
        if options.icount {
            return Err(Failure::Usage(format!(
                "--volume {volume} does not go with --icount: what is counted must not depend on what the host has"
            )));
        }
    }
    let own = matches!(options.give_back(), GiveBack::Hinting | GiveBack::Shared);
    if own && matches!(options.kernel, KernelChoice::Linux(_)) {
        return Err(Failure::Usage(format!(
            "--give-back {} is Ebb's own: a stock Linux reports, or does not",
            options.give_back().name()
        )));
    }
    if options.asked_give_back == Some(GiveBack::Shared) && options.icount {
        return Err(Failure::Usage(
            "--give-back shared does not go with --icount, with which the guest's instructions are \
             not atomic for the host; use another mode or leave --icount out"
                .into(),
        ));
    }
    let host = thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
    let cpus = match options.cpus {
        Some(cpus) if !(1..=CPUS_MAX).contains(&cpus) => {
            return Err(Failure::Usage(format!(
                "-c {cpus} is out of range: a guest has from 1 to {CPUS_MAX} CPUs"
            )));
        }
        Some(cpus) if options.icount && cpus > 1 => {
            return Err(Failure::Usage(format!(
                "-c {cpus} does not go with --icount, which counts the instructions of one CPU"
            )));
        }
        Some(cpus) => cpus,
        None if options.icount => 1,
        None => host.min(CPUS_DEFAULT_MAX),
    };
    if options.icount && options.accel == AccelChoice::Kvm {
        return Err(Failure::Usage(
            "--icount needs TCG: KVM cannot count instructions as time".into(),
        ));
    }
    Ok((memory, cpus))
}

fn quoted(arguments: &[OsString]) -> String {
    let quote = |argument: &OsString| {
        let text = argument.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,.:/+".contains(c);
        if !text.is_empty() && text.chars().all(plain) {
            text.into_owned()
        } else {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
    };
    arguments.iter().map(quote).collect::<Vec<_>>().join(" ")
}
