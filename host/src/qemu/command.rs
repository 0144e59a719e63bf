//! QEMU's command line for a guest. Everything is handed over as an open file: nothing is left on
//! disk, and nobody else can connect.

use crate::machine::{Accel, Dialect, Machine};
use ebb_wire::port;
use std::ffi::OsString;
use std::os::fd::RawFd;

/// The hardware of a guest, and the descriptors that QEMU inherits for it.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    pub(crate) dialect: Dialect,
    pub(crate) machine: Machine,
    pub(crate) accel: Accel,
    pub(crate) memory_bytes: u64,
    /// The host keeps its memory in huge pages.
    pub(crate) huge: bool,
    pub(crate) cpus: u32,
    pub(crate) reporting: bool,
    /// The host changes words of the guest's while it runs.
    pub(crate) shared: bool,
    pub(crate) icount: bool,
    /// Of what the guest takes for random, where instructions are counted.
    pub(crate) seed: u32,
    pub(crate) kernel_arguments: String,
    pub(crate) ram: RawFd,
    pub(crate) kernel: RawFd,
    pub(crate) initramfs: RawFd,
    pub(crate) monitor: RawFd,
    /// Another monitor, for questions that are waited for.
    pub(crate) second_monitor: RawFd,
    pub(crate) console: RawFd,
    /// Stdin and stdout, stderr, control: the order by which the kernel knows them.
    pub(crate) ports: [RawFd; port::PORTS],
    /// Files for the host, if it wants any.
    pub(crate) out: Option<RawFd>,
    /// Questions about the host's tree, if the guest has one.
    pub(crate) root: Option<RawFd>,
    pub(crate) extra: Vec<OsString>,
    /// Sockets of the disks' back-ends, `/dev/vda` first.
    pub(crate) disks: Vec<RawFd>,
}

/// Slots on a PCI bus below this hold the chipset.
const FIRST_PCI_SLOT: usize = 2;

/// The arguments for `board`.
pub(crate) fn command_line(board: &Board) -> Vec<OsString> {
    let mut line = Arguments(Vec::new());
    line.flag("-nodefaults")
        .flag("-no-user-config")
        .flag("-no-reboot")
        .flag("-S");
    line.option("-name", "ebb".into());
    line.option("-display", "none".into());
    // QEMU keeps to the transport of 2011 unless told otherwise.
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
            // QEMU counts each round of a `rep` as an instruction, and on a CPU with ERMS Linux
            // clears pages byte by byte: 4,096 instead of 512.
            Accel::Tcg if board.icount && board.dialect == Dialect::Linux => "max,-erms".into(),
            Accel::Tcg => "max".into(),
        },
    );
    line.option("-smp", smp(board));
    if board.icount {
        line.option("-icount", "shift=0,sleep=off".into());
        // A run must not depend on when it happens, nor on what its machine throws the dice for:
        // the seed that Linux is handed at its start, and what RDRAND gives.
        line.option("-rtc", "base=2023-11-14T22:13:20,clock=vm".into());
        line.option("-seed", board.seed.to_string());
    }
    line.option("-m", format!("{}k", board.memory_bytes >> 10));
    // Huge pages are mapped as such where file and address are aligned alike.
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
        // Asked for by the host, figures would come at a moment that differs each time.
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

/// On KVM a kernel ends this board by a fault that nothing serves, and QEMUs without the device can run it.
fn ends_by_itself(board: &Board) -> bool {
    board.accel == Accel::Kvm && board.machine == Machine::Microvm
}

/// What of guest code QEMU keeps translated, in MiB: an eighth of the guest's memory, within bounds. Once it is full, QEMU begins
/// anew; of translations that nobody needs any more none goes before that, so left to itself (1 GiB) QEMU grows with every
/// program that starts. A program that has more code in use than fits is translated again and again: a compiler takes three
/// times as long. Each CPU has parts of the buffer for itself, of 2 MiB at least. `make translations-test` shows what other sizes
/// cost.
fn translations_mib(board: &Board) -> u64 {
    let share = (board.memory_bytes / TRANSLATIONS_SHARE) >> 20;
    let least = u64::from(board.cpus) * CPU_TRANSLATIONS_MIB;
    share
        .clamp(LEAST_TRANSLATIONS_MIB, MOST_TRANSLATIONS_MIB)
        .max(least)
}

/// The boot of a stock Linux fits with room to spare.
const LEAST_TRANSLATIONS_MIB: u64 = 32;
/// A Java compiler fits.
const MOST_TRANSLATIONS_MIB: u64 = 256;
const TRANSLATIONS_SHARE: u64 = 8;
const CPU_TRANSLATIONS_MIB: u64 = 8;

/// The CPUs. Of a machine that can never have a second one QEMU's translator makes atomic instructions of plain loads and
/// stores, between which an exchange by another process is lost.
fn smp(board: &Board) -> String {
    match (board.accel, board.cpus) {
        (Accel::Tcg, 1) if board.shared && !board.icount => "1,maxcpus=2".into(),
        (_, cpus) => cpus.to_string(),
    }
}

/// The port that a guest has only where files are wanted of it. Ebb's kernel knows it as the last one, so it comes last.
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

/// The port of the host's tree comes behind all others, by which Ebb's kernel knows its number.
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

fn ports(line: &mut Arguments, board: &Board) {
    for (index, fd) in board.ports.iter().enumerate() {
        line.option("-chardev", socket(&format!("port{index}"), *fd));
    }
    if board.dialect == Dialect::Linux {
        // Linux makes terminals of consoles, which change bytes; ports it leaves alone.
        // One more than there are: the first is for a console.
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

fn machine(board: &Board) -> String {
    match board.machine {
        Machine::Microvm => {
            // Linux calibrates its clocks against the PIT, unless KVM tells it their rates.
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

/// A virtio device in the slot `index`: the kernel tells devices of a kind apart by their slots.
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

/// A disk whose back-end is elsewhere, in a slot behind the balloon's.
fn disk(board: &Board, index: usize) -> String {
    let place = match (board.dialect, board.machine) {
        // Linux finds the windows of this board from the last one on, and what it finds first is
        // its first disk.
        (Dialect::Linux, Machine::Microvm) => board.disks.len() - 1 - index,
        _ => index,
    };
    let slot = board.ports.len() + 1 + place;
    let properties = format!("chardev=disk{index},id=disk{index}");
    match board.machine {
        // It has no name of its own for this board: it plugs into the transport itself.
        Machine::Microvm => {
            // Drivers take the largest queue that this transport has; QEMU has to know it, to
            // keep account of what is under way.
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

fn socket(id: &str, fd: RawFd) -> String {
    format!("socket,id={id},fd={fd}")
}

fn fd_path(fd: RawFd) -> String {
    format!("/proc/self/fd/{fd}")
}

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
        // It would put on a filter of its own, which no QEMU may.
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
        // The balloon stands where Ebb has it, so that the guests differ in as little as can be.
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
        assert!(text(&board).contains("-cpu max "));
        board.icount = true;
        let counted = text(&board);
        // What is counted must not depend on when translations go.
        assert!(counted.contains("-accel tcg -"));
        assert!(counted.contains("-cpu max,-erms "));
        assert!(counted.contains("-seed 7 "));
        assert!(counted.contains("guest-stats-polling-interval=1"));
    }
}
