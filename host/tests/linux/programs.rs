//! Builds the programs of `tests/programs`, each when a test first asks for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::SystemTime;

/// Returns the folder of the sources.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Returns the path of one program, built: `NAME` for `c/NAME.c`, `rust-NAME` for `rust/NAME.rs`.
#[track_caller]
pub(crate) fn path(name: &str) -> &'static Path {
    static BUILT: Mutex<BTreeMap<String, &'static OnceLock<PathBuf>>> = Mutex::new(BTreeMap::new());
    let slot = *BUILT
        .lock()
        .expect("only this function takes it, and does nothing else meanwhile")
        .entry(name.to_owned())
        .or_insert_with(|| Box::leak(Box::default()));
    slot.get_or_init(|| build(name))
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

/// Builds a program, unless an earlier run did with the same sources.
#[track_caller]
fn build(name: &str) -> PathBuf {
    let (language, source) = match name.strip_prefix("rust-") {
        Some(stem) => ("rust", format!("{stem}.rs")),
        None => ("c", format!("{name}.c")),
    };
    let source = sources().join(language).join(source);
    assert!(source.is_file(), "no source for a program {name}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    std::fs::create_dir_all(&folder).expect("cargo's folder for tests is writable");
    let program = folder.join(name);
    // The options of the compilers are in this file.
    let options = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/linux/programs.rs");
    let sources = parts(&source).into_iter().chain([source.clone(), options]);
    let newest = sources.map(|path| changed(&path)).max();
    if program.is_file() && newest.is_some_and(|newest| newest < changed(&program)) {
        return program;
    }
    // Another run of the tests may build it too, or have it open.
    let new = folder.join(format!("{name}.{}", std::process::id()));
    if language == "rust" {
        compile(
            "rustc",
            "install Rust by https://rustup.rs",
            &[
                "--edition=2024",
                "-Copt-level=1",
                "-Ctarget-feature=+crt-static",
                "-Cstrip=symbols",
                "--target=x86_64-unknown-linux-gnu",
                "-o",
                &text(&new),
                &text(&source),
            ],
        );
    } else {
        compile(
            "gcc",
            "apt-get install gcc libc6-dev",
            // The programs pass hostile arguments on purpose. gcc would warn about each of them.
            &[
                "-O1",
                "-w",
                "-static",
                "-pthread",
                "-o",
                &text(&new),
                &text(&source),
                "-lm",
            ],
        );
    }
    std::fs::rename(&new, &program).expect("the folder is ours");
    program
}

/// Returns the files that a source may include: the headers beside a C program, the modules of a
/// Rust program.
fn parts(source: &Path) -> Vec<PathBuf> {
    let (folder, extension) = if source.extension().is_some_and(|e| e == "rs") {
        (source.with_extension(""), "rs")
    } else {
        (source.with_file_name(""), "h")
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new(); // A Rust program of one file.
    };
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect()
}

/// Returns when a file changed last.
#[track_caller]
fn changed(path: &Path) -> SystemTime {
    let metadata = std::fs::metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    metadata.modified().expect("every file has such a time")
}

#[track_caller]
fn compile(compiler: &str, advice: &str, words: &[&str]) {
    let output = match Command::new(compiler).args(words).output() {
        Ok(output) => output,
        Err(error) => panic!("{compiler}: {error}; {advice}"),
    };
    assert!(
        output.status.success(),
        "{compiler} {}\n{}\n{advice}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}
