//! Words on the kernel's command line, and files in the archive that it starts with.

/// Time at the start, in nanoseconds since 1970. For Ebb's kernel.
pub const EPOCH: &str = "ebb.epoch";

/// How memory goes back to the host: the name of a [`GiveBack`](crate::GiveBack). For Ebb's kernel.
pub const GIVE_BACK: &str = "ebb.give_back";

/// The host tells of its memory stalls where this is [`TOLD`]. For Ebb's kernel.
pub const HOST_PRESSURE: &str = "ebb.host_pressure";
/// By [`Request::Pressure`](crate::request::Request::Pressure).
pub const TOLD: &str = "told";

/// What memory holds at the start: [`ZEROED`], or anything. For Ebb's kernel.
pub const RAM: &str = "ebb.ram";
/// Zeroes, but for what QEMU loaded.
pub const ZEROED: &str = "zeroed";

/// Where the program's stderr leads: [`STDOUT`], or to a port of its own.
pub const STDERR: &str = "ebb.stderr";
/// To stdout, in the order of the writes: two ports have none between them.
pub const STDOUT: &str = "stdout";

/// What the program's stdin has to give: nothing where it is [`EMPTY`], what somebody types where it is a [`TERMINAL`].
pub const STDIN: &str = "ebb.stdin";
/// Nothing, now and later.
pub const EMPTY: &str = "empty";
/// The host's stdin is one. For the first process of Linux guests, which then looks whether the program waits for it.
pub const TERMINAL: &str = "terminal";

/// What the guest is called.
pub const HOST_NAME: &str = "ebb.hostname";

/// The folder of the archive that is for the guest itself, not for its program.
pub const FOLDER: &str = "/.ebb";
/// The program's arguments, each ended by a NUL. The first one is the path to execute.
pub const ARGUMENTS: &str = "/.ebb/argv";
/// The program's environment, likewise.
pub const ENVIRONMENT: &str = "/.ebb/env";
/// What sends files to the host when the program has ended: [`INIT`] and its arguments, a list like [`ARGUMENTS`]. Only where
/// something is to be sent.
pub const OUT: &str = "/.ebb/out";
/// Its first argument; the most that it sends ([`crate::out::cost`]) and the paths follow.
pub const OUT_WORD: &str = "out";
/// The first process of Linux guests.
pub const INIT: &str = "/.ebb/init";
/// Modules that it loads, in the order of their names.
pub const MODULES: &str = "/.ebb/modules";
/// Modules that stay, `NAME.ko` each, for when something asks for them.
pub const DEMAND: &str = "/.ebb/demand";
/// What can be asked for, a line each: a name or an alias, then the modules to load for it in order.
pub const DEMAND_LIST: &str = "/.ebb/demand/list";

/// Whether `word` stands on the command line `line` with this `value`.
pub fn is_set(line: &str, word: &str, value: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    words.any(|entry| entry.split_once('=') == Some((word, value)))
}

/// The value that `word` has on the command line `line`, the first if there are several.
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
