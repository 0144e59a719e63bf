//! Control messages (`struct cmsghdr`), which a program passes in addition to the bytes of a
//! message.

use crate::errno::Errno;
use alloc::vec::Vec;

/// The level of all control messages that this module parses (`SOL_SOCKET`).
pub const SOL_SOCKET: u32 = 1;
/// The type of a control message with file descriptors.
pub const SCM_RIGHTS: u32 = 1;
/// The type of a control message with the credentials of the sender.
pub const SCM_CREDENTIALS: u32 = 2;

/// Size of the header of each control message in bytes. It consists of a length of eight bytes,
/// which includes the header, a level and a type.
pub const HEADER: usize = 16;
/// The most descriptors that one message may carry (`SCM_MAX_FD`).
pub const MAX_DESCRIPTORS: usize = 253;
/// The most bytes of control messages that a sender may pass (`net.core.optmem_max`).
pub const MAX_LENGTH: usize = 20480;

/// The IDs of a sender: process, user, group (`struct ucred`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Process ID; 0 is none.
    pub pid: u32,
    /// User ID.
    pub uid: u32,
    /// Group ID.
    pub gid: u32,
}

impl Credentials {
    /// The credentials of no process, as Linux shows them.
    pub const NO_PROCESS: Self = Self {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };

    /// The credentials of a message whose receiver did not request them, as Linux shows them.
    pub const UNTOLD: Self = Self {
        pid: 0,
        uid: 65534,
        gid: 65534,
    };

    /// Returns the credentials as a `struct ucred`.
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        for (place, number) in bytes.chunks_mut(4).zip([self.pid, self.uid, self.gid]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}

/// The data that a sender passes in control messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Descriptors, in order; at most [`MAX_DESCRIPTORS`].
    pub descriptors: Vec<i32>,
    /// The credentials that the sender claims.
    pub credentials: Option<Credentials>,
}

fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
    bytes.copied().map_or(0, u32::from_le_bytes)
}

/// Returns the offset of the message that follows a message of `length` bytes.
const fn aligned(length: usize) -> usize {
    length.next_multiple_of(8)
}

/// A control message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Level of the message.
    pub level: u32,
    /// Type of the message.
    pub kind: u32,
    /// The bytes after the header.
    pub data: &'a [u8],
}

impl Message<'_> {
    /// Checks a message of [`SOL_SOCKET`] for a call that accepts no messages of that level. As on
    /// Linux, descriptors and credentials are ignored without an error.
    ///
    /// # Errors
    /// `EINVAL` if the message has another type.
    pub fn check_of_socket(&self) -> Result<(), Errno> {
        match self.kind {
            SCM_RIGHTS | SCM_CREDENTIALS => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Returns the control messages in `bytes`, which a sender passed. The first malformed message
/// yields `EINVAL` and ends the iteration.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Errno>> {
    // Each iteration consumes at least a header.
    core::iter::from_fn(move || {
        if bytes.len() < HEADER {
            return None;
        }
        let length = bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length < HEADER || length > bytes.len() {
            bytes = &[];
            return Some(Err(Errno::EINVAL));
        }
        let message = Message {
            level: number(bytes, 8),
            kind: number(bytes, 12),
            data: &bytes[HEADER..length],
        };
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some(Ok(message))
    })
}

/// Parses `bytes`, the control messages of an `AF_UNIX` sender. Messages of other levels are
/// ignored, as on Linux.
///
/// # Errors
/// `EINVAL` if a message is malformed or of an unknown type, or passes too many descriptors.
pub fn parse(bytes: &[u8]) -> Result<Passed, Errno> {
    let mut passed = Passed::default();
    for message in messages(bytes) {
        let Message { level, kind, data } = message?;
        match (level, kind) {
            (SOL_SOCKET, SCM_RIGHTS) => {
                let count = data.len() / 4;
                if passed.descriptors.len() + count > MAX_DESCRIPTORS {
                    return Err(Errno::EINVAL);
                }
                let more = data.chunks_exact(4).map(|fd| number(fd, 0).cast_signed());
                passed.descriptors.extend(more);
            }
            (SOL_SOCKET, SCM_CREDENTIALS) => {
                if data.len() != 12 {
                    return Err(Errno::EINVAL);
                }
                passed.credentials = Some(Credentials {
                    pid: number(data, 0),
                    uid: number(data, 4),
                    gid: number(data, 8),
                });
            }
            (SOL_SOCKET, _) => return Err(Errno::EINVAL),
            _ => {}
        }
    }
    Ok(passed)
}

/// Checks `bytes`, the control messages of a TCP sender, which accepts none.
///
/// # Errors
/// `EINVAL` if a message is malformed, or of an unknown type of [`SOL_SOCKET`].
pub fn check_of_stream(bytes: &[u8]) -> Result<(), Errno> {
    for message in messages(bytes) {
        let message = message?;
        if message.level == SOL_SOCKET {
            message.check_of_socket()?;
        }
    }
    Ok(())
}

/// Writes control messages into a receiver's buffer.
#[derive(Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    room: usize,
    is_cut: bool,
}

impl Writer {
    /// Returns a writer for a buffer of `room` bytes.
    pub fn new(room: usize) -> Self {
        Self {
            bytes: Vec::new(),
            room,
            is_cut: false,
        }
    }

    /// Returns the number of descriptors that would fit in one more message (`SCM_RIGHTS`).
    pub fn descriptors_room(&self) -> usize {
        let left = self.room - self.bytes.len();
        left.saturating_sub(HEADER) / 4
    }

    /// Records that the caller left out data that did not fit, so that [`Self::finish`] reports it.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Adds a message with this `level`, the type `kind` and the contents `data`, truncated to the
    /// space that is left.
    pub fn add(&mut self, level: u32, kind: u32, data: &[u8]) {
        let left = self.room - self.bytes.len();
        if left < HEADER {
            self.is_cut = true;
            return;
        }
        let fits = data.len().min(left - HEADER);
        self.is_cut |= fits < data.len();
        let length = (HEADER + fits) as u64;
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(&level.to_le_bytes());
        self.bytes.extend_from_slice(&kind.to_le_bytes());
        self.bytes.extend_from_slice(&data[..fits]);
        let end = aligned(self.bytes.len()).min(self.room);
        self.bytes.resize(end, 0);
    }

    /// Returns the bytes written, and whether a message was truncated or left out because it did
    /// not fit.
    pub fn finish(self) -> (Vec<u8>, bool) {
        (self.bytes, self.is_cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::prelude::v1::*;

    fn message(level: u32, kind: u32, data: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new(4096);
        writer.add(level, kind, data);
        writer.finish().0
    }

    #[test]
    fn what_is_written_can_be_read() {
        let who = Credentials {
            pid: 7,
            uid: 8,
            gid: 9,
        };
        let mut bytes = message(SOL_SOCKET, SCM_RIGHTS, &[3, 0, 0, 0]);
        bytes.extend(message(41, 50, &[1, 2, 3]));
        bytes.extend(message(SOL_SOCKET, SCM_CREDENTIALS, &who.to_bytes()));
        bytes.extend(message(SOL_SOCKET, SCM_RIGHTS, &[255; 8]));
        let passed = parse(&bytes).unwrap();
        assert_eq!(passed.descriptors, [3, -1, -1]);
        assert_eq!(passed.credentials, Some(who));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for bytes in [
            message(SOL_SOCKET, 9, &[]),
            message(SOL_SOCKET, SCM_CREDENTIALS, &[0; 8]),
            message(
                SOL_SOCKET,
                SCM_RIGHTS,
                &std::vec![0; 4 * (MAX_DESCRIPTORS + 1)],
            ),
            std::vec![15, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0],
            std::vec![17, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0],
            std::vec![255; 16],
        ] {
            assert_eq!(parse(&bytes), Err(Errno::EINVAL));
        }
        assert_eq!(
            check_of_stream(&message(SOL_SOCKET, 9, &[])),
            Err(Errno::EINVAL)
        );
        assert_eq!(check_of_stream(&[255; 16]), Err(Errno::EINVAL));
        assert_eq!(check_of_stream(&message(0, 9, &[])), Ok(()));
        assert_eq!(parse(&[1; 15]), Ok(Passed::default()));
    }

    #[test]
    fn little_room_cuts() {
        let mut writer = Writer::new(22);
        assert_eq!(writer.descriptors_room(), 1);
        writer.add(SOL_SOCKET, SCM_RIGHTS, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let (bytes, cut) = writer.finish();
        assert!(cut && bytes.len() == 22 && bytes[0] == 22);
        let mut writer = Writer::new(15);
        writer.add(SOL_SOCKET, SCM_RIGHTS, &[]);
        assert_eq!(writer.finish(), (std::vec![], true));
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(passed) = parse(&bytes) {
                prop_assert!(passed.descriptors.len() <= MAX_DESCRIPTORS);
            }
        }
    }
}
