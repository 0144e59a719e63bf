//! A process that parses untrusted data (programs, images, archives) and answers questions about
//! it. It can only compute and use the descriptors that it receives.

use super::calls;
use super::fork::Forked;
use super::frames::{self, Frame};
use super::limit::{Limit, Limits};
use ebb_blk::capabilities::keep_capabilities;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::CapabilitySet;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The largest address space of a reader in bytes, in addition to that of `ebb` at the fork. The C
/// library reserves 64 MiB for each thread that has allocated memory, and maps twice that at first.
/// Decoders take up to 384 MiB, an index 64 MiB.
const ADDRESS_SPACE: u64 = 1 << 30;

/// The largest file in bytes that a reader writes, which is an unpacked compressed image.
const FILE_MAX: u64 = 64 << 30;
/// The usual limits of a reader for one answer: 60 s of CPU time and 600 s of wall-clock time. They
/// are for answers that do not wait for a guest. The longest work is an index of 64 MiB.
pub(crate) const LIMITS: Limits = Limits {
    cpu: Duration::from_secs(60),
    clock: Some(Duration::from_secs(600)),
};
/// The interval at which the limits of a silent reader are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The time after which a send to a reader that receives nothing fails.
const SEND_WITHIN: Duration = Duration::from_secs(60);

/// A confined process that answers requests, and the socket to it. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Reader {
    socket: UnixStream,
    limit: Limit,
    process: Forked,
}

impl Reader {
    /// Forks a process that runs `serve` with its end of a socket. Before that, the process drops
    /// its capabilities, files, environment, and all system calls that it does not need. `name` is
    /// its process name and has at most 15 bytes. `most` limits the time for one answer.
    ///
    /// # Errors
    /// If the host cannot create a socket or a process, or `/proc` does not show the process. If
    /// the process cannot be confined, it ends without running `serve`, and [`Self::receive`]
    /// fails.
    pub(crate) fn start(
        name: &CStr,
        most: Limits,
        serve: impl FnOnce(&UnixStream),
    ) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        calls::refuse_descriptors(&ours);
        ours.set_read_timeout(Some(LOOK_EVERY.min(most.cpu)))?;
        ours.set_write_timeout(Some(SEND_WITHIN))?;
        let process = Forked::start(|| {
            if confine(name, &theirs).is_ok() {
                serve(&theirs);
            }
        })?;
        Ok(Self {
            socket: ours,
            limit: Limit::new(process.pid(), most)?,
            process,
        })
    }

    /// Sends a message with a kind, bytes and at most two descriptors to the process. Restarts the
    /// measurement of its time.
    ///
    /// # Errors
    /// `EPIPE` once the process has ended; `EMSGSIZE` for more than 17 MiB; an error if the process
    /// receives nothing for 60 s.
    pub(crate) fn send(
        &self,
        kind: u8,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        // If the process has ended, the send below fails with the right error.
        let _ = self.limit.restart();
        frames::send(&self.socket, kind, bytes, descriptors)
    }

    /// Waits for a message from the process and returns it. Restarts the measurement of its time.
    ///
    /// # Errors
    /// `UnexpectedEof` once the process has ended. `TimedOut` if it has exceeded its limits since
    /// the last message in either direction; it is not killed. `EMSGSIZE` if the message is too
    /// long.
    pub(crate) fn receive(&self) -> io::Result<Frame> {
        let frame = frames::receive_while(&self.socket, || self.limit.check())?;
        let _ = self.limit.restart();
        Ok(frame)
    }

    /// Returns the process number of the reader.
    pub(crate) fn pid(&self) -> i32 {
        self.process.pid().as_raw_nonzero().get()
    }
}

/// Confines the calling new process to `socket` and its memory. Fails if a measure cannot be
/// applied.
fn confine(name: &CStr, socket: &UnixStream) -> io::Result<()> {
    rustix::thread::set_name(name)?;
    // The output of the process must not reach a terminal.
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    close_all_but(socket)?;
    forget_environment();
    // If `/proc` is missing, the inherited address space counts as 0.
    let inherited = address_space().unwrap_or(0).min(ADDRESS_SPACE);
    rustix::process::chdir("/")?;
    let limit = |resource, most| {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        // A lower hard limit may already hold, and it cannot be raised.
        match setrlimit(resource, limit) {
            Err(Errno::PERM) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    };
    limit(Resource::As, inherited + ADDRESS_SPACE)?;
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, FILE_MAX)?;
    keep_capabilities(CapabilitySet::empty())?;
    calls::allow_reading()
}

/// Returns the size of this process's address space in bytes.
fn address_space() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').next().and_then(|first| first.parse().ok());
    let pages: u64 = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Overwrites the environment variables with zeroes, because they may contain secrets of the user.
fn forget_environment() {
    unsafe extern "C" {
        static mut environ: *mut *mut libc::c_char;
    }
    // SAFETY: this process has one thread, which reads no variable any more. The C library ends the
    // list with a null pointer, and each string is in writable memory.
    unsafe {
        let mut next = environ;
        while !next.is_null() && !(*next).is_null() {
            let len = libc::strlen(*next);
            (*next).write_bytes(0, len);
            next = next.add(1);
        }
    }
}

/// Closes every descriptor above stderr except `socket`. Fails as close_range(2).
fn close_all_but(socket: &UnixStream) -> io::Result<()> {
    let kept = socket.as_raw_fd().unsigned_abs();
    for (first, last) in [(3, kept.saturating_sub(1)), (kept + 1, u32::MAX)] {
        if first <= last {
            calls::close_range(first, last, 0)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// Starts a reader that calls `attempt` and answers with its error number, or 0.
    fn tried(attempt: impl FnOnce() -> i32) -> i32 {
        let reader = Reader::start(c"ebb-test", LIMITS, |socket| {
            let error = attempt();
            let _ = frames::send(socket, 1, &error.to_le_bytes(), &[]);
        });
        let frame = reader.unwrap().receive().unwrap();
        i32::from_le_bytes(frame.bytes.try_into().unwrap())
    }

    fn number<T>(result: Result<T, Errno>) -> i32 {
        result.map_or_else(Errno::raw_os_error, |_| 0)
    }

    #[test]
    fn what_ebb_has_of_address_space_leaves_a_reader_its_own() {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
        const LARGE: usize = 800 << 20;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses, which no code uses.
        let mapped =
            unsafe { mmap_anonymous(std::ptr::null_mut(), LARGE, ProtFlags::empty(), flags) };
        let mapped = mapped.unwrap();
        let room = |bytes| {
            let mut buffer = Vec::<u8>::new();
            i32::from(buffer.try_reserve_exact(bytes).is_err())
        };
        let answers = [tried(|| room(512 << 20)), tried(|| room(2 << 30))];
        // SAFETY: the mapping made above.
        unsafe { munmap(mapped, LARGE) }.unwrap();
        assert_eq!(answers, [0, 1]);
    }

    #[test]
    fn a_reader_opens_no_file_and_no_socket() {
        let refused = Errno::PERM.raw_os_error();
        let open = || {
            number(rustix::fs::open(
                "/etc/passwd",
                OFlags::RDONLY,
                Mode::empty(),
            ))
        };
        assert_eq!(tried(open), refused);
        let inet = rustix::net::AddressFamily::INET;
        let socket = || {
            number(rustix::net::socket(
                inet,
                rustix::net::SocketType::STREAM,
                None,
            ))
        };
        assert_eq!(tried(socket), refused);
        let kill = || {
            let signal = rustix::process::Signal::KILL;
            let parent = rustix::process::Pid::from_raw(1).unwrap();
            number(rustix::process::kill_process(parent, signal))
        };
        assert_eq!(tried(kill), refused);
        assert_eq!(
            tried(|| number(rustix::fs::unlink("/tmp/nothing"))),
            refused
        );
    }

    #[test]
    fn a_reader_has_no_other_descriptors() {
        let secret = std::fs::File::open("/dev/null").unwrap();
        let number_of = secret.as_raw_fd();
        let use_it = move || {
            // SAFETY: the number is not used as an owned descriptor, and a closed one gives an
            // error.
            let borrowed = unsafe { BorrowedFd::borrow_raw(number_of) };
            number(rustix::fs::fstat(borrowed))
        };
        assert_eq!(tried(use_it), Errno::BADF.raw_os_error());
        drop(secret);
    }

    #[test]
    fn a_reader_uses_what_it_is_handed() {
        let reader = Reader::start(c"ebb-test", LIMITS, |socket| {
            let frame = frames::receive(socket).unwrap();
            let mut bytes = [0; 4];
            let count = rustix::io::pread(&frame.descriptors[0], &mut bytes, 1).unwrap();
            frames::send(socket, 2, &bytes[..count], &[]).unwrap();
        });
        let reader = reader.unwrap();
        let mut file = std::fs::File::from(
            rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
        );
        io::Write::write_all(&mut file, b"abc").unwrap();
        reader.send(1, b"", &[file.as_fd()]).unwrap();
        let answer = reader.receive().unwrap();
        assert_eq!((answer.kind, answer.bytes.as_slice()), (2, &b"bc"[..]));
    }

    #[test]
    fn a_reader_that_computes_for_ever_is_given_up() {
        let most = Limits {
            cpu: Duration::from_millis(100),
            clock: None,
        };
        let reader = Reader::start(c"ebb-test", most, |socket| {
            // The same for half a message.
            let _ = io::Write::write_all(&mut { socket }, &[1, 0]);
            let mut number = 1_u64;
            loop {
                number = std::hint::black_box(number.wrapping_mul(31));
            }
        });
        let error = reader.unwrap().receive().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }

    #[test]
    fn a_reader_that_trickles_or_sleeps_is_given_up() {
        let most = Limits {
            cpu: Duration::MAX,
            clock: Some(Duration::from_millis(300)),
        };
        for bytes in [&[0, 0, 1, 0, 1][..], &[]] {
            let reader = Reader::start(c"ebb-test", most, |socket| {
                let mut to = { socket };
                let _ = io::Write::write_all(&mut to, bytes);
                // A read times out after a second. Each of these messages arrives earlier.
                for _ in 0..200_000 {
                    let _ = rustix::thread::futex::wait(
                        &std::sync::atomic::AtomicU32::new(0),
                        rustix::thread::futex::Flags::PRIVATE,
                        0,
                        Some(&rustix::thread::futex::Timespec {
                            tv_sec: 0,
                            tv_nsec: 5_000_000,
                        }),
                    );
                    if !bytes.is_empty() {
                        let _ = io::Write::write_all(&mut to, &[0]);
                    }
                }
            });
            let error = reader.unwrap().receive().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        }
    }

    #[test]
    fn a_reader_sends_no_descriptor() {
        let attempt = || {
            let (socket, message) = (rustix::stdio::stdin(), [io::IoSlice::new(b"x")]);
            let mut none = rustix::net::SendAncillaryBuffer::default();
            let flags = rustix::net::SendFlags::empty();
            number(rustix::net::sendmsg(socket, &message, &mut none, flags))
        };
        assert_eq!(tried(attempt), Errno::PERM.raw_os_error());
    }

    #[test]
    fn a_reader_asks_nothing_of_other_processes_and_locks_nothing() {
        let refused = Errno::PERM.raw_os_error();
        let lock = || {
            let flags = rustix::fs::FlockOperation::NonBlockingLockShared;
            let locked = rustix::fs::fcntl_lock(rustix::stdio::stdin(), flags);
            number(locked)
        };
        assert_eq!(tried(lock), refused);
        let grow = || {
            use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
            let flags = MapFlags::PRIVATE | MapFlags::GROWSDOWN;
            // SAFETY: a new mapping at an address that the kernel chooses.
            let mapped =
                unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, ProtFlags::READ, flags) };
            number(mapped)
        };
        assert_eq!(tried(grow), refused);
        let grow = || {
            // SAFETY: the call is refused or fails, because no mapping begins at address 0.
            let result =
                unsafe { libc::mprotect(std::ptr::null_mut(), 4096, libc::PROT_GROWSDOWN) };
            let error = io::Error::last_os_error().raw_os_error();
            if result == 0 { 0 } else { error.unwrap_or(0) }
        };
        assert_eq!(tried(grow), refused);
        let clock = || {
            let mut time = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // The CPU time of process 1.
            let clock = (!1 << 3) | 2;
            // SAFETY: the kernel writes a time, unless it refuses.
            let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) };
            let error = io::Error::last_os_error().raw_os_error();
            if result == 0 { 0 } else { error.unwrap_or(0) }
        };
        assert_eq!(tried(clock), refused);
    }

    #[test]
    fn the_end_of_a_reader_is_an_error() {
        let reader = Reader::start(c"ebb-test", LIMITS, |_| panic!("a bug")).unwrap();
        assert!(reader.pid() > 0);
        assert_eq!(
            reader.receive().unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
