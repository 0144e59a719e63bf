//! Tests of the files that are packed automatically for a program: hostile programs and scripts
//! cannot select files of the user. No guest is started. The tests write the first file system and
//! search it.

#[path = "parts/scratch.rs"]
#[allow(dead_code, reason = "each test needs a part of it")]
mod scratch;

use scratch::Scratch;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SECRET: &str = "PRIVATE KEY of this user";

/// A folder that everyone may search. It contains a private folder with a private secret.
struct Place {
    scratch: Scratch,
}

impl Place {
    fn new(name: &str) -> Self {
        let scratch = Scratch::within(&std::env::temp_dir(), name);
        let place = Self { scratch };
        place.write("home/.ssh/key", SECRET.as_bytes(), 0o600);
        fs::set_permissions(place.path("home/.ssh"), mode(0o700)).expect("the host does this");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.folder().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8], permissions: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("the host does this")).expect("the host does this");
        fs::write(&path, bytes).expect("the host does this");
        fs::set_permissions(&path, mode(permissions)).expect("the host does this");
        path
    }

    fn script(&self, name: &str, first: &str) -> PathBuf {
        self.write(name, format!("#!{first}\n").as_bytes(), 0o755)
    }

    /// Packs a program with these options. Returns the output and the archive.
    fn pack(&self, options: &[&str], program: &Path) -> (Output, Vec<u8>) {
        let archive = self.path("archive");
        let _ = fs::remove_file(&archive);
        let output = Command::new(env!("CARGO_BIN_EXE_ebb"))
            .args(["run", "--dump-initramfs"])
            .arg(&archive)
            .args(options)
            .arg("--")
            .arg(program)
            .current_dir(self.path(""))
            .env("HOME", self.path("home"))
            .output()
            .expect("ebb starts");
        (output, fs::read(&archive).unwrap_or_default())
    }

    /// Asserts that packing fails with status 126, that the secret is not packed, and that the
    /// message contains `word`.
    fn refused(&self, options: &[&str], program: &Path, word: &str) {
        self.fails(126, options, program, word);
    }

    /// As [`Self::refused`], with the status `status`.
    fn fails(&self, status: i32, options: &[&str], program: &Path, word: &str) {
        let (output, archive) = self.pack(options, program);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!holds(&archive, SECRET), "{program:?}: {message}");
        assert!(!holds(&output.stderr, SECRET), "{message}");
        assert!(!message.contains("panicked"), "{message}");
        assert_eq!(output.status.code(), Some(status), "{message}");
        assert!(message.contains(word), "`{word}` is missing in: {message}");
    }
}

fn mode(bits: u32) -> fs::Permissions {
    fs::Permissions::from_mode(bits)
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

/// Returns an ELF program with these interpreters.
fn elf(interpreters: &[&[u8]]) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    bytes.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    for long in [0x1000_u64, 64, 0] {
        bytes.extend(long.to_le_bytes());
    }
    bytes.extend(0_u32.to_le_bytes());
    let count = u16::try_from(interpreters.len()).expect("the host does this");
    for half in [64_u16, 56, count, 64, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    let mut at = 64 + 56 * interpreters.len() as u64;
    for path in interpreters {
        let len = path.len() as u64 + 1;
        bytes.extend([3, 0, 0, 0, 4, 0, 0, 0]);
        for long in [at, at, at, len, len, 1] {
            bytes.extend(long.to_le_bytes());
        }
        at += len;
    }
    for path in interpreters {
        bytes.extend(*path);
        bytes.push(0);
    }
    bytes
}

fn bytes_of(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().to_vec()
}

#[test]
fn a_secret_is_no_interpreter() {
    let place = Place::new("packing-interpreter");
    let secret = bytes_of(&place.path("home/.ssh/key"));
    let program = place.write("prog", &elf(&[&secret]), 0o755);
    place.refused(&["--root", "none"], &program, "home/.ssh/key");
    // Some tools read the second interpreter, but no kernel does.
    let loader = b"/lib64/ld-linux-x86-64.so.2";
    let two = place.write("two", &elf(&[loader, &secret]), 0o755);
    let (_, archive) = place.pack(&["--root", "none"], &two);
    assert!(!holds(&archive, SECRET));
    place.refused(
        &["--root", "none"],
        &place.write("one", &elf(&[&secret, loader]), 0o755),
        "home/.ssh/key",
    );
}

#[test]
fn a_packed_folder_names_no_secret() {
    let place = Place::new("packing-folder");
    let secret = bytes_of(&place.path("home/.ssh/key"));
    place.write("tree/prog", &elf(&[&secret]), 0o755);
    let options = ["--root", "none", "--file", "tree:/t", "--busybox"];
    let (output, archive) = place.pack(&options, Path::new("sh"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(!holds(&archive, SECRET));
    // A private file in the named folder is packed like every other file in it.
    place.write("tree/own", SECRET.as_bytes(), 0o600);
    let (_, archive) = place.pack(&options, Path::new("sh"));
    assert!(holds(&archive, SECRET));
}

#[test]
fn a_script_names_no_secret() {
    let place = Place::new("packing-script");
    let home = place.path("home");
    let home = home.display();
    for (name, first) in [
        ("plain", format!("{home}/.ssh/key")),
        ("dots", format!("/usr/..{home}/.ssh/key")),
        ("magic", "/proc/self/cwd/home/.ssh/key".into()),
        ("descriptor", "/proc/self/fd/0".into()),
        ("env", format!("/usr/bin/env {home}/.ssh/key")),
    ] {
        let script = place.script(name, &first);
        for root in ["none", "host"] {
            // Below the working folder, the guest sees the shown files and no file is packed for
            // it.
            if root == "host" && name == "plain" {
                continue;
            }
            place.refused(&["--root", root], &script, name_of(&first));
        }
    }
}

fn name_of(first: &str) -> &str {
    first.split(' ').next_back().unwrap_or(first)
}

#[test]
fn a_secret_that_looks_like_a_program_is_packed_for_none() {
    let place = Place::new("packing-private");
    let mut private = fs::read("/bin/true").expect("the host does this");
    private.extend(SECRET.as_bytes());
    let secret = place.write("home/.ssh/tool", &private, 0o700);
    let program = place.write("prog", &elf(&[&bytes_of(&secret)]), 0o755);
    place.refused(&["--root", "none"], &program, "--file");
    let script = place.script("script", &secret.display().to_string());
    place.refused(&["--root", "none"], &script, "--file");
    // Through a link that everyone may follow.
    symlink(&secret, place.path("link")).expect("the host does this");
    let link = bytes_of(&place.path("link"));
    let program = place.write("linked", &elf(&[&link]), 0o755);
    place.refused(&["--root", "none"], &program, "--file");
    // A named file is packed.
    let folder = place.path("home/.ssh");
    let options = ["--root", "none", "--file", &folder.display().to_string()];
    let (output, archive) = place.pack(&options, &script);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(holds(&archive, SECRET));
}

#[test]
fn what_is_no_file_is_an_error_at_once() {
    let place = Place::new("packing-odd");
    let pipe = place.path("pipe");
    let made = Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .expect("the host does this");
    assert!(made.success());
    fs::set_permissions(&pipe, mode(0o755)).expect("the host does this");
    let pipe = bytes_of(&pipe);
    for (name, interpreter, word) in [
        ("root", &b"/"[..], "no absolute path"),
        ("fifo", &pipe, "pipe"),
        ("folder", b"/usr", "/usr"),
        ("device", b"/dev/zero", "/dev/zero"),
        ("process", b"/proc/self/exe", "/proc/self/exe"),
        ("status", b"/proc/self/status", "/proc/self/status"),
        ("passwd", b"/etc/passwd", "/etc/passwd"),
        ("missing", b"/no/such/loader", "not on this host"),
    ] {
        let program = place.write(name, &elf(&[interpreter]), 0o755);
        place.refused(&["--root", "none"], &program, word);
    }
    place.refused(&["--root", "none"], &place.path("pipe"), "pipe");
}

#[test]
fn a_pipe_that_an_option_names_is_not_waited_for() {
    let place = Place::new("packing-pipes");
    let pipe = place.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("the host does this").success());
    let pipe = pipe.to_str().expect("a name of ASCII");
    let kernel = format!("linux:{pipe}");
    for (options, word) in [
        (["--root", pipe], "neither a directory nor a tar archive"),
        (["--root", "/dev/null"], "neither a directory nor a tar"),
        (["--kernel-image", pipe], "it is not a file"),
        (["--kernel", &kernel], "it is not a file"),
    ] {
        place.fails(125, &options, Path::new("/bin/true"), word);
    }
}

#[test]
fn a_sparse_file_is_refused_before_it_is_copied() {
    let place = Place::new("packing-sparse");
    let sparse = place.write("sparse", b"", 0o644);
    let file = fs::File::options().write(true).open(&sparse);
    let file = file.expect("the host does this");
    file.set_len(3 << 30).expect("the host does this");
    let option = format!("{}:/sparse", sparse.display());
    let options = ["--root", "none", "-m", "64M", "--file", &option];
    for word in ["sparse alone takes 3072.0 MiB", "give it more with -m"] {
        place.fails(125, &options, Path::new("/bin/true"), word);
        assert!(!place.path("archive").exists(), "nothing is written");
    }
}

/// Asserts that a run fails with one line of ebb's own, and returns the line.
fn one_line_of(place: &Place, options: &[&str], program: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(["run", "--dump-initramfs"])
        .arg(place.path("archive"))
        .args(options)
        .arg("--")
        .args(program)
        .current_dir(place.path(""))
        .output()
        .expect("ebb starts");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_ne!(output.status.code(), Some(0), "{message}");
    let forged = |line: &str| line.starts_with("ebb: forged") || line.contains("help: forged");
    assert!(!message.lines().any(forged), "{message}");
    let own = message.lines().filter(|line| line.starts_with("ebb: "));
    assert_eq!(own.count(), 1, "{message}");
    assert!(message.contains("\\nebb: forged"), "{message}");
    message
}

#[test]
fn names_of_others_are_no_lines_of_ebbs() {
    let place = Place::new("packing-lines");
    let name = "x\nebb: forged";
    fs::create_dir(place.path("tree")).expect("the host does this");
    let made = Command::new("mkfifo")
        .arg(place.path("tree").join(name))
        .status();
    assert!(made.expect("the host does this").success());
    let none = ["--root", "none"];
    let message = one_line_of(
        &place,
        &["--root", "none", "--file", "tree:/t"],
        &["/bin/true"],
    );
    assert!(message.contains("is neither file, directory"), "{message}");
    let interpreters: [&[u8]; 2] = [b"/x\nebb: forged", b"x\nebb: forged"];
    for interpreter in interpreters {
        let program = place.write("elf", &elf(&[interpreter]), 0o755);
        let program = program.to_str().expect("a name of ASCII");
        one_line_of(&place, &none, &[program]);
    }
    let script = place.script(name, "/no/such");
    let script = script.to_str().expect("a name of ASCII");
    one_line_of(&place, &none, &[script]);
    one_line_of(&place, &none, &[name]);
}

/// Writes an image with this configuration in the format of `docker save`.
fn image(place: &Place, config: &str) -> PathBuf {
    let mut archive = tar::Builder::new(Vec::new());
    let manifest = r#"[{"Config": "c.json", "RepoTags": null, "Layers": []}]"#;
    for (name, text) in [("manifest.json", manifest), ("c.json", config)] {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        let added = archive.append_data(&mut header, name, text.as_bytes());
        added.expect("memory takes it");
    }
    let bytes = archive.into_inner().expect("memory takes it");
    place.write("image.tar", &bytes, 0o644)
}

#[test]
fn fields_of_an_image_are_no_lines_of_ebbs() {
    let place = Place::new("packing-fields");
    let long = "x".repeat(1 << 20);
    for config in [
        r#"{"config": {"Cmd": ["a\nebb: forged"]}}"#.to_owned(),
        format!(r#"{{"config": {{"Cmd": ["a\nebb: forged{long}"]}}}}"#),
        r#"{"config": {"Cmd": ["/a"], "User": "ann\nebb: forged"}}"#.to_owned(),
        r#"{"config": {"Cmd": ["/a"], "User": "ann:b\nebb: forged"}}"#.to_owned(),
        r#"{"config": {"Cmd": ["/a"], "User": "a:b:\nebb: forged"}}"#.to_owned(),
    ] {
        let image = image(&place, &config);
        let image = image.to_str().expect("a name of ASCII");
        let message = one_line_of(&place, &["--root", image], &[]);
        assert!(message.len() < 1000, "{} bytes", message.len());
    }
}

#[test]
fn programs_of_this_host_are_packed_with_their_libraries() {
    let place = Place::new("packing-libraries");
    for program in ["/usr/bin/python3", "/bin/bash", "/usr/bin/git"] {
        let (output, archive) = place.pack(&["--root", "none"], Path::new(program));
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{program}: {message}");
        let listed = Command::new("ldd")
            .arg(program)
            .output()
            .expect("the host does this");
        let listed = String::from_utf8_lossy(&listed.stdout);
        let names = listed.lines().filter_map(|line| line.split(" => ").nth(1));
        let names: Vec<_> = names.filter_map(|rest| rest.split(' ').next()).collect();
        assert!(!names.is_empty());
        for name in names {
            assert!(holds(&archive, &name[1..]), "{program} needs {name}");
        }
    }
}

#[test]
fn a_tool_of_an_environment_brings_its_interpreter() {
    let place = Place::new("packing-toolchain");
    let version = "home/.pyenv/versions/3.11";
    let python = fs::read("/usr/bin/python3").expect("the host does this");
    place.write(&format!("{version}/bin/python"), &python, 0o700);
    let interpreter = place.path(&format!("{version}/bin/python"));
    let first = interpreter.display().to_string();
    fs::set_permissions(place.path("home"), mode(0o700)).expect("the host does this");
    let tool = place.script(&format!("{version}/bin/tool"), &first);
    let (output, archive) = place.pack(&["--root", "none"], &tool);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(holds(&archive, &first[1..]));
    // A script outside of the toolchain may not name its interpreter.
    let elsewhere = place.script("elsewhere", &first);
    place.refused(&["--root", "none"], &elsewhere, "--file");
}

#[test]
fn a_file_of_the_working_folder_is_no_command() {
    let place = Place::new("packing-command");
    let path = place.script("true", "/bin/sh").display().to_string();
    let (output, archive) = place.pack(&["--root", "none"], Path::new("true"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(!holds(&archive, &path[1..]));
    // The user means this file if it is named by its path, or if no command has its name.
    for (name, program) in [("true", "./true"), ("own-tool", "own-tool")] {
        let script = place.script(name, "/bin/sh");
        let text = fs::read(&script).expect("the script");
        let (output, archive) = place.pack(&["--root", "none"], Path::new(program));
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(text).expect("text");
        assert!(holds(&archive, &text), "{program}");
    }
}
