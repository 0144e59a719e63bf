//! Copies bytes between a port and the program's pipes or terminal.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const CHUNK: usize = 64 << 10;

/// Wakes the thread that waits for a stream (an eventfd).
#[derive(Debug)]
struct Wake(OwnedFd);

impl Wake {
    fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    fn ring(&self) {
        // Fails only when the counter is full. It counts two calls at most.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// Waits until `stream` has data or has ended, or until `wake` is signaled. Returns `true` for the
/// stream, `false` for `wake`. Fails only if `poll` fails.
fn wait(stream: &impl AsFd, wake: &Wake) -> io::Result<bool> {
    loop {
        let mut both = [
            PollFd::new(stream, PollFlags::IN),
            PollFd::new(&wake.0, PollFlags::IN),
        ];
        match poll(&mut both, None) {
            Ok(_) if !both[1].revents().is_empty() => {
                let _ = rustix::io::read(&wake.0, &mut [0u8; 8]);
                return Ok(false);
            }
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The state of the thread that copies the program's stdin from the host's port, for other threads
/// to control it.
#[derive(Debug)]
pub(crate) struct Input {
    /// The number of bytes after which stdin ends. `u64::MAX` until the host has sent it.
    total: AtomicU64,
    wake: Wake,
}

impl Input {
    /// Returns the state before copying starts. Fails if no eventfd can be created.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            total: AtomicU64::new(u64::MAX),
            wake: Wake::new()?,
        })
    }

    /// Sets the number of bytes after which stdin ends, and wakes
    /// [`copy_stream`](Self::copy_stream).
    pub(crate) fn ends_after(&self, total: u64) {
        // Release pairs with the Acquire in `copy_stream`.
        self.total.store(total, Ordering::Release);
        self.wake.ring();
    }

    /// Copies bytes from `port` to `pipe` until the number of bytes of
    /// [`ends_after`](Self::ends_after) was copied, the port ends, or the program has closed its
    /// stdin. Fails if the port cannot be read.
    pub(crate) fn copy_stream(&self, mut port: File, mut pipe: impl Write) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK];
        let mut copied = 0u64;
        while copied < self.total.load(Ordering::Acquire) {
            if !wait(&port, &self.wake)? {
                continue;
            }
            let read = match port.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if pipe.write_all(&chunk[..read]).is_err() {
                return Ok(());
            }
            copied += u64::try_from(read).unwrap_or(u64::MAX);
        }
        Ok(())
    }
}

/// The state of the thread that copies one of the program's outputs to its port, for other threads
/// to stop it.
#[derive(Debug)]
pub(crate) struct Output {
    closed: AtomicBool,
    wake: Wake,
}

impl Output {
    /// Returns the state before copying starts. Fails if no eventfd can be created.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            closed: AtomicBool::new(false),
            wake: Wake::new()?,
        })
    }

    /// Ends [`copy_stream`](Self::copy_stream), since the output has no reader on the host any
    /// more. The pipe is closed then, so the program's writes to it fail.
    pub(crate) fn close(&self) {
        // Release pairs with the Acquire in `copy_stream`.
        self.closed.store(true, Ordering::Release);
        self.wake.ring();
    }

    /// Copies bytes from `pipe` to `port` until no process has the other end of `pipe` open, or
    /// [`close`](Self::close) was called. Returns the number of bytes written to the port. Fails if
    /// `pipe` cannot be read or `port` cannot be written.
    pub(crate) fn copy_stream(
        &self,
        mut pipe: impl Read + AsFd,
        mut port: File,
    ) -> io::Result<u64> {
        let mut chunk = vec![0; CHUNK];
        let mut copied = 0u64;
        while !self.closed.load(Ordering::Acquire) {
            if !wait(&pipe, &self.wake)? {
                continue;
            }
            let read = match pipe.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // No process has the terminal open any more.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => break,
                Err(error) => return Err(error),
            };
            port.write_all(&chunk[..read])?;
            copied += u64::try_from(read).unwrap_or(u64::MAX);
        }
        Ok(copied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::thread;

    fn port() -> (UnixStream, File) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        (ours, File::from(OwnedFd::from(theirs)))
    }

    #[test]
    fn input_ends_where_the_host_says() {
        let (mut host, port) = port();
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let input = Arc::new(Input::new().expect("an eventfd"));
        let copier = Arc::clone(&input);
        let thread = thread::spawn(move || copier.copy_stream(port, writer));
        host.write_all(b"hello").expect("room");
        input.ends_after(11);
        host.write_all(b" world").expect("room");
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("text");
        assert_eq!(text, "hello world");
        thread.join().expect("no panic").expect("no error");
    }

    #[test]
    fn output_is_counted_and_closed_on_request() {
        let (mut host, port) = port();
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let output = Arc::new(Output::new().expect("an eventfd"));
        let copier = Arc::clone(&output);
        let thread = thread::spawn(move || copier.copy_stream(reader, port));
        writer.write_all(b"abc").expect("room");
        let mut bytes = [0; 3];
        host.read_exact(&mut bytes).expect("three bytes");
        assert_eq!(&bytes, b"abc");
        output.close();
        assert_eq!(thread.join().expect("no panic").expect("no error"), 3);
        // A child process of another test holds the reader until it executes its program.
        let mut tries = (0..300_000).map(|_| {
            thread::sleep(std::time::Duration::from_millis(1));
            writer.write_all(b"d").err()
        });
        let error = tries.find_map(|error| error).expect("no process reads");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
