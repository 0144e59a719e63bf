//! The layout of blkif requests and answers in a ring, and their parsing. The functions work on
//! bytes that were copied out of the shared ring before.
//!
//! | field | x86_64 | x86_32 |
//! |---|---|---|
//! | operation (8 bits), segments or flag (8 bits) | 0, 1 | 0, 1 |
//! | id (64 bits) | 8 | 4 |
//! | first sector (64 bits) | 16 | 12 |
//! | segments: 8 bytes each; or sectors to discard | 24 | 20 |
//! | indirect: operation (8 bits), segments (16 bits) | 1, 2 | 1, 2 |
//! | indirect: grants of the tables (32 bits each) | 28 | 24 |

use super::grants::{GRANT_BYTES, GrantRef};
use crate::request::{SECTOR_BYTES, Status};

/// Bytes of a request, in the larger layout.
pub const REQUEST_BYTES: usize = 112;
/// Bytes of an answer that are used, in both layouts.
pub const RESPONSE_BYTES: usize = 12;
/// Maximum number of segments in the request itself.
pub const MAX_SEGMENTS: usize = 11;
/// Maximum number of segments in a table, which is half of what one page can hold.
pub const MAX_INDIRECT_SEGMENTS: u16 = 256;
/// Bytes of a segment, in a request and in a table.
pub const SEGMENT_BYTES: usize = 8;

const OP_READ: u8 = 0;
const OP_WRITE: u8 = 1;
const OP_FLUSH: u8 = 3;
const OP_DISCARD: u8 = 5;
const OP_INDIRECT: u8 = 6;
const DISCARD_SECURE: u8 = 1;

/// [`SECTOR_BYTES`] in the type of offsets in a page.
const SECTOR: u16 = 512;
/// Number of sectors in a granted page.
const PAGE_SECTORS: u8 = 8;

const _: () = assert!(SECTOR as u64 == SECTOR_BYTES);
const _: () = assert!(PAGE_SECTORS as usize * SECTOR as usize == GRANT_BYTES);
const _: () = assert!(MAX_INDIRECT_SEGMENTS as usize * SEGMENT_BYTES <= GRANT_BYTES);

/// The layout of requests, which depends on the front-end's architecture.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Abi {
    /// 64-bit numbers are at multiples of 8. Also used on Arm.
    X86_64,
    /// 64-bit numbers are at multiples of 4.
    X86_32,
}

impl Abi {
    /// Returns the layout that the front-end's entry `protocol` names. Without that entry, it is
    /// this machine's. Returns `None` for an unknown name.
    pub fn named(protocol: Option<&str>) -> Option<Self> {
        match protocol {
            None | Some("x86_64-abi" | "arm-abi") => Some(Self::X86_64),
            Some("x86_32-abi") => Some(Self::X86_32),
            Some(_) => None,
        }
    }

    /// Returns the number of bytes from one entry of a ring to the next.
    pub fn entry_bytes(self) -> usize {
        match self {
            Self::X86_64 => REQUEST_BYTES,
            Self::X86_32 => 108,
        }
    }

    fn id_at(self) -> usize {
        match self {
            Self::X86_64 => 8,
            Self::X86_32 => 4,
        }
    }

    fn sector_at(self) -> usize {
        self.id_at() + 8
    }

    fn rest_at(self) -> usize {
        self.id_at() + 16
    }
}

/// A range of sectors in a granted page, unchecked.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The granted page.
    pub grant: GrantRef,
    /// First sector in the page.
    pub first: u8,
    /// Last sector in the page.
    pub last: u8,
}

impl Segment {
    /// Returns the length of the range in bytes.
    pub fn bytes(self) -> u16 {
        let sectors = u16::from(self.last.saturating_sub(self.first)) + 1;
        sectors * SECTOR
    }

    /// Returns the offset of the range's first byte in the page.
    pub fn offset(self) -> u16 {
        u16::from(self.first) * SECTOR
    }
}

/// The operation of a request. The parser has checked only the number of segments; see [`extent`]
/// and [`range`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Reads or writes the disk, from or to granted pages.
    Data {
        /// Whether data goes from the pages to the disk.
        write: bool,
        /// First sector of the disk.
        sector: u64,
        /// The ranges of granted pages.
        segments: Vec<Segment>,
    },
    /// Reads or writes the disk. The segments are in a granted page.
    Indirect {
        /// Whether data goes from the pages to the disk.
        write: bool,
        /// First sector of the disk.
        sector: u64,
        /// Number of segments, 1 to [`MAX_INDIRECT_SEGMENTS`].
        segments: u16,
        /// The page that holds the segments.
        table: GrantRef,
    },
    /// Makes all completed writes durable.
    Flush,
    /// Discards the contents of sectors.
    Discard {
        /// First sector of the disk.
        sector: u64,
        /// Number of sectors.
        sectors: u64,
    },
}

/// A parsed request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The id by which the front-end names it.
    pub id: u64,
    /// The operation that the answer must name. For an indirect request this is the operation
    /// inside of it. Linux's front-end takes another one for an attack and stops using the disk.
    pub operation: u8,
    /// The operation, or the status with which the request must be refused.
    pub body: Result<Body, Status>,
}

/// Returns the `N` bytes at `at`.
fn number<const N: usize>(raw: &[u8], at: usize) -> [u8; N] {
    // The offsets are those of the table above, which are all inside the request.
    let mut bytes = [0; N];
    bytes.copy_from_slice(&raw[at..at + N]);
    bytes
}

/// Parses a request.
pub fn parse(abi: Abi, raw: &[u8; REQUEST_BYTES]) -> Request {
    let operation = raw[0];
    Request {
        id: u64::from_le_bytes(number(raw, abi.id_at())),
        operation: if operation == OP_INDIRECT {
            raw[1]
        } else {
            operation
        },
        body: body(abi, operation, raw),
    }
}

/// Parses the operation. Returns the status for an answer if it is malformed or unsupported.
fn body(abi: Abi, operation: u8, raw: &[u8; REQUEST_BYTES]) -> Result<Body, Status> {
    let sector = u64::from_le_bytes(number(raw, abi.sector_at()));
    match operation {
        OP_READ | OP_WRITE => {
            let count = usize::from(raw[1]);
            if !(1..=MAX_SEGMENTS).contains(&count) {
                return Err(Status::IoError);
            }
            Ok(Body::Data {
                write: operation == OP_WRITE,
                sector,
                segments: segments(&raw[abi.rest_at()..], count),
            })
        }
        // The specification allows data with a flush, but no driver is known to send any.
        OP_FLUSH if raw[1] != 0 => Err(Status::IoError),
        OP_FLUSH => Ok(Body::Flush),
        OP_DISCARD if raw[1] & DISCARD_SECURE != 0 => Err(Status::Unsupported),
        OP_DISCARD => Ok(Body::Discard {
            sector,
            sectors: u64::from_le_bytes(number(raw, abi.rest_at())),
        }),
        OP_INDIRECT => {
            let count = u16::from_le_bytes(number(raw, 2));
            let write = match raw[1] {
                OP_READ => false,
                OP_WRITE => true,
                _ => return Err(Status::Unsupported),
            };
            if !(1..=MAX_INDIRECT_SEGMENTS).contains(&count) {
                return Err(Status::IoError);
            }
            Ok(Body::Indirect {
                write,
                sector,
                segments: count,
                table: GrantRef(u32::from_le_bytes(number(raw, abi.rest_at() + 4))),
            })
        }
        _ => Err(Status::Unsupported),
    }
}

/// Returns the first `count` segments of `table`, or fewer if the table is shorter.
pub fn segments(table: &[u8], count: usize) -> Vec<Segment> {
    let (entries, _) = table.as_chunks::<SEGMENT_BYTES>();
    let entry = |raw: &[u8; SEGMENT_BYTES]| Segment {
        grant: GrantRef(u32::from_le_bytes(number(raw, 0))),
        first: raw[4],
        last: raw[5],
    };
    entries.iter().take(count).map(entry).collect()
}

/// Returns the first byte of the disk that a request uses. Its data begins at `sector` and is as
/// long as `segments`.
///
/// # Errors
/// Fails with the status for an answer if a segment is empty or not inside its page, or if the
/// sectors are not inside a disk of `disk_bytes`.
pub fn extent(sector: u64, segments: &[Segment], disk_bytes: u64) -> Result<u64, Status> {
    let sound = |s: &Segment| s.first <= s.last && s.last < PAGE_SECTORS;
    if segments.is_empty() || !segments.iter().all(sound) {
        return Err(Status::IoError);
    }
    // At most 256 segments of 4096 bytes: the sum cannot overflow.
    let bytes: u64 = segments.iter().map(|s| u64::from(s.bytes())).sum();
    range(sector, bytes / SECTOR_BYTES, disk_bytes).map(|(offset, _)| offset)
}

/// Returns the first byte and the length in bytes of `sectors` sectors from `sector` on.
///
/// # Errors
/// Fails with the status for an answer if there are none, or they are not inside a disk of
/// `disk_bytes`.
pub fn range(sector: u64, sectors: u64, disk_bytes: u64) -> Result<(u64, u64), Status> {
    let end = sector.checked_add(sectors).ok_or(Status::IoError)?;
    if sectors == 0 || end > disk_bytes / SECTOR_BYTES {
        return Err(Status::IoError);
    }
    Ok((sector * SECTOR_BYTES, sectors * SECTOR_BYTES))
}

/// Makes an answer, in the layout of both architectures.
pub fn response(id: u64, operation: u8, status: Status) -> [u8; RESPONSE_BYTES] {
    let status: i16 = match status {
        Status::Ok => 0,
        Status::IoError => -1,
        Status::Unsupported => -2,
    };
    let mut raw = [0; RESPONSE_BYTES];
    raw[..8].copy_from_slice(&id.to_le_bytes());
    raw[8] = operation;
    raw[10..].copy_from_slice(&status.to_le_bytes());
    raw
}
