//! Lines from the first process of a Linux guest to the host, on the control port.
//!
//! | line                                 | meaning                                             |
//! |--------------------------------------|-----------------------------------------------------|
//! | `up`                                 | the drivers work                                    |
//! | `running <ns>`                       | the program is about to start; the guest's clock    |
//! | `awaits-input`                       | the program waits for input from the terminal       |
//! | `ended <ns> <faults>`                | the program has ended; clock, page faults           |
//! | `oom-kill <ns> <pid> <bytes> <name>` | the OOM killer killed a process; its resident bytes |
//! | `oom-kills <n>`                      | the OOM killer has killed n processes               |
//! | `exited <wait> <out> <err>`          | the program's wait status, and the bytes it wrote   |
//! | `cannot-run <why>`                   | the program could not be started                    |
//! | `failed <why>`                       | the guest itself failed                             |

use core::fmt;

/// The largest length in bytes of a line with its line end. The host takes a longer line as damage:
/// the first process of a Linux guest sends none.
pub const BYTES_MAX: usize = 4096;

/// A report from a Linux guest's first process: one line on the control port.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Report<'a> {
    /// The drivers work.
    Up,
    /// The program is about to start.
    Running {
        /// Nanoseconds of the guest's clock, which begins when its kernel starts.
        nanoseconds: u64,
    },
    /// The program waits for input from the terminal.
    AwaitsInput,
    /// The program has ended. Its status follows in [`Report::Exited`] after its output.
    Ended {
        /// Nanoseconds of the guest's clock, as in [`Report::Running`].
        nanoseconds: u64,
        /// Number of page faults of the program and of all processes that it left behind.
        faults: u64,
    },
    /// The kernel's OOM killer killed a process.
    OomKill {
        /// Nanoseconds of the guest's clock, as in [`Report::Running`].
        nanoseconds: u64,
        /// The victim's process ID.
        pid: u64,
        /// Bytes that the victim had resident.
        resident: u64,
        /// The victim's name, chosen by the program.
        name: &'a str,
    },
    /// The number of processes that the OOM killer has killed since the kernel started.
    OomKills(u64),
    /// The exit of the program, after all its output.
    Exited {
        /// The wait status of `wait(2)`.
        status: u32,
        /// Bytes that the program wrote to stdout and stderr.
        written: [u64; 2],
    },
    /// The program could not be started, for the given reason.
    CannotRun(&'a str),
    /// The guest itself failed, for the given reason.
    Failed(&'a str),
}

impl<'a> Report<'a> {
    /// Reads a line without its line end. Returns `None` if its first word is unknown, or if a
    /// number is missing or malformed. Ignores text after `up` and `awaits-input`.
    pub fn parse(line: &'a str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "up" => Some(Self::Up),
            "running" => Some(Self::Running {
                nanoseconds: rest.parse().ok()?,
            }),
            "awaits-input" => Some(Self::AwaitsInput),
            "ended" => {
                let (nanoseconds, faults) = rest.split_once(' ')?;
                Some(Self::Ended {
                    nanoseconds: nanoseconds.parse().ok()?,
                    faults: faults.parse().ok()?,
                })
            }
            "oom-kill" => {
                let mut words = rest.splitn(4, ' ');
                let mut number = || words.next()?.parse().ok();
                let (nanoseconds, pid, resident) = (number()?, number()?, number()?);
                Some(Self::OomKill {
                    nanoseconds,
                    pid,
                    resident,
                    name: words.next()?,
                })
            }
            "oom-kills" => Some(Self::OomKills(rest.parse().ok()?)),
            "exited" => {
                let mut words = rest.split(' ');
                let status = words.next()?.parse().ok()?;
                let written = [words.next()?.parse().ok()?, words.next()?.parse().ok()?];
                Some(Self::Exited { status, written })
            }
            "cannot-run" => Some(Self::CannotRun(rest)),
            "failed" => Some(Self::Failed(rest)),
            _ => None,
        }
    }
}

/// Writes the line without its line end.
impl fmt::Display for Report<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up => to.write_str("up"),
            Self::AwaitsInput => to.write_str("awaits-input"),
            Self::Running { nanoseconds } => write!(to, "running {nanoseconds}"),
            Self::Ended {
                nanoseconds,
                faults,
            } => write!(to, "ended {nanoseconds} {faults}"),
            Self::OomKill {
                nanoseconds,
                pid,
                resident,
                name,
            } => write!(to, "oom-kill {nanoseconds} {pid} {resident} {name}"),
            Self::OomKills(kills) => write!(to, "oom-kills {kills}"),
            Self::Exited {
                status,
                written: [stdout, stderr],
            } => {
                write!(to, "exited {status} {stdout} {stderr}")
            }
            Self::CannotRun(why) => write!(to, "cannot-run {why}"),
            Self::Failed(why) => write!(to, "failed {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    #[test]
    fn lines_are_what_the_host_knows() {
        for (report, line) in [
            (Report::Up, "up"),
            (Report::Running { nanoseconds: 7 }, "running 7"),
            (Report::AwaitsInput, "awaits-input"),
            (
                Report::Ended {
                    nanoseconds: 9,
                    faults: 3,
                },
                "ended 9 3",
            ),
            (
                Report::Exited {
                    status: 256,
                    written: [1, 2],
                },
                "exited 256 1 2",
            ),
            (
                Report::OomKill {
                    nanoseconds: 1,
                    pid: 2,
                    resident: 4096,
                    name: "a b",
                },
                "oom-kill 1 2 4096 a b",
            ),
            (Report::OomKills(3), "oom-kills 3"),
            (Report::CannotRun("no such file"), "cannot-run no such file"),
            (
                Report::Failed("cannot mount /proc"),
                "failed cannot mount /proc",
            ),
        ] {
            assert_eq!(report.to_string(), line);
            assert_eq!(Report::parse(line), Some(report));
        }
    }

    #[test]
    fn other_lines_say_nothing() {
        for line in [
            "",
            "upp",
            "running",
            "running x",
            "ended 1",
            "ended 1 2 3",
            "oom-kills -1",
            "oom-kill 1 2 3",
            "oom-kill 1 x 3 a",
            "exited 1 2",
            "exited 1 2 x",
            "Up",
        ] {
            assert_eq!(Report::parse(line), None, "{line}");
        }
    }
}
