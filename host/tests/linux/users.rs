//! Tests of `--user`: the program runs as the right user and can use that user's files. The guest
//! also has the host's name.

use crate::scratch::Scratch;
use crate::{ebb, native, programs};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nann:x:1001:1001::/home/ann:/bin/sh\n";
const GROUP: &str = "root:x:0:\nann:x:1001:\nclub:x:2001:ann\n";

const SCRIPT: &str = "id -u; id -g; id -G; id -un; echo $HOME $USER $LOGNAME $SHELL; pwd
echo to stdout > /dev/stdout; echo to stderr > /dev/stderr; cat /dev/stdin
cat /data; echo more >> /data && cat /data
touch ~/mine && ls -l ~ | wc -l; stat -c '%a %u:%g' ~ ~/mine /data
touch /etc/of_root 2> /dev/null || echo no; cat /.ebb/argv 2> /dev/null || echo no; touch /tmp/x && echo yes
echo 1 2> /dev/null > /proc/sys/vm/drop_caches || echo no; hostname x 2> /dev/null || echo no";

#[test]
fn a_program_is_who_it_should_be() {
    let folder = Scratch::new("users");
    let data = folder.write("data", "some data\n");
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&data, mode).expect("it is ours");
    let files = [
        format!("{}:/etc/passwd", folder.write("passwd", PASSWD)),
        format!("{}:/etc/group", folder.write("group", GROUP)),
        format!("{data}:/data"),
    ];
    let expected = "1001\n1001\n1001 2001\nann\n/home/ann ann ann /bin/sh\n/\nto stdout\n\
                    some data\nsome data\nmore\n2\n700 1001:1001\n644 1001:1001\n600 1001:1001\n\
                    no\nno\nyes\nno\nno\n";
    for kernel in ["ebb", "linux"] {
        let mut options = vec!["--kernel", kernel, "--busybox", "--user", "ann"];
        for file in &files {
            options.extend(["--file", file]);
        }
        let outcome = ebb::run(300, &options, &["sh", "-c", SCRIPT]);
        assert_eq!(outcome.expect(0).out(), expected, "{kernel}");
        assert!(outcome.err().contains("to stderr\n"), "{}", outcome.err());
        let options = ["--kernel", kernel, "--user", "4000:50"];
        let script = "id -u; id -g; id -G; echo $HOME $USER; touch ~/x && echo yes";
        let outcome = ebb::run(300, &options, &["sh", "-c", script]);
        let expected = "4000\n50\n50\n/home/4000 4000\nyes\n";
        assert_eq!(outcome.expect(0).out(), expected, "{kernel}");
    }
}

#[test]
fn a_user_of_the_hosts() {
    let options = ["--root", "host", "--user", "nobody"];
    let script = "id -un; id -G; touch ~/x && echo yes; touch /etc/x 2> /dev/null || echo no";
    let outcome = ebb::run(300, &options, &["sh", "-c", script]);
    let groups = Command::new("id").args(["-G", "nobody"]).output();
    let groups = String::from_utf8(groups.expect("id runs").stdout).expect("numbers");
    let expected = format!("nobody\n{groups}yes\nno\n");
    assert_eq!(outcome.expect(0).out(), expected);
    let options = ["--root", "host", "--user", "nobody", "-t"];
    let script = "stat -c %u /dev/hvc0; echo > /dev/tty && echo > /dev/hvc0 && echo yes";
    let outcome = ebb::run(300, &options, &["sh", "-c", script]);
    let nobody = Command::new("id").args(["-u", "nobody"]).output();
    let nobody = String::from_utf8(nobody.expect("id runs").stdout).expect("a number");
    let out = outcome.expect(0).out().replace('\r', "");
    assert_eq!(out, format!("{nobody}\n\nyes\n"));
}

#[test]
fn the_hosts_name_and_place_go_along() {
    let script = "uname -n; date +%Z%z; locale; whoami";
    let place = [("TZ", "Europe/Berlin"), ("LC_ALL", "C.UTF-8")];
    let mut here = Command::new("sh");
    let here = here.args(["-c", script]).envs(place).output();
    let here = String::from_utf8(here.expect("sh runs").stdout).expect("text");
    let mut command = ebb::command(300, &["--root", "host"]);
    command.args(["--", "sh", "-c", script]).envs(place);
    let there = ebb::finish(&mut command);
    // The user who runs ebb is the guest's root.
    let (there, here) = (there.expect(0).out(), here.trim_end());
    let before = here.rsplit_once('\n').map_or("", |(before, _)| before);
    assert_eq!(there, format!("{before}\nroot\n"));
}

/// Shows that files of `/proc/PID` about a process's state and memory layout are readable for the
/// same users as on Linux.
#[test]
fn what_a_process_does_is_for_who_may_look_into_it() {
    let program = programs::path("looks");
    let options = ["-m", "128M", "-c", "2", "--root", "none"];
    let outcome = ebb::run(300, &options, &[programs::text(program)]);
    let said = outcome.expect(0).out();
    for lines in [
        "\nbob looks at ann's\n  syscall: EACCES\n  personality: EACCES\n",
        "\nann looks at root's\n  syscall: EACCES\n  personality: EACCES\n",
        "\nann looks at ann's\n  syscall: text\n  personality: text\n",
        // A file that was opened before the change of users, and is read after it.
        "  environ: empty\n  maps: empty\n  smaps: empty\n  syscall: EPERM\n  personality: EPERM\n",
    ] {
        assert!(said.contains(lines), "no {lines:?} in\n{said}");
    }
    // On the host, only root can change to all these users.
    if rustix::process::geteuid().is_root() {
        let expected = native::run(program, &[], None);
        assert_eq!(said, String::from_utf8_lossy(&expected.stdout));
    }
}
