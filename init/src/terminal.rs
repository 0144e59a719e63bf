//! The program's terminal: a pty whose other side is connected to the port of stdin and stdout.

use ebb_wire::terminal::Size;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{InputModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A pty.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// The side of this process.
    pub(crate) ours: File,
    /// The side of the program. While it is open, reading from `ours` does not end.
    pub(crate) programs: OwnedFd,
}

impl Terminal {
    /// Creates a pty of this size, in UTF-8 mode. Fails if the system cannot create a pty.
    pub(crate) fn new(size: Size) -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags)?;
        unlockpt(&ours)?;
        let programs = ioctl_tiocgptpeer(&ours, flags)?;
        let mut settings = tcgetattr(&programs)?;
        settings.input_modes |= InputModes::IUTF8;
        tcsetattr(&programs, OptionalActions::Now, &settings)?;
        let ours = File::from(ours);
        resize(&ours, size);
        Ok(Self { ours, programs })
    }

    /// Makes the pty the three streams and the controlling terminal of the program that `command`
    /// will start, in a new session. Fails if a descriptor cannot be duplicated.
    pub(crate) fn give_to(&self, command: &mut Command) -> io::Result<()> {
        command.stdin(self.programs.try_clone()?);
        command.stdout(self.programs.try_clone()?);
        command.stderr(self.programs.try_clone()?);
        let take = || {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        };
        // SAFETY: between fork and exec, the closure only makes system calls.
        unsafe { command.pre_exec(take) };
        Ok(())
    }
}

/// Sets the terminal's size. The kernel then sends SIGWINCH to its foreground processes. Ignores
/// errors.
pub(crate) fn resize(terminal: impl AsFd, size: Size) {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // Fails if the terminal was hung up.
    let _ = tcsetwinsize(terminal, size);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_program_has_it_for_its_terminal() {
        let size = Size {
            rows: 30,
            columns: 100,
        };
        let terminal = Terminal::new(size).expect("a pty");
        let mut command = Command::new("sh");
        command.args(["-c", "test -t 2 && tty < /dev/tty && stty size"]);
        terminal.give_to(&mut command).expect("descriptors");
        let mut child = command.spawn().expect("sh starts");
        assert!(child.wait().expect("a child").success());
        // The kernel passes output on in pieces. With the program's side closed, reading ends with
        // EIO once all of it was read.
        let Terminal { mut ours, programs } = terminal;
        drop((command, programs));
        let (mut seen, mut part) = (Vec::new(), [0; 100]);
        while let Ok(len @ 1..) = ours.read(&mut part) {
            seen.extend_from_slice(&part[..len]);
        }
        let seen = String::from_utf8_lossy(&seen);
        assert_eq!(seen, "/dev/tty\r\n30 100\r\n");
    }
}
