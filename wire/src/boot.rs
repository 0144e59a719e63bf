//! Parameters on the kernel's command line, and paths of files in the guest's initramfs.

/// The kernel parameter with the wall-clock time at the start, in nanoseconds since 1970. For Ebb's
/// kernel.
pub const EPOCH: &str = "ebb.epoch";

/// The kernel parameter that selects how free memory goes back to the host at first. Its value is
/// the name of a [`GiveBack`](crate::GiveBack) mode. For Ebb's kernel.
pub const GIVE_BACK: &str = "ebb.give_back";

/// The kernel parameter that says, with the value [`TOLD`], that the host reports its memory stalls
/// to the guest. For Ebb's kernel.
pub const HOST_PRESSURE: &str = "ebb.host_pressure";
/// Value of [`HOST_PRESSURE`]: stalls arrive as
/// [`Request::Pressure`](crate::request::Request::Pressure).
pub const TOLD: &str = "told";

/// The kernel parameter about the contents of RAM at the start: [`ZEROED`], or absent if they are
/// unknown. For Ebb's kernel.
pub const RAM: &str = "ebb.ram";
/// Value of [`RAM`]: RAM is all zeros, except where QEMU loaded something.
pub const ZEROED: &str = "zeroed";

/// The kernel parameter about the destination of the program's stderr: [`STDOUT`], or absent if
/// stderr has a port of its own.
pub const STDERR: &str = "ebb.stderr";
/// Value of [`STDERR`]: stderr goes to the port of stdout, so that the order of the writes is
/// preserved. Two ports have no order between them.
pub const STDOUT: &str = "stdout";

/// The kernel parameter about the kind of the program's stdin: [`EMPTY`] or [`TERMINAL`]. Absent
/// for any other kind.
pub const STDIN: &str = "ebb.stdin";
/// Value of [`STDIN`]: stdin is at its end from the start.
pub const EMPTY: &str = "empty";
/// Value of [`STDIN`]: the host's stdin is a terminal. For the first process of Linux guests, which
/// then reports when the program waits for input.
pub const TERMINAL: &str = "terminal";

/// The kernel parameter with the guest's host name. Absent if none was asked for.
pub const HOST_NAME: &str = "ebb.hostname";

/// The folder of the initramfs with files for the guest itself, not for its program.
pub const FOLDER: &str = "/.ebb";
/// The file of the initramfs with the program's arguments, each ended by a NUL. The first one is
/// the path to execute.
pub const ARGUMENTS: &str = "/.ebb/argv";
/// The file of the initramfs with the program's environment variables, `NAME=VALUE` each, each
/// ended by a NUL.
pub const ENVIRONMENT: &str = "/.ebb/env";
/// The file of the initramfs with the command that sends files to the host after the program has
/// ended: [`INIT`] and its arguments, each ended by a NUL. Exists only if there are files to send.
pub const OUT: &str = "/.ebb/out";
/// The first argument of the command in [`OUT`], after [`INIT`] itself. The size limit in bytes
/// ([`crate::out::cost`]) and the paths to send follow.
pub const OUT_COMMAND: &str = "out";
/// The executable `ebb-init` in the initramfs: the first process of Linux guests. It is also packed
/// for guests of Ebb's kernel that send files to the host ([`OUT`]).
pub const INIT: &str = "/.ebb/init";
/// The folder of the initramfs with the kernel modules that the first process of a Linux guest
/// loads at boot, in the order of their names.
pub const MODULES: &str = "/.ebb/modules";
/// The folder of the initramfs with kernel modules, `NAME.ko` each, that a Linux guest loads only
/// when a program or the kernel asks for them.
pub const DEMAND: &str = "/.ebb/demand";
/// The file that lists the names under which the modules in [`DEMAND`] can be asked for. Each line
/// has a module name or an alias, then the names of the modules to load for it, in order.
pub const DEMAND_LIST: &str = "/.ebb/demand/list";

/// Returns whether the command line `line` has the word `word=value`. Words are separated by white
/// space. `false` if the parameter has only other values.
pub fn is_set(line: &str, word: &str, value: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    words.any(|entry| entry.split_once('=') == Some((word, value)))
}

/// Returns the value of the first word `word=…` on the command line `line`. Returns `None` if there
/// is no such word, also if `word` stands there without `=`.
pub fn value<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let mut words = line.split_ascii_whitespace();
    words.find_map(|entry| entry.strip_prefix(word)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_whole() {
        assert!(is_set("quiet ebb.stdin=empty\n", STDIN, EMPTY));
        for line in [
            "",
            "ebb.stdin",
            "ebb.stdin=emptyish",
            "x.ebb.stdin=empty",
            "ebb.stdin=a=empty",
        ] {
            assert!(!is_set(line, STDIN, EMPTY), "{line}");
        }
    }

    #[test]
    fn values_are_found_by_whole_words() {
        let line = "quiet ebb.hostnames=a ebb.hostname=one=1 ebb.hostname=two\n";
        assert_eq!(value(line, HOST_NAME), Some("one=1"));
        assert_eq!(value(line, EMPTY), None);
    }

    #[test]
    fn files_lie_in_the_folder() {
        for path in [
            ARGUMENTS,
            ENVIRONMENT,
            OUT,
            INIT,
            MODULES,
            DEMAND,
            DEMAND_LIST,
        ] {
            assert!(
                path.strip_prefix(FOLDER)
                    .is_some_and(|rest| rest.starts_with('/'))
            );
        }
    }
}
