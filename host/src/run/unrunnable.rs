//! Explains why the guest's kernel did not start the program, and what the user can do.

use crate::text::Log;

/// The beginnings of messages that Ebb's kernel prints on its console, from `start.rs`, `image.rs`
/// and `exec.rs` of its tasks.
const CANNOT_RUN: &str = "init: cannot run ";
const LOADED_BY: &str = "exec: the program is loaded by ";
const RUN_BY: &str = "exec: the script is run by ";
const FOLDER: &str = "init: the folder ";
const FILE: &str = "init: the file ";
/// The beginning of the line about a `sysctl.` word that the kernel could not obey.
const CANNOT_SET: &str = "init: cannot set ";
/// The error's name for a missing file. Its number follows.
const MISSING: &str = "ENOENT(";

/// Returns a message for the user that says why the guest's kernel could not run the program, and
/// what helps. Uses the lines of Ebb's kernel in `log`. Returns `None` if no line is about a
/// program that could not be run.
pub(super) fn explained(log: &Log) -> Option<String> {
    let find = |begin: &str| {
        let line = log.last_with(begin)?;
        let (_, rest) = line.split_once(begin)?;
        Some(rest.to_owned())
    };
    if let Some(knob) = find(CANNOT_SET) {
        return Some(format!(
            "ebb: the guest cannot set {knob}\n  help: docs/knobs.md lists the knobs and their values"
        ));
    }
    let program = find(CANNOT_RUN)?;
    let of_path = |begin, what| {
        let line = find(begin)?;
        let (path, error) = line.rsplit_once(": ")?;
        Some(wanting(what, path, error))
    };
    let closed = || {
        let folder = find(FOLDER).map(|folder| format!("the folder {folder}"));
        let why = folder.or_else(|| find(FILE).map(|file| format!("the file {file}")))?;
        Some(format!(
            "{why}\n  help: open it to all (`chmod a+x`), or run as another --user"
        ))
    };
    let why = of_path(LOADED_BY, "its loader")
        .or_else(|| of_path(RUN_BY, "its interpreter"))
        .or_else(closed);
    let program = match &why {
        // The reason says more than the error's name, which is left out.
        Some(_) => program
            .rsplit_once(": ")
            .map_or(&*program, |(path, _)| path),
        None => &program,
    };
    let mut text = format!("ebb: the guest cannot run {program}");
    if let Some(why) = why {
        text.push_str(&format!(": {why}"));
    }
    Some(text)
}

fn wanting(what: &str, path: &str, error: &str) -> String {
    if error.starts_with(MISSING) {
        return format!(
            "{what} {path} is not in the guest\n  help: show the guest the host's files (--root host), \
             pack it and its libraries (--file {path}), or take a static program"
        );
    }
    format!("{what} {path} cannot be used: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[&str]) -> Option<String> {
        let log = Log::new("kernel");
        let lines = lines.iter().map(|line| format!("[    0.071534] {line}\n"));
        log.pump(lines.collect::<String>().as_bytes(), None);
        explained(&log)
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let text = told(&[
            "exec: the program is loaded by /lib64/ld.so: ENOENT(2)",
            "init: cannot run /v/x: ENOENT(2)",
            "init: the program is missing",
        ]);
        let text = text.unwrap();
        assert!(text.starts_with("ebb: the guest cannot run /v/x: its loader /lib64/ld.so is not"));
        assert!(text.contains("--file /lib64/ld.so"), "{text}");
        let text = told(&[
            "init: the folder /root has mode 0700 and is closed to user 7",
            "init: cannot run /root/x: EACCES(13)",
        ]);
        let text = text.unwrap();
        let why = "cannot run /root/x: the folder /root has mode 0700 and is closed to user 7\n";
        assert!(text.contains(why), "{text}");
        assert!(text.contains("chmod a+x"), "{text}");
        let text = told(&["init: cannot run /v/x: ENOEXEC(8)"]);
        assert_eq!(
            text.as_deref(),
            Some("ebb: the guest cannot run /v/x: ENOEXEC(8)")
        );
        let text = told(&["init: cannot set vm.foo=1: there is no such knob"]).unwrap();
        let first = "ebb: the guest cannot set vm.foo=1: there is no such knob\n";
        assert!(text.starts_with(first), "{text}");
        assert_eq!(
            told(&["exec: the program is loaded by /x: ENOENT(2)"]),
            None
        );
    }
}
