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

/// Size of a request in bytes, in the larger of the two layouts.
pub const REQUEST_BYTES: usize = 112;
/// Size of the used part of an answer in bytes, in both layouts.
pub const RESPONSE_BYTES: usize = 12;
/// Maximum number of segments in a request that holds them itself.
pub const MAX_SEGMENTS: usize = 11;
/// Maximum number of segments in the table of an indirect request: half of the number that fits
/// into one page.
pub const MAX_INDIRECT_SEGMENTS: u16 = 256;
/// Size of a segment in bytes, in a request and in a table.
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

/// The layout of requests and answers in a ring, which depends on the front-end's architecture.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Abi {
    /// 64-bit numbers are at multiples of 8. Also used on Arm.
    X86_64,
    /// 64-bit numbers are at multiples of 4.
    X86_32,
}

impl Abi {
    /// Returns the layout for `protocol`, the entry of this name of the front-end in xenstore.
    /// Returns `X86_64` if there is no such entry. Returns `None` for an unknown name.
    pub fn named(protocol: Option<&str>) -> Option<Self> {
        match protocol {
            None | Some("x86_64-abi" | "arm-abi") => Some(Self::X86_64),
            Some("x86_32-abi") => Some(Self::X86_32),
            Some(_) => None,
        }
    }

    /// Returns the distance in bytes from one entry of a ring to the next.
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

/// A range of sectors of 512 bytes in a granted page, unchecked.
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
    /// Returns the length of the range in bytes. If `last` is below `first`, returns the length of
    /// one sector.
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

/// A request of a front-end, parsed but not checked against the disk.
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

/// Parses the bytes of a request in the layout `abi`. A malformed or unsupported request has a
/// status instead of a body.
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

/// Returns the first `count` segments in the bytes `table`, or fewer if the table is shorter. Does
/// not check them.
pub fn segments(table: &[u8], count: usize) -> Vec<Segment> {
    let (entries, _) = table.as_chunks::<SEGMENT_BYTES>();
    let entry = |raw: &[u8; SEGMENT_BYTES]| Segment {
        grant: GrantRef(u32::from_le_bytes(number(raw, 0))),
        first: raw[4],
        last: raw[5],
    };
    entries.iter().take(count).map(entry).collect()
}

/// Checks a read or write request, whose data begins at `sector` of the disk and is as long as
/// `segments`. Returns the offset in bytes of its first byte on the disk.
///
/// # Errors
/// Fails with [`Status::IoError`] if there is no segment, if one is empty or not inside its page,
/// or if the sectors are not inside a disk of `disk_bytes`.
pub fn extent(sector: u64, segments: &[Segment], disk_bytes: u64) -> Result<u64, Status> {
    let sound = |s: &Segment| s.first <= s.last && s.last < PAGE_SECTORS;
    if segments.is_empty() || !segments.iter().all(sound) {
        return Err(Status::IoError);
    }
    // At most 256 segments of 4096 bytes: the sum cannot overflow.
    let bytes: u64 = segments.iter().map(|s| u64::from(s.bytes())).sum();
    range(sector, bytes / SECTOR_BYTES, disk_bytes).map(|(offset, _)| offset)
}

/// Returns the offset and the length in bytes of `sectors` sectors of the disk from `sector` on.
///
/// # Errors
/// Fails with [`Status::IoError`] if `sectors` is 0, or the sectors are not inside a disk of
/// `disk_bytes`.
pub fn range(sector: u64, sectors: u64, disk_bytes: u64) -> Result<(u64, u64), Status> {
    let end = sector.checked_add(sectors).ok_or(Status::IoError)?;
    if sectors == 0 || end > disk_bytes / SECTOR_BYTES {
        return Err(Status::IoError);
    }
    Ok((sector * SECTOR_BYTES, sectors * SECTOR_BYTES))
}

/// Makes the bytes of the answer to the request `id`, in the layout of both architectures.
/// `operation` is that of [`Request::operation`].
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
