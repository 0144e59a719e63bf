//! The program's stdin, carried to its port.

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

/// Moved by one read.
const CHUNK: usize = 64 << 10;
/// The device that is empty whenever it is read, `/dev/null`: major and minor number.
const NULL: (u32, u32) = (1, 3);

/// Whether our stdin has nothing to give, now and later. A guest that is told so at its start need
/// not be told at a moment that the host's scheduler chooses.
pub(crate) fn input_is_empty() -> bool {
    rustix::fs::fstat(rustix::stdio::stdin()).is_ok_and(|stat| {
        let device = (major(stat.st_rdev), minor(stat.st_rdev));
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && device == NULL
    })
}

/// Whether our stdin is a terminal, where somebody types.
pub(crate) fn input_is_terminal() -> bool {
    termios::isatty(rustix::stdio::stdin())
}

/// How often a job in the background looks whether it is in the foreground again.
const BACKGROUND_TICK: Duration = Duration::from_millis(200);
/// The same for `poll`.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};

/// Waits until stdin has something, or has ended, for us. We read ahead of the program, and a job
/// in the background that reads its terminal is stopped: so the program would be stopped for
/// input that it never asked for.
fn wait_for_input(stdin: BorrowedFd<'_>) -> Result<(), Errno> {
    let terminal = termios::isatty(stdin);
    loop {
        let tick = raw::is_used().then_some(&TICK);
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
            // What is typed counts even where the terminal cannot be set.
            let _ = raw::make_raw();
            return Ok(());
        }
        thread::sleep(BACKGROUND_TICK);
    }
}

/// Carries our stdin to the guest until it ends or the guest is gone.
///
/// Whoever types at a terminal needs the line on which `terminal` shows the guest's state.
pub(crate) fn feed(mut port: UnixStream, control: &Control, terminal: &Terminal) {
    let stdin = rustix::stdio::stdin();
    let typed = input_is_terminal();
    let mut chunk = vec![0; CHUNK];
    let mut total = 0u64;
    // A stream that cannot be read has nothing more to give, as a hung-up terminal.
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
