//! Tests of how commands are found, of the options that containers have, and of what the user is
//! told if a program fails.

use crate::guest::ebb;
use crate::scratch::Scratch;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn executable(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("it has a folder")).expect("a new folder");
    fs::write(path, text).expect("a new file");
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it is ours");
}

/// Runs the command and returns its exit status, its output and its messages.
fn outcome(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().expect("ebb starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_command_is_the_one_that_the_shell_runs() {
    let scratch = Scratch::within(&std::env::temp_dir(), "shell-command");
    let folder = scratch.folder();
    let version = folder.join("home/.pyenv/versions/3");
    let tool = version.join("bin/tool");
    executable(
        &tool,
        "#!/bin/sh\necho $0; cat $(dirname $0)/../data; helper\n",
    );
    executable(&version.join("bin/helper"), "#!/bin/sh\necho helped\n");
    fs::write(version.join("data"), "its data\n").expect("a new file");
    executable(
        &folder.join("home/.pyenv/shims/tool"),
        "#!/bin/sh\nexit 3\n",
    );
    fs::write(folder.join("home/.pyenv/version"), "3\n").expect("a new file");
    executable(&folder.join("home/.asdf/shims/env"), "#!/bin/sh\nexit 3\n");
    fs::create_dir(folder.join("job")).expect("a new folder");
    let home = folder.join("home");
    let shims = |manager: &str| home.join(manager).join("shims");
    let path = format!(
        "{}:{}:/usr/bin:/bin",
        shims(".pyenv").display(),
        shims(".asdf").display()
    );
    let run = |program: &[&str]| {
        let mut command = ebb(&["--root", "host", "--"]);
        command.args(program).current_dir(folder.join("job"));
        outcome(command.env("PATH", &path).env("HOME", &home))
    };
    let (status, said, told) = run(&["tool"]);
    assert_eq!(status, Some(0), "{told}");
    assert_eq!(said, format!("{}\nits data\nhelped\n", tool.display()));
    // Programs that the command starts are found likewise.
    let (status, inner, told) = run(&["sh", "-c", "tool"]);
    assert_eq!((status, inner), (Some(0), said), "{told}");
    // What a shim of an unknown manager would run is not known, and this is said.
    let (status, said, told) = run(&["env", "sh", "-c", "command -v env; echo $PATH"]);
    assert_eq!(status, Some(0), "{told}");
    assert!(told.contains("/usr/bin/env runs here, and not"), "{told}");
    let rest = "/usr/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin";
    let first = version.join("bin");
    assert_eq!(said, format!("/usr/bin/env\n{}:{rest}\n", first.display()));
}

#[test]
fn programs_of_the_host_have_folders_for_their_state() {
    let script = "for d in /run /run/lock /var/tmp /var/cache /var/log /var/run/; do \
                  echo x > $d/new && cat $d/new && rm $d/new; done; \
                  ls /var/tmp /var/cache | wc -w; test -d /var/lib && echo there; \
                  stat -c %a /var/tmp";
    let (status, said, told) = outcome(&mut ebb(&["--root", "host", "--", "sh", "-c", script]));
    assert_eq!(status, Some(0), "{told}");
    // The names of both folders are in the count.
    assert_eq!(
        said,
        format!("{}2\nthere\n1777\n", "x\n".repeat(6)),
        "{told}"
    );
}

#[test]
fn options_of_containers_are_taken() {
    let scratch = Scratch::new("container-options");
    let list = scratch.write("list", "# comment\nONE=1\nTWO=2\n\nNO_SUCH_VARIABLE\n");
    let data = scratch.folder().join("data");
    fs::create_dir(&data).expect("a new folder");
    fs::write(data.join("x"), "shared\n").expect("a new file");
    let volume = format!("{}:/data:ro", data.display());
    let script = "echo $ONE $TWO $THREE; pwd; hostname; id -u; cat /data/x";
    let arguments = [
        "--rm",
        "-e",
        "THREE=3",
        "-e",
        "TWO=two",
        "--env-file",
        &list,
        "-w",
        "/new/folder",
        "--hostname",
        "box",
        "-u",
        "7",
        "-v",
        &volume,
        "--",
        "sh",
        "-c",
        script,
    ];
    let (status, said, told) = outcome(&mut ebb(&arguments));
    assert_eq!(status, Some(0), "{told}");
    assert_eq!(said, "1 two 3\n/new/folder\nbox\n7\nshared\n");
    // A folder of the host that the guest does not see is no place to begin in.
    let here = data.display().to_string();
    let arguments = ["--root", "host", "--workdir", &here, "--", "pwd"];
    let mut command = ebb(&arguments);
    let (status, _, told) = outcome(command.current_dir("/usr"));
    assert_eq!(status, Some(125), "{told}");
    assert!(told.contains("does not see this folder"), "{told}");
    // Nor is one that a volume lacks, and a folder of the guest's own is one.
    let (status, _, told) = outcome(&mut ebb(&["-v", &volume, "-w", "/data/none", "--", "pwd"]));
    assert_eq!(status, Some(125), "{told}");
    assert!(told.contains("the volume has no folder"), "{told}");
    let (status, said, told) = outcome(&mut ebb(&["-w", "/dev/shm", "--", "pwd"]));
    assert_eq!((status, &*said), (Some(0), "/dev/shm\n"), "{told}");
}

#[test]
fn a_file_that_the_guest_does_not_see_is_named_when_the_program_fails() {
    let scratch = Scratch::within(&std::env::temp_dir(), "unseen");
    let data = scratch.write("data", "x");
    let (status, _, told) = outcome(&mut ebb(&["--", "cat", &data]));
    assert_eq!(status, Some(1), "{told}");
    assert!(
        told.contains(&format!("the guest does not see {data}\n")),
        "{told}"
    );
    let (status, _, told) = outcome(&mut ebb(&["--quiet", "--", "cat", &data]));
    assert_eq!(status, Some(1));
    assert!(!told.contains("does not see"), "{told}");
    let (_, _, told) = outcome(&mut ebb(&["--file", &data, "--", "grep", "y", &data]));
    assert_eq!(told, "");
}
