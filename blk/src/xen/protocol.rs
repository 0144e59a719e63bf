//! blkif requests as they lie in a ring: pure functions over bytes that a front-end wrote. The
//! bytes were copied out of the shared ring before they come here.
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
/// Bytes of an answer that mean something, in both layouts.
pub const RESPONSE_BYTES: usize = 12;
/// Segments in the request itself.
pub const MAX_SEGMENTS: usize = 11;
/// Segments by way of a table. Half of what one page of it holds.
pub const MAX_INDIRECT_SEGMENTS: u16 = 256;
/// Bytes of a segment, in the request and in a table.
pub const SEGMENT_BYTES: usize = 8;

const OP_READ: u8 = 0;
const OP_WRITE: u8 = 1;
const OP_FLUSH: u8 = 3;
const OP_DISCARD: u8 = 5;
const OP_INDIRECT: u8 = 6;
const DISCARD_SECURE: u8 = 1;

/// [`SECTOR_BYTES`], as offsets in a page are counted.
const SECTOR: u16 = 512;
/// Sectors of a granted page.
const PAGE_SECTORS: u8 = 8;

const _: () = assert!(SECTOR as u64 == SECTOR_BYTES);
const _: () = assert!(PAGE_SECTORS as usize * SECTOR as usize == GRANT_BYTES);
const _: () = assert!(MAX_INDIRECT_SEGMENTS as usize * SEGMENT_BYTES <= GRANT_BYTES);

/// How a front-end's compiler lays requests out.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Abi {
    /// 64-bit numbers at multiples of 8. Also Arm's.
    X86_64,
    /// 64-bit numbers at multiples of 4.
    X86_32,
}

impl Abi {
    /// By what the front-end's `protocol` says; without it, that of this machine.
    pub fn named(protocol: Option<&str>) -> Option<Self> {
        match protocol {
            None | Some("x86_64-abi" | "arm-abi") => Some(Self::X86_64),
            Some("x86_32-abi") => Some(Self::X86_32),
            Some(_) => None,
        }
    }

    /// Bytes from one entry of a ring to the next.
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

/// Sectors of a granted page.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The page.
    pub grant: GrantRef,
    /// First sector in it.
    pub first: u8,
    /// Last sector in it.
    pub last: u8,
}

impl Segment {
    /// Bytes of it.
    pub fn bytes(self) -> u16 {
        let sectors = u16::from(self.last.saturating_sub(self.first)) + 1;
        sectors * SECTOR
    }

    /// First byte in its page.
    pub fn offset(self) -> u16 {
        u16::from(self.first) * SECTOR
    }
}

/// What is asked for. Nothing is checked but what it takes to tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Sectors to or from granted pages.
    Data {
        /// Whether from the pages to the disk.
        write: bool,
        /// First sector of the disk.
        sector: u64,
        /// The pages.
        segments: Vec<Segment>,
    },
    /// The same, with the segments in a granted page.
    Indirect {
        /// Whether from the pages to the disk.
        write: bool,
        /// First sector of the disk.
        sector: u64,
        /// How many segments, 1 to [`MAX_INDIRECT_SEGMENTS`].
        segments: u16,
        /// Where they are.
        table: GrantRef,
    },
    /// What was written is to be on the medium.
    Flush,
    /// Sectors that are not needed any more.
    Discard {
        /// First of them.
        sector: u64,
        /// How many.
        sectors: u64,
    },
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The front-end's own name for it.
    pub id: u64,
    /// What the answer is to name: for an indirect request, the operation inside of it. Linux's
    /// front-end takes any other for an attack and gives the disk up.
    pub operation: u8,
    /// What is asked for, or how it is to be answered.
    pub body: Result<Body, Status>,
}

fn number<const N: usize>(raw: &[u8], at: usize) -> [u8; N] {
    // Offsets are those of the table above: all of them lie inside.
    let mut bytes = [0; N];
    bytes.copy_from_slice(&raw[at..at + N]);
    bytes
}

/// Understands a request.
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
        // Data behind a flush is allowed for by the letter; no driver is known to send any.
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

/// The first `count` segments of `table`, as many as it holds.
pub fn segments(table: &[u8], count: usize) -> Vec<Segment> {
    let (entries, _) = table.as_chunks::<SEGMENT_BYTES>();
    let entry = |raw: &[u8; SEGMENT_BYTES]| Segment {
        grant: GrantRef(u32::from_le_bytes(number(raw, 0))),
        first: raw[4],
        last: raw[5],
    };
    entries.iter().take(count).map(entry).collect()
}

/// Where on a disk of `disk_bytes` the sectors from `sector` begin that fill `segments`. An error
/// if a segment runs backwards or out of its page, or the sectors off the disk.
///
/// # Errors
/// The status by which it is to be answered.
pub fn extent(sector: u64, segments: &[Segment], disk_bytes: u64) -> Result<u64, Status> {
    let sound = |s: &Segment| s.first <= s.last && s.last < PAGE_SECTORS;
    if segments.is_empty() || !segments.iter().all(sound) {
        return Err(Status::IoError);
    }
    // At most 256 segments of 4096 bytes: the sum cannot overflow.
    let bytes: u64 = segments.iter().map(|s| u64::from(s.bytes())).sum();
    range(sector, bytes / SECTOR_BYTES, disk_bytes).map(|(offset, _)| offset)
}

/// First byte and length of `sectors` from `sector`, inside of a disk of `disk_bytes`.
///
/// # Errors
/// The status by which it is to be answered.
pub fn range(sector: u64, sectors: u64, disk_bytes: u64) -> Result<(u64, u64), Status> {
    let end = sector.checked_add(sectors).ok_or(Status::IoError)?;
    if sectors == 0 || end > disk_bytes / SECTOR_BYTES {
        return Err(Status::IoError);
    }
    Ok((sector * SECTOR_BYTES, sectors * SECTOR_BYTES))
}

/// An answer as it lies in a ring, in both layouts.
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
