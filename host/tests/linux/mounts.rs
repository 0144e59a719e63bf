//! Tests of tmpfs mounts by programs, and of the settings of System V shared memory. The expected
//! results come from `mounts` and `binds` as root on Linux, because only root can run it there.

use crate::{ebb, programs};

#[track_caller]
fn mounts(options: &[&str]) {
    let program = programs::text(programs::path("mounts"));
    let outcome = ebb::run(600, options, &[program.as_str(), "/place"]);
    assert_eq!(
        outcome.expect(0).out(),
        "271 statements, 0 do not hold\n",
        "{}",
        outcome.err()
    );
}

#[test]
fn on_four_cpus() {
    mounts(&["-m", "256M", "-c", "4"]);
}

#[test]
fn on_one_cpu() {
    mounts(&["-m", "256M", "-c", "1", "--machine", "q35"]);
}

#[track_caller]
fn binds(options: &[&str]) {
    let program = programs::text(programs::path("binds"));
    let outcome = ebb::run(600, options, &[program.as_str(), "/place"]);
    assert_eq!(
        outcome.expect(0).out(),
        "417 statements, 0 do not hold\n",
        "{}",
        outcome.err()
    );
}

#[test]
fn bind_mounts_on_two_cpus() {
    binds(&["-m", "256M", "-c", "2"]);
}

#[test]
fn bind_mounts_on_one_cpu() {
    binds(&["-m", "256M", "-c", "1", "--root", "none"]);
}

#[test]
fn bind_mounts_come_and_go_while_paths_are_walked() {
    let program = programs::text(programs::path("bind_storm"));
    let options = ["-m", "256M", "-c", "2"];
    let outcome = ebb::run(600, &options, &[program.as_str(), "/place", "500"]);
    assert_eq!(
        outcome.expect(0).out(),
        "mounts were made: yes, and walked: yes\n\
         info_lines() == before: yes\n\
         umount(base) == 0: yes\n",
        "{}",
        outcome.err()
    );
}

#[test]
fn a_shell_makes_bind_mounts() {
    script(
        "mkdir /w; mount -t tmpfs x /w; cd /w; mkdir a b c; echo in > a/f; echo out > g; echo on > h; \
         mount --bind a b; cat b/f; mount --bind g h; cat h; \
         mount -o remount,bind,ro b; echo no 2> /dev/null > b/f || echo read-only; echo in > a/f; \
         tail -2 /proc/self/mountinfo; mount --rbind . c; cat c/b/f c/h; ls c/c; \
         find . -name f | sort; tar cf /all.tar -C /w/c . && tar tf /all.tar | sort; \
         umount h; cat h; cd /; umount /w 2> /dev/null || echo busy; umount -l /w; grep -c . /proc/mounts",
        "in\nout\nread-only\n\
         14 13 0:13 /a /w/b ro,relatime - tmpfs x rw\n\
         15 13 0:13 /g /w/h rw,relatime - tmpfs x rw\n\
         in\nout\n\
         ./a/f\n./b/f\n./c/a/f\n./c/b/f\n\
         ./\n./a/\n./a/f\n./b/\n./b/f\n./c/\n./g\n./h\n\
         on\nbusy\n6\n",
    );
}

#[test]
fn bind_mounts_that_double_end_with_the_most_mounts() {
    script(
        "mkdir /m; mount -t tmpfs x /m; mkdir /m/a; n=0; \
         while mount --rbind /m /m/a 2> /dev/null && [ $n -lt 20 ]; do n=$((n + 1)); done; echo $n; \
         wc -l < /proc/self/mountinfo; umount -l /m; wc -l < /proc/self/mountinfo; \
         mount --bind / /m && ls -d /m/proc && umount /m && ls -A /m",
        "13\n8198\n6\n/m/proc\n",
    );
}

#[track_caller]
fn script(script: &str, expected: &str) {
    let options = ["-m", "256M", "-c", "2"];
    let outcome = ebb::run(300, &options, &["sh", "-c", script]);
    assert_eq!(outcome.expect(0).out(), expected, "{}", outcome.err());
}

#[test]
fn a_shell_mounts_fills_and_unmounts() {
    script(
        "mkdir /mnt; mount -t tmpfs -o size=8m none /mnt; df -k /mnt | tail -1; \
         dd if=/dev/zero of=/mnt/f bs=1M count=9 2> /dev/null || echo full; df -k /mnt | tail -1; \
         tail -1 /proc/mounts; tail -1 /proc/self/mountinfo; mount | tail -1; \
         (cd /mnt; umount /mnt 2> /dev/null || echo busy); \
         mount -o remount,size=16m /mnt; df -k /mnt | tail -1; umount /mnt; ls /mnt; \
         umount /mnt 2> /dev/null || echo gone; mountpoint -q /mnt || echo no mount point",
        "none                      8192         0      8192   0% /mnt\n\
         full\n\
         none                      8192      8192         0 100% /mnt\n\
         none /mnt tmpfs rw,relatime,size=8192k 0 0\n\
         13 1 0:13 / /mnt rw,relatime - tmpfs none rw,size=8192k\n\
         none on /mnt type tmpfs (rw,relatime,size=8192k)\n\
         busy\n\
         none                     16384      8192      8192  50% /mnt\n\
         gone\n\
         no mount point\n",
    );
}

#[test]
fn what_the_kernel_mounted_stays() {
    script(
        "for m in / /tmp /dev /dev/pts /proc /sys; do umount -l $m 2> /dev/null || echo $m stays; done; \
         mount -t proc proc /proc 2> /dev/null || echo once; \
         mount -t tmpfs none / 2> /dev/null || echo not there; \
         mount -t tmpfs -o size=1m cgroup /sys/kernel && touch /sys/kernel/here && ls /sys/kernel; \
         umount /sys/kernel; ls -d /sys/kernel/mm; \
         mount -t tmpfs 'a name' /tmp; tail -1 /proc/mounts; umount /tmp; \
         mkdir '/a b'; mount -t tmpfs x '/a b'; tail -1 /proc/mounts; umount '/a b'; \
         grep -c . /proc/mounts; grep tmpfs /proc/filesystems",
        "/ stays\n/tmp stays\n/dev stays\n/dev/pts stays\n/proc stays\n/sys stays\nonce\nnot there\nhere\n\
         /sys/kernel/mm\n\
         a\\040name /tmp tmpfs rw,relatime 0 0\n\
         x /a\\040b tmpfs rw,relatime 0 0\n\
         6\nnodev\ttmpfs\nnodev\tdevtmpfs\n",
    );
}

#[test]
fn ipc_has_knobs() {
    script(
        "cd /proc/sys/kernel; cat sem msgmax msgmnb msgmni; echo 5 > sem; echo 7 8 9 10 > sem; cat sem; \
         for bad in '' x '-1' '1 2 3 32769' '1 2 3 4 5' '1 x'; do (echo $bad > sem) 2> /dev/null || echo refused; done; cat sem; \
         (echo 2147483648 > msgmax) 2> /dev/null || echo refused; (echo 32769 > msgmni) 2> /dev/null || echo refused; \
         cd ../fs/mqueue; cat queues_max msg_max msgsize_max msg_default msgsize_default; \
         for bad in 0 65537; do (echo $bad > msg_max) 2> /dev/null || echo refused; done; \
         for bad in 127 16777217; do (echo $bad > msgsize_max) 2> /dev/null || echo refused; done; \
         wc -l < /proc/sysvipc/sem; wc -l < /proc/sysvipc/msg",
        "32000\t1024000000\t500\t32000\n8192\n16384\n32000\n7\t8\t9\t10\n\
         refused\nrefused\nrefused\nrefused\nrefused\n1\t2\t3\t4\nrefused\nrefused\n\
         256\n10\n8192\n10\n8192\nrefused\nrefused\nrefused\nrefused\n1\n1\n",
    );
    script(
        "cd /proc/sys/kernel; cat shmmax shmall shmmni shm_rmid_forced; \
         (echo 32769 > shmmni) 2> /dev/null || echo refused; (echo 2 > shm_rmid_forced) 2> /dev/null || echo refused; \
         echo 7 > shmmni; cat shmmni; wc -l < /proc/sysvipc/shm",
        "18446744073692774399\n18446744073692774399\n4096\n0\nrefused\nrefused\n7\n1\n",
    );
}
