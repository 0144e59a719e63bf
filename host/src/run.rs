//! `ebb run`, from the command line to the exit status.

use crate::cli::{AccelChoice, GiveBack, RunOptions};
use crate::console::Log;
use crate::control::{Control, OutputPort};
use crate::failure::{Failure, describe};
use crate::files;
use crate::header::{Header, Stage};
use crate::image::KernelImage;
use crate::initramfs::{GuestPath, Initramfs, Node, Source, nul_terminated};
use crate::program;
use crate::qemu::{Accel, Ended};
use crate::signals::{self, Signalled};
use crate::size::Size;
use crate::stream::{self, Output};
use crate::terminal::Terminal;
use crate::vm::{self, Spec, Vm};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

const MEMORY_MIN: Size = Size::mebibytes(32);
const MEMORY_MAX: Size = Size::mebibytes(512 << 10);
const CPUS_MAX: u32 = 64;
/// Taken of the host's CPUs unless the user says otherwise.
const CPUS_DEFAULT_MAX: u32 = 8;
/// How often the guest is looked at.
const TICK: Duration = Duration::from_millis(50);
/// A guest that is through and has nothing more to write ends within this, or is ended.
const LINGER: Duration = Duration::from_secs(5);
/// Lines of the kernel's log in an error.
const CONSOLE_LINES: usize = 20;
const QEMU_LINES: usize = 10;
/// What the clock says in a run that must not depend on when it happens.
const FIXED_EPOCH_NS: u128 = 1_700_000_000_000_000_000;

/// Runs the program and returns its status.
pub(crate) fn run(options: &RunOptions) -> Result<u8, Failure> {
    let (memory, cpus) = check(options)?;
    let initramfs = pack(options)?;
    if let Some(path) = &options.dump_initramfs {
        let file = File::create(path).map_err(|source| Failure::Write {
            path: path.clone(),
            source,
        })?;
        initramfs.write(file)?;
        return Ok(0);
    }
    let archive =
        vm::memory_file("ebb-initramfs").map_err(|errno| vm::setup("the initramfs", errno))?;
    let archive_bytes = initramfs.write(&archive)?;
    let kernel = KernelImage::load(options.kernel_image.as_deref())?;
    if archive_bytes + kernel.span_bytes > memory.bytes() / 2 {
        return Err(Failure::Usage(format!(
            "the packed files take {} of a guest with {memory}; give it more with -m",
            crate::size::Rounded(archive_bytes)
        )));
    }
    let accel = match options.accel {
        AccelChoice::Kvm => Accel::Kvm,
        AccelChoice::Tcg | AccelChoice::Auto => Accel::Tcg,
    };
    let spec = Spec {
        qemu: &options.qemu,
        kernel: &kernel,
        machine: options.machine,
        accel,
        memory,
        cpus,
        reporting: options.give_back == GiveBack::Reporting,
        icount: options.icount,
        kernel_arguments: kernel_arguments(options),
        extra: options.qemu_arg.clone(),
    };
    if options.print_qemu {
        let line = vm::command_line(spec, archive)?;
        println!("{} {}", options.qemu.display(), quoted(&line));
        return Ok(0);
    }
    supervise(options, spec, archive)
}

fn check(options: &RunOptions) -> Result<(Size, u32), Failure> {
    let memory = Size(options.memory.bytes().next_multiple_of(1 << 20));
    if !(MEMORY_MIN..=MEMORY_MAX).contains(&memory) {
        let asked = options.memory;
        return Err(Failure::Usage(format!(
            "-m {asked} is out of range: a guest has from {MEMORY_MIN} to {MEMORY_MAX}"
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
            "/.ebb/argv",
            nul_terminated(argv.iter().map(OsString::as_os_str)),
        ),
        (
            "/.ebb/env",
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

fn kernel_arguments(options: &RunOptions) -> String {
    let epoch = if options.icount {
        FIXED_EPOCH_NS
    } else {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos())
    };
    let give_back = match options.give_back {
        GiveBack::Reporting => "reporting",
        GiveBack::Off => "off",
    };
    let mut text = format!("ebb.epoch={epoch} ebb.give_back={give_back}");
    if let Some(order) = options.reporting_order {
        text.push_str(&format!(" page_reporting.page_reporting_order={order}"));
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

/// Starts the VM, carries its streams, and waits for its end.
fn supervise(options: &RunOptions, spec: Spec<'_>, archive: File) -> Result<u8, Failure> {
    let started = Instant::now();
    let terminal = Arc::new(Terminal::new());
    let verbose = options.verbose.then(|| Arc::clone(&terminal));
    let accel = spec.accel;
    let header_address = spec.kernel.header;
    // Caught before there is a QEMU that a signal could leave behind.
    let mut caught = signals::catch().map_err(|source| Failure::Setup {
        what: "signal handlers",
        source,
    })?;
    let vm = Vm::new(spec, archive, verbose.clone())?;
    let Vm {
        mut qemu,
        ram,
        mut monitor,
        console,
        stdio,
        stderr,
        control: control_port,
    } = vm;
    if let Some(terminal) = &verbose {
        terminal.message(&format!("ebb: QEMU {} with {accel}", monitor.version));
    }

    let control = Arc::new(Control::default());
    let signalled = Arc::new(Signalled::default());
    let (shared, lines, handle) = (Arc::clone(&signalled), Arc::clone(&control), qemu.handle());
    thread::spawn(move || signals::forward(&mut caught, &shared, &lines, &handle));
    let lines = Arc::clone(&control);
    thread::spawn(move || lines.pump(control_port));
    let log = Arc::new(Log::new("kernel"));
    let console_log = Arc::clone(&log);
    let console = thread::spawn(move || console_log.pump(console, verbose.as_deref()));
    let stdin = stdio.try_clone().map_err(|source| Failure::Setup {
        what: "the stdin socket",
        source,
    })?;
    let lines = Arc::clone(&control);
    thread::spawn(move || stream::feed(stdin, &lines));
    let mut outputs = Vec::new();
    for (port, socket) in [(OutputPort::Stdout, stdio), (OutputPort::Stderr, stderr)] {
        let output = Arc::new(Output::new(port, &terminal));
        let receiver = Arc::clone(&output);
        thread::spawn(move || receiver.receive(socket));
        let (sender, terminal, lines) = (
            Arc::clone(&output),
            Arc::clone(&terminal),
            Arc::clone(&control),
        );
        outputs.push((
            output,
            thread::spawn(move || sender.deliver(&terminal, &lines)),
        ));
    }
    monitor.start().map_err(|source| {
        qemu.handle().kill();
        Failure::Monitor {
            source,
            qemu: qemu.last_words(QEMU_LINES),
        }
    })?;
    let monitor = thread::spawn(move || monitor.wait_for_end());

    let header = Header::new(&ram, header_address);
    let deadline = options
        .timeout
        .map(|seconds| started + Duration::from_secs(seconds));
    let mut timed_out = false;
    let mut through: Option<Instant> = None;
    let ended = loop {
        let failed = |source| Failure::Setup {
            what: "waiting for QEMU",
            source,
        };
        if let Some(ended) = qemu.wait(TICK).map_err(failed)? {
            break ended;
        }
        let now = Instant::now();
        match header.read().map(|reading| reading.stage) {
            Some(Stage::Running) => signalled.program_runs(),
            Some(Stage::Exited(_) | Stage::Panicked) => {
                if !outputs.iter().all(|(output, _)| output.idle()) {
                    through = None;
                } else if now.duration_since(*through.get_or_insert(now)) > LINGER {
                    qemu.handle().kill();
                }
            }
            Some(Stage::Booting) | None => {}
        }
        if !timed_out && deadline.is_some_and(|deadline| now >= deadline) {
            timed_out = true;
            qemu.handle().kill();
        }
    };
    signalled.vm_ended();
    control.end();
    let mut output_errors = Vec::new();
    for ((_, deliverer), stream) in outputs.into_iter().zip(["stdout", "stderr"]) {
        if let Ok(Err(errno)) = deliverer.join() {
            output_errors.push(Failure::Output {
                stream,
                source: io::Error::from(errno),
            });
        }
    }
    let _ = console.join();
    let cause = monitor.join().ok().flatten();
    terminal.clear();

    let stage = header.read().map(|reading| reading.stage);
    if let Some(Stage::Exited(status)) = stage {
        let code = status.code();
        return match output_errors.pop() {
            Some(error) if code == 0 => Err(error),
            _ => Ok(code),
        };
    }
    if let Some(signal) = signalled.killed_by() {
        return Ok(128 + u8::try_from(signal).unwrap_or(0));
    }
    if let (true, Some(seconds)) = (timed_out, options.timeout) {
        return Err(Failure::Timeout { seconds });
    }
    let console = log.last(CONSOLE_LINES);
    Err(match (stage, ended) {
        (Some(Stage::Panicked), _) => Failure::Panic { console },
        (_, Ended::Signal(signal)) => Failure::Killed { signal },
        (_, Ended::Exit(_)) => {
            let mut how = describe(ended);
            if let Some(cause) = cause {
                how.push_str(&format!(", cause {cause:?}"));
            }
            Failure::Lost {
                how,
                console,
                qemu: qemu.last_words(QEMU_LINES),
            }
        }
    })
}
