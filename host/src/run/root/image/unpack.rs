//! Decompresses sections into a file without a name, which vanishes with `ebb`.

use super::error::ImageError;
use super::reader_service::ReaderService;
use super::section::Section;
use crate::compressed::Coding;
use std::cell::Cell;
use std::io::{self, Read, Seek, Write};
use std::rc::Rc;

/// The most decompressed bytes of one image, all layers together.
pub(super) const UNPACKED_MAX: u64 = 64 << 30;
/// Number of bytes between two progress messages.
const TOLD_EVERY: u64 = 16 << 20;

/// The most compressed bytes that may be read without any decompressed byte, since padding has no
/// end. A decoder may hold back its window of up to 128 MiB.
const IDLE_MAX: u64 = 192 << 20;

/// A reader of compressed bytes. `idle` counts the bytes read since the decoder last returned one.
struct Busy<R> {
    inner: R,
    idle: Rc<Cell<u64>>,
}

impl<R: Read> Read for Busy<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(to)?;
        self.idle.set(self.idle.get() + count as u64);
        if self.idle.get() > IDLE_MAX {
            return Err(io::Error::other(format!(
                "nothing comes of {} MiB of it",
                IDLE_MAX >> 20
            )));
        }
        Ok(count)
    }
}

/// Returns the compression that the first bytes show. Returns `None` if there is none.
///
/// # Errors
/// Fails for bzip2, which is not supported, and if the section cannot be read.
fn coding_of(section: &Section) -> Result<Option<Coding>, ImageError> {
    let mut first = [0; 6];
    section.read_at(&mut first, 0)?;
    if first.starts_with(b"BZh") {
        return Err(ImageError::Image(
            "it is compressed by bzip2; gzip, zstd and xz are known".into(),
        ));
    }
    Ok(Coding::of_first(first))
}

/// Decompresses `section` by gzip, zstd or xz. Appends the bytes to the file of `service` and
/// returns their section. Returns `section` itself if it is not compressed. Subtracts the number of
/// decompressed bytes from `budget`, and reports progress. `what` is the name for messages.
///
/// # Errors
/// Fails for bzip2, if the bytes cannot be decompressed or exceed `budget`, or if the file cannot
/// be made or written, for example because the host's disk is full.
pub(super) fn unpack(
    section: Section,
    what: &str,
    budget: &mut u64,
    service: &mut dyn ReaderService,
) -> Result<Section, ImageError> {
    let Some(coding) = coding_of(&section)? else {
        return Ok(section);
    };
    let idle = Rc::new(Cell::new(0));
    let reader = Busy {
        inner: section.reader(),
        idle: Rc::clone(&idle),
    };
    let mut reader = coding.reader(io::BufReader::with_capacity(1 << 16, reader));
    let file = service.scratch().map_err(ImageError::Scratch)?;
    let mut end = &*file;
    let from = end
        .seek(io::SeekFrom::End(0))
        .map_err(ImageError::Scratch)?;
    let mut buffer = vec![0; 1 << 18];
    let (mut done, mut told) = (0_u64, 0);
    // Ends, because the sum is bounded.
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => {
                return Err(ImageError::Coding {
                    what: what.to_owned(),
                    source,
                });
            }
        };
        idle.set(0);
        done += count as u64;
        *budget = budget.checked_sub(count as u64).ok_or_else(|| {
            ImageError::Image(format!("{what}: an image of more than 64 GiB, unpacked"))
        })?;
        end.write_all(&buffer[..count])
            .map_err(ImageError::Scratch)?;
        if done - told >= TOLD_EVERY {
            service.progress(what, done);
            told = done;
        }
    }
    Ok(Section::within(&file, from, done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_without_an_end_is_an_error() {
        let idle = Rc::new(Cell::new(0));
        let mut padded = Busy {
            inner: io::repeat(0),
            idle: Rc::clone(&idle),
        };
        let error = io::copy(&mut padded, &mut io::sink()).unwrap_err();
        assert!(error.to_string().contains("192 MiB"), "{error}");
        assert!(idle.get() < IDLE_MAX + (1 << 20));
    }
}
