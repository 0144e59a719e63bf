//! Files whose text is made record by record as it is read, like Linux's `seq_file`. Only one piece
//! of the text is kept.

use super::file::{File, Seeks};
use super::flags::OpenFlags;
use super::io::ByteSink;
use super::text::{Made, Text};
use alloc::sync::Arc;
use core::fmt;
use logic::errno::{Errno, SysResult};
use machine::sched;
use machine::sync::Mutex;

/// The number of bytes after which a piece ends. The record that reaches it belongs to the piece.
const PIECE: usize = 4000;

/// The content of a file whose text is made record by record.
pub trait Records: Send + Sync {
    /// Adds the first record at or behind position `at` to `text`. Positions are the implementer's
    /// own; the first is 0. Returns the position behind the record, or `None` if no record is left.
    ///
    /// # Errors
    /// Fails if `text` refuses the record.
    fn show_next(&self, text: &mut Text, at: u64) -> Result<Option<u64>, fmt::Error>;
}

/// The piece of the text that was made last.
struct Piece {
    /// The offset of the piece in the text, in bytes.
    start: u64,
    text: Made,
    /// The position of the first record after the piece. `None` if the text ends with the piece.
    next: Option<u64>,
}

impl Piece {
    const fn first() -> Self {
        Self {
            start: 0,
            text: Made::empty(),
            next: Some(0),
        }
    }

    /// Makes the next piece of the text. Returns `false`, and keeps the present piece, if that is
    /// the last. Fails with the error that stopped the writing, and with `ENOMEM`.
    fn advance(&mut self, records: &dyn Records) -> Result<bool, Errno> {
        let Some(mut at) = self.next else {
            return Ok(false);
        };
        let mut text = Text::new();
        let mut written = Ok(());
        let mut next = None;
        while text.len() < PIECE {
            match records.show_next(&mut text, at) {
                Ok(Some(behind)) => (at, next) = (behind, Some(behind)),
                Ok(None) => {
                    next = None;
                    break;
                }
                Err(error) => {
                    written = Err(error);
                    break;
                }
            }
        }
        let text = text.finish(written)?;
        self.start += self.text.len() as u64;
        (self.text, self.next) = (text, next);
        Ok(true)
    }
}

/// An open file whose text a [`Records`] makes.
pub struct RecordFile {
    records: Arc<dyn Records>,
    piece: Mutex<Piece>,
}

impl RecordFile {
    /// Opens a file that shows `records`.
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self {
            records,
            piece: Mutex::new(Piece::first()),
        }
    }
}

impl File for RecordFile {
    fn read(&self, to: &mut dyn ByteSink, offset: &mut u64, _: OpenFlags) -> SysResult {
        let mut piece = self.piece.lock();
        // A read from the start, or of a part before the piece, makes the text again.
        if *offset == 0 || *offset < piece.start {
            *piece = Piece::first();
        }
        let mut done = 0;
        // Each turn passes a piece, ends, or stores bytes in `to`.
        loop {
            let at = usize::try_from(*offset - piece.start).unwrap_or(usize::MAX);
            let rest = piece.text.from(at);
            if rest.is_empty() {
                // `done` bytes have been delivered. The next read gets the rest.
                let moved_on = if sched::current().killed() {
                    Err(Errno::EINTR)
                } else {
                    piece.advance(&*self.records)
                };
                match moved_on {
                    Ok(true) => continue,
                    Ok(false) => break,
                    Err(error) if done == 0 => return Err(error),
                    Err(_) => break,
                }
            }
            let wanted = rest.len();
            let moved = match to.put(rest) {
                Ok(moved) => moved,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            done += moved;
            *offset += moved as u64;
            if moved < wanted || to.room() == 0 {
                break;
            }
            sched::cond_resched();
        }
        Ok(done)
    }

    fn seeks(&self) -> Seeks {
        Seeks::Anywhere
    }

    fn has_end(&self) -> bool {
        false
    }
}
