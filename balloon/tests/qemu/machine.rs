//! A QEMU process whose guest executes nothing.

use crate::memory::GuestMemory;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd, write};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const QEMU: &str = "qemu-system-x86_64";

/// The longest time that QEMU may take for an answer.
const PATIENCE: Duration = Duration::from_secs(300);

static SPAWNING: Mutex<()> = Mutex::new(());

/// Returns whether QEMU is installed. Prints a note if not.
pub(crate) fn installed() -> bool {
    let found = Command::new(QEMU)
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok();
    if !found {
        eprintln!("skipped: {QEMU} is not installed");
    }
    found
}

/// Returns a path by which another process can open a file of this one.
pub(crate) fn path(file: &impl AsRawFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// One of QEMU's line protocols, over an inherited socket.
#[derive(Debug)]
struct Lines {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Lines {
    fn new() -> (Self, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        fcntl_setfd(&theirs, FdFlags::empty()).unwrap();
        let writer = ours.try_clone().unwrap();
        (
            Self {
                reader: BufReader::new(ours),
                writer,
            },
            theirs,
        )
    }

    fn read(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.reader.read_line(&mut line).unwrap(), 0, "QEMU ended");
        line
    }

    fn write(&mut self, line: &str) {
        self.writer
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }
}

/// Access to the guest's physical address space through qtest.
#[derive(Clone, Debug)]
pub(crate) struct Bus(Rc<RefCell<Lines>>);

impl Bus {
    fn call(&self, command: &str) -> String {
        let mut lines = self.0.borrow_mut();
        lines.write(command);
        loop {
            let line = lines.read();
            // Lines about interrupts may come before the answer.
            if let Some(rest) = line.strip_prefix("OK") {
                return rest.trim().to_owned();
            }
            assert!(line.starts_with("IRQ"), "{command}: {line}");
        }
    }

    /// Reads 32 bits at a physical address.
    pub(crate) fn read(&self, address: u64) -> u32 {
        let value = self.call(&format!("readl {address:#x}"));
        let digits = value.strip_prefix("0x").unwrap();
        u64::from_str_radix(digits, 16).unwrap() as u32
    }

    /// Writes 32 bits at a physical address.
    pub(crate) fn write(&self, address: u64, value: u32) {
        self.call(&format!("writel {address:#x} {value:#x}"));
    }
}

/// A running QEMU. Dropping the value ends it.
#[derive(Debug)]
pub(crate) struct Machine {
    process: Child,
    memory: GuestMemory,
    bus: Bus,
    monitor: RefCell<Lines>,
}

impl Machine {
    /// Starts QEMU with a balloon of these properties.
    pub(crate) fn start(ram: usize, legacy: bool, properties: &str) -> Self {
        let memory = GuestMemory::new(ram);
        let rom = memfd_create("firmware", MemfdFlags::CLOEXEC).unwrap();
        let firmware = path(&rom);
        // Each byte is a halt instruction. With interrupts off, the CPU halts for ever.
        write(&rom, &[0xf4; 64 << 10]).unwrap();
        // QEMU's ends of the sockets are inheritable only during this time. No other test may start
        // a process then: it would keep an end open, and QEMU's end could not be noticed.
        let spawning = SPAWNING.lock();
        let (bus, bus_end) = Lines::new();
        let (monitor, monitor_end) = Lines::new();
        let ram_file = path(memory.file());
        let process = Command::new(QEMU)
            .args(["-machine", "microvm,memory-backend=ram", "-accel", "tcg"])
            .args(["-bios", &firmware])
            .args(["-nodefaults", "-display", "none"])
            .args(["-m".to_owned(), format!("{}M", ram >> 20)])
            .arg("-object")
            .arg(format!(
                "memory-backend-file,id=ram,size={ram},mem-path={ram_file},share=on"
            ))
            .arg("-chardev")
            .arg(format!("socket,id=bus,fd={}", bus_end.as_raw_fd()))
            .args(["-object", "qtest,id=qtest,chardev=bus,log=/dev/null"])
            .arg("-chardev")
            .arg(format!("socket,id=monitor,fd={}", monitor_end.as_raw_fd()))
            .args(["-mon", "chardev=monitor,mode=control"])
            .arg("-global")
            .arg(format!("virtio-mmio.force-legacy={legacy}"))
            .args(["-object", "iothread,id=io"])
            .arg("-device")
            .arg(format!("virtio-balloon-device,id=balloon,{properties}"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        drop((bus_end, monitor_end, spawning));
        let machine = Self {
            process,
            memory,
            bus: Bus(Rc::new(RefCell::new(bus))),
            monitor: RefCell::new(monitor),
        };
        let greeting = machine.monitor.borrow_mut().read();
        assert!(greeting.contains("QMP"), "{greeting}");
        machine.command("qmp_capabilities", &json!({}));
        machine
    }

    /// Returns access to the guest's address space.
    pub(crate) fn bus(&self) -> Bus {
        self.bus.clone()
    }

    /// Returns the number of resident bytes of guest memory from `address` on.
    pub(crate) fn resident_from(&self, address: usize) -> usize {
        self.memory.resident_from(address)
    }

    /// Sends a command to the monitor and returns its answer.
    pub(crate) fn command(&self, name: &str, arguments: &Value) -> Value {
        let mut monitor = self.monitor.borrow_mut();
        monitor.write(&json!({ "execute": name, "arguments": arguments }).to_string());
        loop {
            let line = monitor.read();
            let answer: Value = serde_json::from_str(&line).unwrap();
            if let Some(value) = answer.get("return") {
                return value.clone();
            }
            // Any other line must be an event.
            assert!(answer.get("event").is_some(), "{name}: {line}");
        }
    }

    /// Returns the guest's memory in bytes without its balloon, as QEMU reports it.
    pub(crate) fn balloon_size(&self) -> usize {
        let info = self.command("query-balloon", &json!({}));
        usize::try_from(info["actual"].as_u64().unwrap()).unwrap()
    }

    /// Returns the guest's statistics, as QEMU reports them.
    pub(crate) fn statistics(&self) -> Value {
        let path = "/machine/peripheral/balloon";
        let which = json!({ "path": path, "property": "guest-stats" });
        self.command("qom-get", &which)["stats"].clone()
    }

    /// Polls until `happened` returns `true`. Panics after a timeout.
    pub(crate) fn wait_until(&self, what: &str, mut happened: impl FnMut() -> bool) {
        let start = Instant::now();
        while !happened() {
            assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Fails only if QEMU has ended already.
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }
}
