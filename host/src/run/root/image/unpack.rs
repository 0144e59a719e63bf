//! What is compressed, unpacked into a file that has no name: it goes with ebb, however that ends.

use super::error::ImageError;
use super::section::Section;
use crate::system::new_file;
use crate::text::stderr;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most bytes that come of one image.
pub(super) const UNPACKED_MAX: u64 = 64 << 30;
/// Memory that a decoder may take for what it looks back at: 128 MiB.
const WINDOW_LOG_MAX: u32 = 27;
const XZ_MEMORY_KIB_MAX: u32 = 128 << 10;
/// Work shorter than that is not spoken of.
const SILENCE: Duration = Duration::from_secs(1);

/// How bytes are compressed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Coding {
    Gzip,
    Zstd,
    Xz,
}

impl Coding {
    /// As their first bytes tell.
    fn of(section: &Section) -> Result<Option<Self>, ImageError> {
        let mut first = [0; 6];
        section.read_at(&mut first, 0)?;
        match first {
            [0x1f, 0x8b, ..] => Ok(Some(Self::Gzip)),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Some(Self::Zstd)),
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Ok(Some(Self::Xz)),
            [b'B', b'Z', b'h', ..] => Err(ImageError::Image(
                "it is compressed by bzip2; gzip, zstd and xz are known".into(),
            )),
            _ => Ok(None),
        }
    }
}

/// The bytes as they are when they are not compressed. What they take goes off `budget`.
///
/// # Errors
/// They cannot be unpacked, or the host has no room for them.
pub(super) fn unpack(
    section: Section,
    what: &str,
    budget: &mut u64,
    quiet: bool,
) -> Result<Section, ImageError> {
    let Some(coding) = Coding::of(&section)? else {
        return Ok(section);
    };
    let reader = section.reader();
    let mut reader: Box<dyn Read> = match coding {
        Coding::Gzip => Box::new(flate2::read::MultiGzDecoder::new(
            io::BufReader::with_capacity(1 << 16, reader),
        )),
        Coding::Zstd => {
            let mut decoder = zstd::Decoder::new(reader)?;
            decoder.window_log_max(WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
        Coding::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(
            io::BufReader::with_capacity(1 << 16, reader),
            true,
            XZ_MEMORY_KIB_MAX,
        )),
    };
    let folder = folder();
    let mut file = nameless(&folder).map_err(|source| ImageError::Folder {
        folder: folder.clone(),
        source,
    })?;
    let mut progress = Progress::new(what, quiet);
    let mut buffer = vec![0; 1 << 18];
    let mut done = 0_u64;
    // Ends: the sum is bounded.
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
        done += count as u64;
        *budget = budget.checked_sub(count as u64).ok_or_else(|| {
            ImageError::Image(format!("{what}: an image of more than 64 GiB, unpacked"))
        })?;
        file.write_all(&buffer[..count])
            .map_err(|source| ImageError::Folder {
                folder: folder.clone(),
                source,
            })?;
        progress.show(done);
    }
    Ok(Section::whole(file)?)
}

/// Where large files go for a while.
fn folder() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
}

/// A file without a name.
fn nameless(folder: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok(File::from(file)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    // A file system that has none.
    let (file, path) = new_file(folder, "ebb-image", 0o600)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Says on a terminal how far long work is.
struct Progress<'a> {
    what: &'a str,
    next: Option<Instant>,
    shown: bool,
}

impl<'a> Progress<'a> {
    fn new(what: &'a str, quiet: bool) -> Self {
        let speaks = !quiet && stderr::is_terminal();
        Self {
            what,
            next: speaks.then(|| Instant::now() + SILENCE),
            shown: false,
        }
    }

    fn show(&mut self, done: u64) {
        let now = Instant::now();
        if self.next.is_some_and(|next| now >= next) {
            // Nobody misses it.
            stderr::show(&format!("ebb: unpacks {}: {} MiB", self.what, done >> 20));
            self.shown = true;
            self.next = Some(now + SILENCE / 5);
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.shown {
            stderr::wipe();
        }
    }
}
