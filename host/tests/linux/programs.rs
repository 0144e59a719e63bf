//! Builds the programs of `tests/programs`, once for all tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the folder of the sources.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Returns every program by its name: `NAME` for `c/NAME.c`, `rust-NAME` for `rust/NAME.rs`.
pub(crate) fn all() -> &'static BTreeMap<String, PathBuf> {
    static BUILT: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
        std::fs::create_dir_all(&folder).expect("cargo's folder for tests is writable");
        let mut built = BTreeMap::new();
        for source in list(&sources().join("c"), "c") {
            let name = stem(&source);
            let program = folder.join(&name);
            compile(
                "gcc",
                "apt-get install gcc libc6-dev",
                // The programs pass hostile arguments on purpose. gcc would warn about each of
                // them.
                &[
                    "-O1",
                    "-w",
                    "-static",
                    "-pthread",
                    "-o",
                    &text(&program),
                    &text(&source),
                    "-lm",
                ],
            );
            built.insert(name, program);
        }
        for source in list(&sources().join("rust"), "rs") {
            let name = format!("rust-{}", stem(&source));
            let program = folder.join(&name);
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
                    &text(&program),
                    &text(&source),
                ],
            );
            built.insert(name, program);
        }
        built
    })
}

/// Returns the path of one program.
#[track_caller]
pub(crate) fn path(name: &str) -> &'static Path {
    all()
        .get(name)
        .unwrap_or_else(|| panic!("no source for a program {name}"))
}

/// Returns the sources with this extension, sorted.
pub(crate) fn list(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the sources are part of the repository");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    paths.sort();
    paths
}

pub(crate) fn stem(path: &Path) -> String {
    path.file_stem()
        .expect("a file has a name")
        .to_string_lossy()
        .into_owned()
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
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
