//! `ebb run`, from the command line to the exit status.

use crate::accel;
use crate::blk::Disks;
use crate::cli::{AccelChoice, GiveBack, KernelChoice, RunOptions};
use crate::failure::Failure;
use crate::files;
use crate::initramfs::{GuestPath, Initramfs, Node, Source, nul_terminated};
use crate::kernel::{self, Kernel};
use crate::program;
use crate::session;
use crate::size::Size;
use crate::vm::{self, Spec};
use ebb_wire::boot;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::thread;

const MEMORY_MAX: Size = Size::mebibytes(512 << 10);
const CPUS_MAX: u32 = 64;
/// Taken of the host's CPUs unless the user says otherwise.
const CPUS_DEFAULT_MAX: u32 = 8;

/// Runs the program and returns its status.
pub(crate) fn run(options: &RunOptions) -> Result<u8, Failure> {
    let (memory, cpus) = check(options)?;
    let mut initramfs = pack(options)?;
    let kernel = Kernel::load(options)?;
    kernel.furnish(&mut initramfs)?;
    if let Some(path) = &options.dump_initramfs {
        let file = File::create(path).map_err(|source| Failure::Write {
            path: path.clone(),
            source,
        })?;
        initramfs.write(file, kernel.alignment())?;
        return Ok(0);
    }
    let archive =
        vm::memory_file("ebb-initramfs").map_err(|errno| vm::setup("the initramfs", errno))?;
    let archive_bytes = initramfs.write(&archive, kernel.alignment())?;
    if archive_bytes + kernel.span_bytes() > memory.bytes() / 2 {
        return Err(Failure::Usage(format!(
            "the packed files take {} of a guest with {memory}; give it more with -m",
            crate::size::Rounded(archive_bytes)
        )));
    }
    let choice = accel::choose(
        options.accel,
        options.icount,
        options.machine,
        &kernel,
        &options.qemu,
    )?;
    let images: Vec<_> = options.disks.iter().map(|disk| disk.0.clone()).collect();
    let disks = Disks::new(&images)?;
    let spec = Spec {
        qemu: &options.qemu,
        kernel: &kernel,
        machine: options.machine,
        accel: choice.accel,
        memory,
        cpus,
        reporting: options.give_back == GiveBack::Reporting,
        icount: options.icount,
        seed: options.seed,
        kernel_arguments: kernel.arguments(options, choice.accel),
        extra: options.qemu_arg.clone(),
        disks: Some(&disks),
    };
    if options.print_qemu {
        let line = vm::command_line(&spec, &archive)?;
        let line = format!("{} {}\n", options.qemu.display(), quoted(&line));
        return match io::stdout().write_all(line.as_bytes()) {
            Ok(()) => Ok(0),
            Err(source) => Err(Failure::Output {
                stream: "stdout",
                source,
            }),
        };
    }
    session::run(options, &spec, &archive, &choice)
}

fn check(options: &RunOptions) -> Result<(Size, u32), Failure> {
    let memory = Size(options.memory.bytes().next_multiple_of(1 << 20));
    let least = kernel::memory_min(&options.kernel);
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

/// The guest's first file system: user's files, the program, its arguments and environment.
fn pack(options: &RunOptions) -> Result<Initramfs, Failure> {
    let mut tree = Initramfs::default();
    for file in &options.files {
        files::add(&mut tree, file)?;
    }
    let argv = program::pack(&mut tree, &options.program)?;
    if options.busybox {
        program::pack_busybox(&mut tree, "--busybox")?;
    }
    for (path, mode) in [
        ("/dev", 0o755),
        ("/proc", 0o555),
        ("/sys", 0o555),
        ("/tmp", 0o1777),
        ("/root", 0o700),
    ] {
        tree.add_missing(GuestPath::parse(path.as_bytes())?, Node::Directory { mode })?;
    }
    let environment = environment(&options.env)?;
    let lists = [
        (
            boot::ARGUMENTS,
            nul_terminated(argv.iter().map(OsString::as_os_str)),
        ),
        (
            boot::ENVIRONMENT,
            nul_terminated(environment.iter().map(OsString::as_os_str)),
        ),
    ];
    for (path, bytes) in lists {
        let node = Node::File {
            mode: 0o400,
            source: Source::Bytes(bytes),
        };
        tree.add(GuestPath::parse(path.as_bytes())?, node)?;
    }
    Ok(tree)
}

fn environment(settings: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let mut variables: BTreeMap<OsString, OsString> = BTreeMap::new();
    variables.insert(
        "PATH".into(),
        "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into(),
    );
    variables.insert("HOME".into(), "/root".into());
    let terminal = std::env::var_os("TERM").unwrap_or_else(|| "dumb".into());
    variables.insert("TERM".into(), terminal);
    for setting in settings {
        let refuse = |why| Failure::Env {
            argument: setting.clone(),
            why,
        };
        let bytes = setting.as_bytes();
        let equals = bytes.iter().position(|byte| *byte == b'=');
        let name = OsStr::from_bytes(&bytes[..equals.unwrap_or(bytes.len())]);
        if name.is_empty() {
            return Err(refuse("a variable needs a name"));
        }
        let value = match equals {
            Some(at) => OsStr::from_bytes(&bytes[at + 1..]).to_owned(),
            None => std::env::var_os(name).ok_or_else(|| refuse("it is not set here"))?,
        };
        variables.insert(name.to_owned(), value);
    }
    let joined = |(name, value): (&OsString, &OsString)| {
        let mut text = name.clone();
        text.push("=");
        text.push(value);
        text
    };
    Ok(variables.iter().map(joined).collect())
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
