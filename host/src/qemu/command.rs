//! Builds QEMU's command line for a guest.
//!
//! QEMU gets every file and socket as an open descriptor. So no file is left on disk, and no other
//! process can connect to the sockets.

use crate::machine::{Accel, Dialect, Machine};
use ebb_wire::port;
use std::ffi::OsString;
use std::os::fd::RawFd;

/// The hardware of a guest, and the numbers of the descriptors that QEMU inherits for it.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    /// The guest kernel that boots, Ebb's or Linux.
    pub(crate) dialect: Dialect,
    pub(crate) machine: Machine,
    pub(crate) accel: Accel,
    /// The guest's RAM in bytes.
    pub(crate) memory_bytes: u64,
    /// Whether the host backs the guest's RAM with huge pages.
    pub(crate) huge: bool,
    pub(crate) cpus: u32,
    /// Whether the balloon device offers free page reporting.
    pub(crate) reporting: bool,
    /// Whether the host changes words of the guest's memory by atomic operations while the guest
    /// runs.
    pub(crate) shared: bool,
    /// Whether QEMU counts instructions (`-icount`), which makes runs repeatable.
    pub(crate) icount: bool,
    /// The seed of the guest's random numbers if `icount` is set.
    pub(crate) seed: u32,
    /// The guest kernel's command line.
    pub(crate) kernel_arguments: String,
    /// The file that is the guest's RAM.
    pub(crate) ram: RawFd,
    /// The guest kernel's image.
    pub(crate) kernel: RawFd,
    /// The initramfs.
    pub(crate) initramfs: RawFd,
    /// The socket of the QMP monitor.
    pub(crate) monitor: RawFd,
    /// The socket of a second QMP monitor, for commands that the caller waits for.
    pub(crate) second_monitor: RawFd,
    /// The socket of the serial console.
    pub(crate) console: RawFd,
    /// The sockets of the virtio ports: stdin and stdout, stderr, control. The guest kernel tells
    /// them apart by this order.
    pub(crate) ports: [RawFd; port::PORTS],
    /// The socket on which the guest sends files to the host, or `None` if the host wants no files.
    pub(crate) out: Option<RawFd>,
    /// The socket on which the guest asks for files of the host, or `None` if its root does not
    /// show them.
    pub(crate) root: Option<RawFd>,
    /// More arguments for QEMU, added at the end.
    pub(crate) extra: Vec<OsString>,
    /// The vhost-user sockets of the disks' back-ends. `/dev/vda` is first.
    pub(crate) disks: Vec<RawFd>,
}

/// The CPU of guests on TCG: all that QEMU can emulate, except SMAP.
///
/// QEMU before 9.1 reads the user stack with the rights of the kernel when a program executes
/// `iretq` in user mode. With SMAP that read faults forever, since no page table can permit it. The
/// runtimes of .NET and Wine execute such an `iretq`. Without SMAP the guest's kernel can touch
/// user pages by accident. The host is not affected.
const TCG_CPU: &str = "max,-smap";

/// The first PCI slot that is free. The chipset uses those below.
const FIRST_PCI_SLOT: usize = 2;

/// Returns QEMU's arguments for `board`, without the name of the program. They start QEMU with
/// stopped CPUs.
pub(crate) fn command_line(board: &Board) -> Vec<OsString> {
    let mut line = Arguments(Vec::new());
    line.flag("-nodefaults")
        .flag("-no-user-config")
        .flag("-no-reboot")
        .flag("-S");
    line.option("-name", "ebb".into());
    line.option("-display", "none".into());
    // Without this QEMU offers only the legacy interface of virtio-mmio.
    line.option("-global", "virtio-mmio.force-legacy=false".into());
    line.option("-machine", machine(board));
    line.option(
        "-accel",
        match board.accel {
            Accel::Kvm => "kvm".into(),
            Accel::Tcg if board.icount => "tcg".into(),
            Accel::Tcg => format!("tcg,thread=multi,tb-size={}", translations_mib(board)),
        },
    );
    line.option(
        "-cpu",
        match board.accel {
            Accel::Kvm => "host".into(),
            // QEMU counts each round of a `rep` as an instruction. On a CPU with ERMS Linux clears
            // a page byte by byte, which takes 4,096 rounds instead of 512.
            Accel::Tcg if board.icount && board.dialect == Dialect::Linux => {
                format!("{TCG_CPU},-erms")
            }
            Accel::Tcg => TCG_CPU.into(),
        },
    );
    line.option("-smp", smp(board));
    if board.icount {
        line.option("-icount", "shift=0,sleep=off".into());
        // A run must depend neither on the time of day nor on random numbers of the host. The seed
        // is used for the one that Linux gets at boot and for RDRAND.
        line.option("-rtc", "base=2023-11-14T22:13:20,clock=vm".into());
        line.option("-seed", board.seed.to_string());
    }
    line.option("-m", format!("{}k", board.memory_bytes >> 10));
    // The host maps a huge page as one entry only if file offset and address are aligned alike.
    let align = if board.huge { ",align=2M" } else { "" };
    line.option(
        "-object",
        format!(
            "memory-backend-file,id=ram,size={},mem-path={},share=on,prealloc=off,dump=off{align}",
            board.memory_bytes,
            fd_path(board.ram)
        ),
    );
    line.option("-kernel", fd_path(board.kernel));
    line.option("-initrd", fd_path(board.initramfs));
    line.option("-append", board.kernel_arguments.clone());
    line.option("-chardev", socket("monitor", board.monitor));
    line.option("-mon", "chardev=monitor,mode=control".into());
    line.option("-chardev", socket("monitor2", board.second_monitor));
    line.option("-mon", "chardev=monitor2,mode=control".into());
    line.option("-chardev", socket("console", board.console));
    line.option("-serial", "chardev:console".into());
    ports(&mut line, board);
    let reporting = if board.reporting { "on" } else { "off" };
    let mut balloon = format!("id=balloon,free-page-reporting={reporting},deflate-on-oom=on");
    if board.icount && board.dialect == Dialect::Linux {
        // If the host asked for the statistics, they would arrive at a different moment in each
        // run.
        balloon.push_str(",guest-stats-polling-interval=1");
    }
    line.option(
        "-device",
        virtio(board, "balloon", board.ports.len(), &balloon),
    );
    for (index, fd) in board.disks.iter().enumerate() {
        line.option("-chardev", socket(&format!("disk{index}"), *fd));
        line.option("-device", disk(board, index));
    }
    port_for_files(&mut line, board);
    port_for_root(&mut line, board);
    if !ends_by_itself(board) {
        line.option("-device", "isa-debug-exit,iobase=0xf4,iosize=0x04".into());
    }
    line.0.extend(board.extra.iter().cloned());
    line.0
}

/// Returns whether the guest can end QEMU without the device `isa-debug-exit`. On KVM and microvm
/// the guest kernel ends the board by a triple fault, and QEMUs without the device can run it.
fn ends_by_itself(board: &Board) -> bool {
    board.accel == Accel::Kvm && board.machine == Machine::Microvm
}

/// Returns the size of QEMU's buffer for translated guest code in MiB: an eighth of the guest's
/// memory, within bounds.
///
/// When the buffer is full, QEMU drops all translations. It drops none before that, even if they
/// are not used any more. So with its default of 1 GiB, QEMU grows with every program that starts.
/// A program whose code does not fit is translated again and again, which makes a compiler three
/// times slower. Each CPU has regions of the buffer for itself, of at least 2 MiB each. `make
/// translations-test` shows what other sizes cost.
fn translations_mib(board: &Board) -> u64 {
    let share = (board.memory_bytes / TRANSLATIONS_SHARE) >> 20;
    let least = u64::from(board.cpus) * CPU_TRANSLATIONS_MIB;
    share
        .clamp(LEAST_TRANSLATIONS_MIB, MOST_TRANSLATIONS_MIB)
        .max(least)
}

/// The minimum size of the buffer. The translations of a boot of stock Linux fit well.
const LEAST_TRANSLATIONS_MIB: u64 = 32;
/// The maximum size of the buffer. The translations of a Java compiler fit.
const MOST_TRANSLATIONS_MIB: u64 = 256;
/// The buffer gets one part in this number of the guest's memory.
const TRANSLATIONS_SHARE: u64 = 8;
/// The minimum size of the buffer per CPU.
const CPU_TRANSLATIONS_MIB: u64 = 8;

/// Returns the value of `-smp`. A guest with one CPU may get a second one later if the host changes
/// the guest's memory by atomic operations (`board.shared`).
///
/// For a machine that can only ever have one CPU, QEMU's translator implements atomic instructions
/// as plain loads and stores. A compare-and-swap of another process in between would be lost.
fn smp(board: &Board) -> String {
    match (board.accel, board.cpus) {
        (Accel::Tcg, 1) if board.shared && !board.icount => "1,maxcpus=2".into(),
        (_, cpus) => cpus.to_string(),
    }
}

/// Adds the port on which the guest sends files, if the host wants files. Ebb's kernel recognises
/// this port by its position behind the others.
fn port_for_files(line: &mut Arguments, board: &Board) {
    let Some(fd) = board.out else { return };
    line.option("-chardev", socket("out", fd));
    if board.dialect == Dialect::Linux {
        let (number, name) = (port::OUT + 1, port::OUT_NAME);
        let port = format!("virtserialport,bus=serial0.0,nr={number},chardev=out,name={name}");
        line.option("-device", port);
        return;
    }
    let slot = board.ports.len() + 1 + board.disks.len();
    let bus = virtio(board, "serial", slot, "id=serialout,max_ports=1");
    line.option("-device", bus);
    line.option("-device", "virtconsole,bus=serialout.0,chardev=out".into());
}

/// Adds the port for files of the host, if the guest shows them. It is the last port, by which
/// Ebb's kernel knows its number.
fn port_for_root(line: &mut Arguments, board: &Board) {
    let Some(fd) = board.root else { return };
    line.option("-chardev", socket("root", fd));
    if board.dialect == Dialect::Linux {
        let (number, name) = (port::OUT + 2, port::ROOT_NAME);
        let port = format!("virtserialport,bus=serial0.0,nr={number},chardev=root,name={name}");
        line.option("-device", port);
        return;
    }
    let slot = board.ports.len() + 1 + board.disks.len() + usize::from(board.out.is_some());
    let bus = virtio(board, "serial", slot, "id=serialroot,max_ports=1");
    line.option("-device", bus);
    line.option(
        "-device",
        "virtconsole,bus=serialroot.0,chardev=root".into(),
    );
}

/// Adds the ports for stdin and stdout, stderr, and control.
fn ports(line: &mut Arguments, board: &Board) {
    for (index, fd) in board.ports.iter().enumerate() {
        line.option("-chardev", socket(&format!("port{index}"), *fd));
    }
    if board.dialect == Dialect::Linux {
        // Linux turns a console into a terminal, which changes bytes. A plain port passes bytes on
        // as they are. `max_ports` includes port 0, which is reserved for a console.
        let most = port::OUT + 2 + usize::from(board.root.is_some());
        let properties = format!("id=serial0,max_ports={most}");
        line.option("-device", virtio(board, "serial", 0, &properties));
        for (index, name) in port::NAMES.iter().enumerate() {
            let number = index + 1;
            line.option(
                "-device",
                format!("virtserialport,bus=serial0.0,nr={number},chardev=port{index},name={name}"),
            );
        }
        return;
    }
    for index in 0..board.ports.len() {
        line.option(
            "-device",
            virtio(
                board,
                "serial",
                index,
                &format!("id=serial{index},max_ports=1"),
            ),
        );
        line.option(
            "-device",
            format!("virtconsole,bus=serial{index}.0,chardev=port{index}"),
        );
    }
}

/// Returns the value of `-machine`.
fn machine(board: &Board) -> String {
    match board.machine {
        Machine::Microvm => {
            // Linux calibrates its clocks against the PIT unless KVM gives it their frequencies.
            let legacy = match board.dialect {
                Dialect::Ebb => "off",
                Dialect::Linux => "on",
            };
            format!(
                "microvm,memory-backend=ram,acpi=on,rtc=on,pit={legacy},pic={legacy},\
                 ioapic2=off,isa-serial=on,auto-kernel-cmdline=off"
            )
        }
        Machine::Q35 => "q35,memory-backend=ram,smm=off,sata=off,usb=off,vmport=off".into(),
    }
}

/// Returns the description of a virtio device in slot `index`. The guest kernel tells devices of
/// one kind apart by their slots.
fn virtio(board: &Board, kind: &str, index: usize, properties: &str) -> String {
    match board.machine {
        Machine::Microvm => {
            format!("virtio-{kind}-device,bus=virtio-mmio-bus.{index},{properties}")
        }
        Machine::Q35 => {
            let slot = FIRST_PCI_SLOT + index;
            format!("virtio-{kind}-pci,addr={slot:#x},disable-legacy=on,{properties}")
        }
    }
}

/// Returns the description of disk `index`, whose vhost-user back-end is another process or thread.
/// Its slot is behind the balloon's.
fn disk(board: &Board, index: usize) -> String {
    let place = match (board.dialect, board.machine) {
        // Linux scans the virtio-mmio windows of this board from the last one down. The first disk
        // it finds becomes `/dev/vda`.
        (Dialect::Linux, Machine::Microvm) => board.disks.len() - 1 - index,
        _ => index,
    };
    let slot = board.ports.len() + 1 + place;
    let properties = format!("chardev=disk{index},id=disk{index}");
    match board.machine {
        // QEMU has no special name of this device for virtio-mmio; it is plugged into the bus.
        Machine::Microvm => {
            // Drivers use the largest queue that this transport offers. QEMU must know the size to
            // keep track of the requests in flight.
            format!("vhost-user-blk,bus=virtio-mmio-bus.{slot},queue-size=1024,{properties}")
        }
        Machine::Q35 => {
            let slot = FIRST_PCI_SLOT + slot;
            format!(
                "vhost-user-blk-pci,addr={slot:#x},disable-legacy=on,queue-size=256,{properties}"
            )
        }
    }
}

/// Returns the description of a character device for the socket `fd`.
fn socket(id: &str, fd: RawFd) -> String {
    format!("socket,id={id},fd={fd}")
}

/// Returns a path by which QEMU opens its inherited descriptor `fd`.
fn fd_path(fd: RawFd) -> String {
    format!("/proc/self/fd/{fd}")
}

/// A command line that grows.
struct Arguments(Vec<OsString>);

impl Arguments {
    fn flag(&mut self, name: &str) -> &mut Self {
        self.0.push(name.into());
        self
    }

    fn option(&mut self, name: &str, value: String) -> &mut Self {
        self.0.push(name.into());
        self.0.push(value.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_fixed_slots() {
        let mut board = Board {
            dialect: Dialect::Ebb,
            machine: Machine::Microvm,
            accel: Accel::Tcg,
            memory_bytes: 1 << 30,
            huge: false,
            cpus: 2,
            reporting: true,
            shared: false,
            icount: false,
            seed: 7,
            kernel_arguments: "a=b".into(),
            ram: 3,
            kernel: 4,
            initramfs: 5,
            monitor: 6,
            second_monitor: 12,
            console: 7,
            ports: [8, 9, 10],
            out: None,
            root: None,
            extra: vec!["-d".into()],
            disks: vec![11, 12],
        };
        let text = |board: &Board| {
            let line = command_line(board);
            line.iter()
                .map(|a| a.to_str().unwrap())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let microvm = text(&board);
        assert!(microvm.contains("virtio-serial-device,bus=virtio-mmio-bus.2,id=serial2"));
        assert!(microvm.contains("virtio-balloon-device,bus=virtio-mmio-bus.3,id=balloon"));
        assert!(microvm.contains("free-page-reporting=on"));
        // QEMU would install a seccomp filter of its own, which the confinement forbids.
        assert!(!microvm.contains("-sandbox"));
        assert!(microvm.contains("-m 1048576k") && !microvm.contains("align="));
        assert!(
            microvm.contains("vhost-user-blk,bus=virtio-mmio-bus.5,queue-size=1024,chardev=disk1")
        );
        assert!(microvm.ends_with(" -d"));
        assert!(microvm.contains("-smp 2 "));
        assert!(microvm.contains("-accel tcg,thread=multi,tb-size=128 "));
        assert!(!microvm.contains("chardev=out"));
        board.huge = true;
        assert!(text(&board).contains(",dump=off,align=2M -kernel"));
        board.huge = false;
        board.out = Some(13);
        assert!(text(&board).contains("virtio-serial-device,bus=virtio-mmio-bus.6,id=serialout"));
        board.root = Some(14);
        assert!(text(&board).contains("virtio-serial-device,bus=virtio-mmio-bus.7,id=serialroot"));
        board.root = None;
        board.shared = true;
        assert!(text(&board).contains("-smp 2 "));
        board.cpus = 1;
        assert!(text(&board).contains("-smp 1,maxcpus=2 "));
        board.shared = false;
        assert!(text(&board).contains("-smp 1 "));
        assert!(text(&board).contains("isa-debug-exit"));
        board.accel = Accel::Kvm;
        let kvm = text(&board);
        assert!(kvm.contains("-cpu host "));
        assert!(!kvm.contains("isa-debug-exit") && !kvm.contains("tb-size"));
        board.accel = Accel::Tcg;
        for (memory_mib, cpus, translations) in [
            (64, 1, 32),
            (512, 1, 64),
            (8192, 1, 256),
            (256, 8, 64),
            (8192, 64, 512),
        ] {
            (board.memory_bytes, board.cpus) = (memory_mib << 20, cpus);
            let wanted = format!(",tb-size={translations} ");
            assert!(
                text(&board).contains(&wanted),
                "{memory_mib} MiB, {cpus} CPUs"
            );
        }
        board.cpus = 1;
        board.machine = Machine::Q35;
        board.reporting = false;
        let q35 = text(&board);
        assert!(q35.contains("virtio-serial-pci,addr=0x2,"));
        assert!(q35.contains("virtio-balloon-pci,addr=0x5,"));
        assert!(q35.contains("free-page-reporting=off"));
        board.dialect = Dialect::Linux;
        let linux = text(&board);
        // The balloon has the same slot as with Ebb's kernel, so that the guests differ as little
        // as possible.
        assert!(linux.contains("virtio-balloon-pci,addr=0x5,"));
        assert!(linux.contains("virtserialport,bus=serial0.0,nr=3,chardev=port2,name=ebb.control"));
        assert!(!linux.contains("virtconsole"));
        assert!(linux.contains("virtserialport,bus=serial0.0,nr=4,chardev=out,name=ebb.out"));
        assert!(linux.contains("id=serial0,max_ports=5") && !linux.contains("chardev=root"));
        board.root = Some(14);
        let linux = text(&board);
        assert!(linux.contains("virtserialport,bus=serial0.0,nr=5,chardev=root,name=ebb.root"));
        assert!(linux.contains("id=serial0,max_ports=6"));
        board.root = None;
        board.machine = Machine::Microvm;
        assert!(text(&board).contains("pit=on,pic=on"));
        assert!(text(&board).contains("bus=virtio-mmio-bus.5,queue-size=1024,chardev=disk0"));
        assert!(text(&board).contains("-cpu max,-smap "));
        board.icount = true;
        let counted = text(&board);
        // Counted instructions must not depend on when QEMU drops translations.
        assert!(counted.contains("-accel tcg -"));
        assert!(counted.contains("-cpu max,-smap,-erms "));
        assert!(counted.contains("-seed 7 "));
        assert!(counted.contains("guest-stats-polling-interval=1"));
    }
}
