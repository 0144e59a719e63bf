//! Tests of disks and of file systems, whose modules are loaded at the first mount.

use crate::guest::run;

/// Runs a shell script in a guest with a disk in memory. Returns its output, or `None` if there is
/// no kernel.
fn script(text: &str) -> Option<String> {
    let output = run(&["--disk", "ram:64M", "--", "sh", "-ec", text])?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("root?"), "{stderr}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn file_systems_are_there_when_they_are_mounted() {
    let printed = script(
        "mkdir /mnt /all
         test ! -e /sys/module/ext4
         mke2fs /dev/vda > /dev/null
         mount -t ext4 /dev/vda /mnt && echo ext4 > /mnt/f && umount /mnt
         mount /dev/vda /mnt && cat /mnt/f
         dd if=/dev/zero of=/mnt/image bs=1M count=8 2> /dev/null
         mkdosfs /mnt/image
         mkdir /fat
         mount -t vfat -o loop /mnt/image /fat && echo vfat > /fat/f && cat /fat/f
         umount /fat
         mount -t tmpfs t /all && mkdir /all/u /all/w
         mount -t overlay -o lowerdir=/mnt,upperdir=/all/u,workdir=/all/w o /all
         cat /all/f && echo over > /all/f && cat /all/f /mnt/f
         test ! -e /sys/module/xfs
         for kind in xfs iso9660; do ! mount -t $kind /dev/vda /fat 2> /dev/null; done
         test -e /sys/module/xfs && test -e /sys/module/isofs",
    );
    if let Some(printed) = printed {
        assert_eq!(printed, "ext4\nvfat\next4\nover\next4\n");
    }
}

#[test]
#[ignore = "long: make test-long"]
fn what_is_on_no_disk_is_said() {
    let output = run(&["--disk", "ram:8M", "--", "mount", "/dev/vda", "/tmp"]);
    if let Some(output) = output {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_ne!(output.status.code(), Some(0));
        assert!(!stderr.contains("root?"), "{stderr}");
    }
}

#[test]
#[ignore = "long: make test-long"]
fn a_guest_without_disks_carries_no_modules_for_them() {
    let output = run(&["--", "sh", "-c", "test ! -e /.ebb"]);
    if let Some(output) = output {
        assert_eq!(output.status.code(), Some(0));
    }
}
