//! A QEMU process whose guest does nothing.

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

/// How long QEMU may take to answer anything.
const PATIENCE: Duration = Duration::from_secs(60);

static SPAWNING: Mutex<()> = Mutex::new(());

/// Whether there is a QEMU to test against.
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

/// Where another process can open a file of this one.
pub(crate) fn path(file: &impl AsRawFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// One of QEMU's line protocols, over a socket that it inherited.
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

/// Access to the guest's address space.
#[derive(Clone, Debug)]
pub(crate) struct Bus(Rc<RefCell<Lines>>);

impl Bus {
    fn call(&self, command: &str) -> String {
        let mut lines = self.0.borrow_mut();
        lines.write(command);
        loop {
            let line = lines.read();
            // Interrupts are announced in between.
            if let Some(rest) = line.strip_prefix("OK") {
                return rest.trim().to_owned();
            }
            assert!(line.starts_with("IRQ"), "{command}: {line}");
        }
    }

    pub(crate) fn read(&self, address: u64) -> u32 {
        let value = self.call(&format!("readl {address:#x}"));
        let digits = value.strip_prefix("0x").unwrap();
        u64::from_str_radix(digits, 16).unwrap() as u32
    }

    pub(crate) fn write(&self, address: u64, value: u32) {
        self.call(&format!("writel {address:#x} {value:#x}"));
    }
}

/// See the module. Ends QEMU when dropped.
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
        // Each instruction is a halt: with interrupts off, that is for good.
        write(&rom, &[0xf4; 64 << 10]).unwrap();
        // The ends that QEMU inherits are open in this process for as short as can be, and no other
        // test may pass them on meanwhile: the end of QEMU could not be seen then.
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

    pub(crate) fn bus(&self) -> Bus {
        self.bus.clone()
    }

    /// Bytes of guest memory from an address on that the host has given.
    pub(crate) fn resident_from(&self, address: usize) -> usize {
        self.memory.resident_from(address)
    }

    /// Has the monitor do something: its answer.
    pub(crate) fn command(&self, name: &str, arguments: &Value) -> Value {
        let mut monitor = self.monitor.borrow_mut();
        monitor.write(&json!({ "execute": name, "arguments": arguments }).to_string());
        loop {
            let line = monitor.read();
            let answer: Value = serde_json::from_str(&line).unwrap();
            if let Some(value) = answer.get("return") {
                return value.clone();
            }
            // Else it is news of something that happened.
            assert!(answer.get("event").is_some(), "{name}: {line}");
        }
    }

    /// The memory of the guest less its balloon, as the host sees it.
    pub(crate) fn balloon_size(&self) -> usize {
        let info = self.command("query-balloon", &json!({}));
        usize::try_from(info["actual"].as_u64().unwrap()).unwrap()
    }

    /// The guest's statistics, as the host sees them.
    pub(crate) fn statistics(&self) -> Value {
        let path = "/machine/peripheral/balloon";
        let which = json!({ "path": path, "property": "guest-stats" });
        self.command("qom-get", &which)["stats"].clone()
    }

    /// Waits for QEMU to do something.
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
        // Fails only if it has ended already.
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }
}
