//! Writes to the disk and reads it back: in both layouts, with segments in the request and in
//! tables, copied and mapped, through one ring and several, and after closing and connecting again.

use crate::Failed;
use crate::gntalloc::Pages;
use crate::session::{PLAIN, Session, Setup};
use ebb_blk::request::SECTOR_BYTES;
use ebb_blk::xen::front::{data, flush, indirect, table_entry};
use ebb_blk::xen::grants::GRANT_BYTES;
use ebb_blk::xen::protocol::{Abi, MAX_INDIRECT_SEGMENTS, MAX_SEGMENTS, SEGMENT_BYTES};
use std::fs::File;
use std::io::Read;

/// Bytes at the beginning of the disk that are written, by requests with tables and by others.
const BYTES: usize = 4 << 20;
const FEWER: usize = 1 << 20;
/// Number of requests under way in each ring.
const DEPTH: usize = 4;
/// Sectors of some segments: whole pages, and parts, so that they do not meet the image's
/// alignment.
const PARTS: [(u8, u8); 4] = [(0, 7), (1, 7), (0, 2), (5, 5)];

/// The place of a request's segments.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// In the request, whole pages.
    Direct,
    /// In the request, whole pages and parts of pages.
    Parts,
    /// In a table of 256.
    Table,
}

impl Shape {
    fn segments(self) -> usize {
        match self {
            Self::Direct | Self::Parts => MAX_SEGMENTS,
            Self::Table => MAX_INDIRECT_SEGMENTS.into(),
        }
    }
}

/// The pages of one request, and its table.
pub(crate) struct Buffer {
    pub(crate) pages: Pages,
    table: Pages,
    shape: Shape,
}

impl Buffer {
    /// Makes the pages and the table of a request.
    pub(crate) fn new(session: &Session, shape: Shape) -> Result<Self, Failed> {
        Ok(Self {
            pages: session.pages(shape.segments())?,
            table: session.pages(1)?,
            shape,
        })
    }

    /// Returns the first and last sectors of the pages for up to `bytes`, and the number of bytes
    /// they hold.
    fn segments(&self, bytes: usize) -> (Vec<(u8, u8)>, usize) {
        let (mut parts, mut sum) = (Vec::new(), 0);
        for page in 0..self.shape.segments() {
            let left = ((bytes - sum) / SECTOR_BYTES as usize) as u8;
            if bytes == sum {
                break;
            }
            let (first, last) = match self.shape {
                Shape::Parts => PARTS[page % PARTS.len()],
                _ => (0, 7),
            };
            let whole = bytes - sum >= GRANT_BYTES;
            let last = if whole {
                last
            } else {
                last.min(first + left - 1)
            };
            parts.push((first, last));
            sum += usize::from(last - first + 1) * SECTOR_BYTES as usize;
        }
        (parts, sum)
    }

    /// Makes a request for up to `bytes` from `sector` on. Returns it with its number of bytes.
    pub(crate) fn request(
        &self,
        (abi, id): (Abi, u64),
        write: bool,
        sector: u64,
        bytes: usize,
    ) -> (Vec<u8>, usize) {
        let (parts, sum) = self.segments(bytes);
        let named = parts.iter().enumerate();
        let named: Vec<_> = named
            .map(|(page, (first, last))| (self.pages.gref(page), *first, *last))
            .collect();
        if self.shape != Shape::Table {
            return (data(abi, write, id, sector, &named), sum);
        }
        for (index, segment) in named.iter().enumerate() {
            self.table
                .fill(index * SEGMENT_BYTES, &table_entry(*segment));
        }
        let table = (self.table.gref(0), named.len() as u16);
        (indirect(abi, write, id, sector, table), sum)
    }

    /// Calls `each` for each segment, with its offset in the pages and its range in `bytes`.
    fn each(&self, bytes: usize, mut each: impl FnMut(usize, std::ops::Range<usize>)) {
        let mut at = 0;
        for (page, (first, last)) in self.segments(bytes).0.into_iter().enumerate() {
            let count = usize::from(last - first + 1) * SECTOR_BYTES as usize;
            let offset = page * GRANT_BYTES + usize::from(first) * SECTOR_BYTES as usize;
            each(offset, at..at + count);
            at += count;
        }
    }
}

/// Transfers all of `content` from or to the disk, with `DEPTH` requests at a time in each ring.
fn transfer(
    session: &mut Session,
    write: bool,
    shape: Shape,
    content: &mut [u8],
) -> Result<(), Failed> {
    let rings = session.queues.len();
    let needed = content
        .len()
        .div_ceil(shape.segments() * SECTOR_BYTES as usize);
    let buffers: Result<Vec<_>, _> = (0..needed.min(rings * DEPTH))
        .map(|_| Buffer::new(session, shape))
        .collect();
    let buffers = buffers?;
    let mut at = 0;
    while at < content.len() {
        let mut moved = Vec::new();
        let mut asked = vec![Vec::new(); rings];
        for (number, buffer) in buffers.iter().enumerate() {
            if at == content.len() {
                break;
            }
            let (id, sector) = (session.id(), at as u64 / SECTOR_BYTES);
            let (raw, bytes) = buffer.request((session.abi, id), write, sector, content.len() - at);
            if write {
                buffer.each(bytes, |offset, part| {
                    buffer.pages.fill(offset, &content[at..][part]);
                });
            }
            session.queues[number % rings].ring.put(&raw);
            asked[number % rings].push((id, if write { 1 } else { 0 }, 0));
            moved.push((buffer, at, bytes));
            at += bytes;
        }
        (0..rings).for_each(|ring| session.push(ring));
        for (ring, asked) in asked.iter().enumerate() {
            let answers = session.answers(ring, asked.len())?;
            let answers: Vec<_> = answers
                .iter()
                .map(|a| (a.id, a.operation, a.status))
                .collect();
            if answers != *asked {
                return Err(format!("asked ring {ring} for {asked:?}, got {answers:?}").into());
            }
        }
        if !write {
            for (buffer, from, bytes) in moved {
                let part_of = &mut content[from..from + bytes];
                buffer.each(bytes, |offset, part| {
                    buffer.pages.read(offset, &mut part_of[part])
                });
            }
        }
    }
    Ok(())
}

/// Reads as much as `expected` from the disk. Fails if it differs.
pub(crate) fn compare(session: &mut Session, shape: Shape, expected: &[u8]) -> Result<(), Failed> {
    let mut seen = vec![0; expected.len()];
    transfer(session, false, shape, &mut seen)?;
    match seen.iter().zip(expected).position(|(a, b)| a != b) {
        Some(at) => {
            Err(format!("byte {at} of the disk is not what was written ({shape:?})").into())
        }
        None => Ok(()),
    }
}

/// Returns random bytes.
pub(crate) fn unguessable(bytes: usize) -> Result<Vec<u8>, Failed> {
    let mut content = vec![0; bytes];
    File::open("/dev/urandom")?.read_exact(&mut content)?;
    Ok(content)
}

/// Writes random content, flushes, and reads it back through connected rings. Returns the content.
fn round(session: &mut Session, shape: Shape) -> Result<Vec<u8>, Failed> {
    let bytes = if shape == Shape::Table { BYTES } else { FEWER };
    let mut content = unguessable(bytes)?;
    transfer(session, true, shape, &mut content)?;
    let id = session.id();
    let answer = session.ask(0, &[flush(session.abi, id)])?[0];
    if (answer.id, answer.operation, answer.status) != (id, 3, 0) {
        return Err(format!("a flush was answered by {answer:?}").into());
    }
    compare(session, shape, &content)?;
    Ok(content)
}

/// Writes and reads a few requests on a connected device. Fails if it reads something else.
pub(crate) fn sound(session: &mut Session) -> Result<(), Failed> {
    let mut content = unguessable(MAX_SEGMENTS * GRANT_BYTES)?;
    transfer(session, true, Shape::Direct, &mut content)?;
    compare(session, Shape::Table, &content)
}

/// Does the same on a device that is not connected, and closes it.
pub(crate) fn check(session: &mut Session) -> Result<String, Failed> {
    session.connect(PLAIN)?;
    sound(session)?;
    session.close()?;
    Ok("it came back".into())
}

/// Runs all combinations. Writes the final contents of the disk to `file`.
pub(crate) fn verify(session: &mut Session, file: &str) -> Result<String, Failed> {
    let ways = [
        (Shape::Direct, false, 1, 0),
        (Shape::Parts, false, 1, 4),
        (Shape::Table, false, 4, 2),
        (Shape::Parts, true, 1, 0),
        (Shape::Direct, true, 8, 0),
        (Shape::Table, true, 2, 1),
    ];
    let mut content: Option<Vec<u8>> = None;
    let mut rounds = 0;
    for (shape, persistent, queues, order) in ways {
        for abi in [Abi::X86_64, Abi::X86_32] {
            let setup = Setup {
                abi,
                persistent,
                queues,
                order,
            };
            let in_vain = |error: Failed| format!("{setup:?}, {shape:?}: {error}");
            session.connect(setup).map_err(in_vain)?;
            // The content of the round before, which used another layout.
            if let Some(content) = &content {
                compare(session, shape, content).map_err(in_vain)?;
            }
            content = Some(round(session, shape).map_err(in_vain)?);
            session.close().map_err(in_vain)?;
            rounds += 1;
        }
    }
    std::fs::write(file, content.unwrap_or_default())?;
    // Connects once more, so that the last front-end only reads.
    session.connect(PLAIN)?;
    compare(session, Shape::Direct, &std::fs::read(file)?)?;
    session.close()?;
    Ok(format!("{rounds} rounds, each after coming back"))
}
