//! Copies `ebb`'s stdin to the port of the program's stdin.

use super::control::Control;
use crate::text::{Terminal, raw};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, major, minor};
use rustix::io::Errno;
use rustix::termios;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// The maximum number of bytes per read.
const CHUNK: usize = 64 << 10;
/// The major and minor number of `/dev/null`, which is empty whenever it is read.
const NULL: (u32, u32) = (1, 3);

/// Returns whether stdin is `/dev/null`, which never has input. If so, the guest is told at its
/// start, and not at a moment that depends on the host's scheduler. Returns `false` if stdin cannot
/// be examined.
pub(crate) fn input_is_empty() -> bool {
    rustix::fs::fstat(rustix::stdio::stdin()).is_ok_and(|stat| {
        let device = (major(stat.st_rdev), minor(stat.st_rdev));
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && device == NULL
    })
}

/// Returns whether stdin is a terminal, at which a user types.
pub(crate) fn input_is_terminal() -> bool {
    termios::isatty(rustix::stdio::stdin())
}

/// How often a background job checks whether it is in the foreground again.
const BACKGROUND_TICK: Duration = Duration::from_millis(200);
/// The same interval for `poll`.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// Blocks until stdin has input or has ended, and `ebb` is in the foreground.
///
/// `ebb` reads ahead of the program. A background job that reads its terminal is stopped by the
/// kernel. So without this check the program would be stopped for input that it never requested.
fn wait_for_input(stdin: BorrowedFd<'_>) -> Result<(), Errno> {
    let terminal = termios::isatty(stdin);
    loop {
        let tick = raw::is_taken_over().then_some(&TICK);
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], tick) {
            Ok(0) => {
                let _ = raw::make_raw();
                continue;
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        }
        let background = terminal
            && termios::tcgetpgrp(stdin).is_ok_and(|group| group != rustix::process::getpgrp());
        if !background {
            // A failure is ignored, since typed input counts even if the terminal cannot be set.
            let _ = raw::make_raw();
            return Ok(());
        }
        thread::sleep(BACKGROUND_TICK);
    }
}

/// Copies stdin to `port` until stdin ends, cannot be read, or the guest is gone. At the end of
/// stdin queues in `control` the number of bytes, after which the program's stdin ends. Queues
/// nothing if the guest is gone.
///
/// Reads only while `ebb` is in the foreground, and then puts the terminal into raw mode again if
/// `ebb` has taken it over. If the user types at a terminal, `terminal` stops showing the guest's
/// state in the user's line.
pub(crate) fn feed(mut port: UnixStream, control: &Control, terminal: &Terminal) {
    let stdin = rustix::stdio::stdin();
    let typed = input_is_terminal();
    let mut chunk = vec![0; CHUNK];
    let mut total = 0u64;
    // A stream that cannot be read, such as a hung-up terminal, counts as ended.
    while wait_for_input(stdin).is_ok() {
        match rustix::io::read(stdin, &mut chunk) {
            Ok(0) => break,
            Ok(read) => {
                if typed {
                    terminal.give_up_line();
                }
                if port.write_all(&chunk[..read]).is_err() {
                    return;
                }
                total += u64::try_from(read).unwrap_or(u64::MAX);
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => break,
        }
    }
    control.end_of_input(total);
}
