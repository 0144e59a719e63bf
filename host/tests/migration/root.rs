//! The software in the guests: Debian's kernel, a shell, and one of two workloads.

use crate::parts::Scratch;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The guest's first program. `work=` on the kernel's command line selects the workload.
///
/// `disk`: fills the page cache from the disk, which only the back-end writes to. Later it compares
/// the cached content, so that a page that was not marked is found to be old. It reads the areas in
/// turn and writes the one after them.
///
/// `memory`: keeps its CPUs writing to memory. There is no disk.
const INIT: &str = r#"#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
pass=0
if [ "$work" = memory ]; then
    while :; do
        pass=$((pass + 1))
        yes "this is pass $pass" | head -c 4194304 > /tmp/new
        [ "$(sha256sum < /tmp/new)" = "$(sha256sum < /tmp/new)" ] || echo "BAD memory in pass $pass"
        echo "pass $pass"
    done
fi
for module in $(cat /modules/order); do insmod /modules/$module.ko; done
sum() { dd if=/dev/vda bs=1M skip=$(($1 * mib)) count=$mib 2>/dev/null | sha256sum; }
# Linux forgets the cache of a disk that no process has open.
exec 3< /dev/vda
(read line < /dev/console; : > /tmp/end) &
written=
while :; do
    echo 3 > /proc/sys/vm/drop_caches
    area=$((pass % areas))
    expected=$(sed -n $((area + 1))p /expected)
    [ "$(sum $area)" = "$expected" ] || echo "BAD what was read in pass $pass"
    [ -z "$written" ] || [ "$(sum $areas)" = "$written" ] || echo "BAD what was written before pass $pass"
    pass=$((pass + 1))
    yes "this is pass $pass" | head -c $((mib * 1048576)) > /tmp/new
    dd if=/tmp/new of=/dev/vda bs=64k seek=$((areas * mib * 16)) conv=fsync 2>/dev/null || echo "BAD write"
    written=$(sha256sum < /tmp/new)
    [ "$(sum $area)" = "$expected" ] || echo "BAD what was kept in pass $pass"
    echo "pass $pass"
    [ -e /tmp/end ] && break
done
echo 3 > /proc/sys/vm/drop_caches
echo "whole $(sha256sum < /dev/vda)"
poweroff -f
"#;

/// Linux must not clear pages before it reads into them, because that would mark them as written
/// too.
const ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 init_on_alloc=0";

/// The files with which a guest boots.
pub(crate) struct Root {
    pub(crate) kernel: PathBuf,
    pub(crate) archive: String,
    pub(crate) arguments: String,
}

/// Returns the folder of Debian's unpacked kernel and drivers. Returns `None` if they are not
/// available.
fn linux() -> Option<PathBuf> {
    let fetch = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/debian");
    let output = Command::new(fetch).arg("linux").output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        assert!(
            said.contains("cannot download") || said.contains("apt knows no package"),
            "only a kernel that cannot be fetched is an excuse: {said}"
        );
        eprintln!("SKIPPED, there is no stock kernel: {said}");
        return None;
    }
    let folder = String::from_utf8_lossy(&output.stdout);
    Some(PathBuf::from(folder.trim()))
}

fn only(folder: &Path) -> PathBuf {
    let mut entries = fs::read_dir(folder).expect("it was fetched");
    entries.next().expect("something").expect("readable").path()
}

impl Root {
    /// Returns the root of a guest that reads `sums.len()` areas of `mib` MiB from a disk, compares
    /// their SHA-256 sums with `sums`, and writes one more area.
    pub(crate) fn with_disk(scratch: &Scratch, mib: usize, sums: &[String]) -> Option<Self> {
        let areas = sums.len();
        let work = format!("work=disk mib={mib} areas={areas}");
        Self::new(scratch, &work, &sums.join("\n"))
    }

    /// Returns the root of a guest without a disk that writes to its memory.
    pub(crate) fn without_disk(scratch: &Scratch) -> Option<Self> {
        Self::new(scratch, "work=memory", "")
    }

    fn new(scratch: &Scratch, work: &str, expected: &str) -> Option<Self> {
        let linux = linux()?;
        let modules = only(&linux.join("lib/modules"));
        let version = modules.file_name().expect("a name").to_string_lossy();
        Some(Self {
            kernel: linux.join(format!("boot/vmlinuz-{version}")),
            archive: archive(scratch, &modules.join("kernel/drivers"), expected),
            arguments: format!("{ARGUMENTS} {work}"),
        })
    }
}

/// Creates the guest's root file system: a shell, the drivers, and the sums of the disk's areas.
fn archive(scratch: &Scratch, drivers: &Path, expected: &str) -> String {
    let root = scratch.0.join("root");
    for folder in ["bin", "modules", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(folder)).expect("a writable place");
    }
    let mut order = String::new();
    for module in [
        "virtio/virtio_ring",
        "virtio/virtio",
        "virtio/virtio_pci_modern_dev",
        "virtio/virtio_pci_legacy_dev",
        "virtio/virtio_pci",
        "block/virtio_blk",
    ] {
        let from = drivers.join(format!("{module}.ko"));
        let name = module.rsplit('/').next().expect("a name");
        fs::copy(from, root.join(format!("modules/{name}.ko"))).expect("a driver");
        order.push_str(name);
        order.push('\n');
    }
    fs::write(root.join("modules/order"), order).expect("room");
    fs::write(root.join("expected"), expected).expect("room");
    fs::write(root.join("init"), INIT).expect("room");
    let path = scratch.path("root.cpio");
    let script = "cp $(command -v busybox) bin && bin/busybox --install -s bin 2>/dev/null
        cd bin && for link in *; do [ -L $link ] && ln -sf busybox $link; done; cd ..
        chmod 755 init && find . | busybox cpio -o -H newc > $0 2>/dev/null";
    let made = Command::new("sh")
        .args(["-c", script, &path])
        .current_dir(&root)
        .status();
    assert!(made.expect("a shell").success(), "no archive");
    path
}
