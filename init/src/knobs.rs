//! Checks that the kernel has accepted the knobs that the command line sets.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};

/// Writes the value of each `sysctl.NAME=VALUE` word of `command_line` to its file in `/proc/sys`.
/// The kernel has done so before, but reports a refused word only in its log.
///
/// # Errors
/// Fails with a message that names the first refused word and the reason.
pub(crate) fn check(command_line: &str) -> Result<(), String> {
    for word in command_line.split_ascii_whitespace() {
        let Some((name, value)) = word.strip_prefix("sysctl.").and_then(|w| w.split_once('='))
        else {
            continue;
        };
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        write(&path, value).map_err(|error| {
            let why = match error.kind() {
                ErrorKind::NotFound => "there is no such knob".to_owned(),
                ErrorKind::InvalidInput => "the knob does not take this value".to_owned(),
                _ => error.to_string(),
            };
            format!("cannot set {name}={value}: {why}")
        })?;
    }
    Ok(())
}

fn write(path: &str, value: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_knob_that_is_not_there_is_named() {
        assert_eq!(super::check("quiet sysctl=1 panic=-1"), Ok(()));
        let error = super::check("quiet sysctl.vm.no_such_knob=1");
        let expected = "cannot set vm.no_such_knob=1: there is no such knob";
        assert_eq!(error, Err(expected.to_owned()));
    }
}
