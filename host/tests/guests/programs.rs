//! Tests of programs of the host on Ebb's kernel.

use crate::dynamic;
use crate::guest::ebb;
use crate::scratch::Scratch;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

#[test]
fn a_dynamic_program_is_loaded_with_its_libraries() {
    dynamic::a_program_is_loaded_with_its_libraries(ebb);
}

/// Runs the command and asserts its status and the words of its message.
fn cannot_run(mut command: Command, status: i32, words: &[&str]) {
    let output = command.output().expect("ebb starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{message}");
    for word in words {
        assert!(message.contains(word), "`{word}` is missing in: {message}");
    }
}

#[test]
fn a_loader_that_is_missing_is_named() {
    let scratch = Scratch::new("no-loader");
    std::fs::copy("/bin/true", scratch.path("program")).expect("a program");
    let volume = format!("{}:/v", scratch.folder().display());
    let loader = "its loader /lib64/ld-linux-x86-64.so.2 is not in the guest";
    let words = ["cannot run /v/program", loader, "--root host", "--file"];
    for quiet in [None, Some("-q")] {
        let mut command = ebb(&["--volume", &volume]);
        command.args(quiet).args(["--", "/v/program"]);
        cannot_run(command, 127, &words);
    }
    let script = scratch.write("script", "#!/v/program\n");
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("a mode");
    cannot_run(
        ebb(&["--volume", &volume, "--", "/v/script"]),
        127,
        &[loader],
    );
}

#[test]
fn a_folder_that_is_closed_to_the_user_is_named() {
    let scratch = Scratch::within(Path::new("/var/tmp"), "closed");
    let folder = scratch.folder().join("closed");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::copy("/bin/busybox", folder.join("program")).expect("deps has a busybox");
    std::fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("a mode");
    let mut command = ebb(&[
        "--root",
        "host",
        "--user",
        "4321",
        "--",
        "./program",
        "true",
    ]);
    command.current_dir(&folder);
    if !rustix::process::geteuid().is_root() {
        // Files of this user belong to the guest's user.
        assert!(command.status().expect("ebb starts").success());
        return;
    }
    let place = folder.canonicalize().expect("it is there");
    let closed = format!(
        "the folder {} has mode 0700 and is closed to user 4321",
        place.display()
    );
    cannot_run(command, 126, &["cannot run", &closed, "chmod a+x"]);
}
