//! Parses the headers of a tar archive. Contents of files are not read, only their offsets are
//! noted.

use super::error::ImageError;
use super::section::Section;
use tar::{EntryType, Header, PaxExtensions};

const BLOCK: u64 = 512;
/// The most bytes of a long name or an extended header.
const EXTENSION_MAX: u64 = 1 << 20;
/// The most extended headers before one entry.
const EXTENSIONS_MAX: usize = 16;
/// Number of bytes of a name that an error shows.
const SHOWN_MAX: usize = 256;

/// An entry of a tar archive.
#[derive(Debug)]
pub(super) struct Entry {
    /// The path as the archive has it.
    pub(super) name: Vec<u8>,
    pub(super) kind: EntryType,
    /// The target of a symbolic or hard link, otherwise empty.
    pub(super) link: Vec<u8>,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) seconds: i64,
    pub(super) nanos: u32,
    /// The bytes of the file.
    pub(super) content: Section,
}

impl Entry {
    /// Returns an error with the reason `why` that names this entry.
    pub(super) fn refuse(&self, why: impl Into<String>) -> ImageError {
        refuse(&self.name, why)
    }
}

/// Returns an error with the reason `why` that names the entry `name`. A name of more than 256
/// bytes is cut.
pub(super) fn refuse(name: &[u8], why: impl Into<String>) -> ImageError {
    let mut shown = name[..name.len().min(SHOWN_MAX)].escape_ascii().to_string();
    if name.len() > SHOWN_MAX {
        shown.push('…');
    }
    ImageError::Entry {
        name: shown,
        why: why.into(),
    }
}

/// A parser of the entries of a tar archive, one after the other.
#[derive(Debug)]
pub(super) struct Entries {
    archive: Section,
    at: u64,
}

/// The values of extended headers for the next entry.
#[derive(Default)]
struct Extended {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
    time: Option<(i64, u32)>,
    sparse: bool,
}

/// Returns whether the 512 bytes `block` are the header of an entry, which is whether its checksum
/// is right.
pub(super) fn is_head(block: &[u8; 512]) -> bool {
    let header = Header::from_byte_slice(block);
    let sum = |range: &[u8]| range.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    let own = sum(&block[..148]) + 8 * 32 + sum(&block[156..]);
    header.cksum().is_ok_and(|said| said == own)
}

impl Entries {
    /// Creates a parser that begins with the first entry of `archive`.
    pub(super) fn of(archive: Section) -> Self {
        Self { archive, at: 0 }
    }

    /// Returns the next entry, and `None` at the end of the archive. Applies the extended headers
    /// before the entry (long names, pax) to it, and adds their bytes to `extensions`.
    ///
    /// # Errors
    /// Fails if the archive is malformed or cut off, if the entry is sparse or has too many or too
    /// long extended headers, or if `extensions` exceeds `most` bytes.
    pub(super) fn next(
        &mut self,
        extensions: &mut u64,
        most: u64,
    ) -> Result<Option<Entry>, ImageError> {
        let mut extended = Extended::default();
        for _ in 0..=EXTENSIONS_MAX {
            let mut block = [0; 512];
            let start = self.at;
            let count = self.archive.read_at(&mut block, start)?;
            // Like tar itself, this accepts an archive without two empty blocks at its end.
            if count == 0 || block.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            if count < block.len() || !is_head(&block) {
                return Err(ImageError::Broken { at: start });
            }
            let header = Header::from_byte_slice(&block);
            let name = extended
                .name
                .clone()
                .unwrap_or_else(|| header.path_bytes().into_owned());
            let kind = header.entry_type();
            let has_content = !matches!(
                kind,
                EntryType::Link
                    | EntryType::Symlink
                    | EntryType::Char
                    | EntryType::Block
                    | EntryType::Directory
                    | EntryType::Fifo
            );
            let size = header.entry_size();
            let size = size.map_err(|_| refuse(&name, "its size is no number"))?;
            let size = extended.size.unwrap_or(size);
            let size = if has_content { size } else { 0 };
            let content = self.archive.piece(start + BLOCK, size);
            let content = content.ok_or_else(|| {
                refuse(
                    &name,
                    format!("it has {size} bytes, and the archive ends before"),
                )
            })?;
            // No overflow: it is at most a block behind the archive's end.
            self.at = start + BLOCK + size.next_multiple_of(BLOCK);
            if matches!(
                kind,
                EntryType::GNULongName | EntryType::GNULongLink | EntryType::XHeader
            ) {
                *extensions += size;
                if *extensions > most {
                    return Err(refuse(
                        &name,
                        format!("the extensions up to it have more than {most} bytes"),
                    ));
                }
            }
            match kind {
                EntryType::GNULongName => extended.name = Some(text(&name, &content)?),
                EntryType::GNULongLink => extended.link = Some(text(&name, &content)?),
                EntryType::XHeader => extended.read(&name, &content)?,
                EntryType::XGlobalHeader => {}
                _ => return extended.entry(header, name, kind, content).map(Some),
            }
        }
        Err(refuse(
            &extended.name.unwrap_or_default(),
            format!("more than {EXTENSIONS_MAX} extensions are before it"),
        ))
    }
}

/// Reads all bytes of an extended header.
fn bytes(name: &[u8], content: &Section) -> Result<Vec<u8>, ImageError> {
    if content.len() > EXTENSION_MAX {
        return Err(refuse(
            name,
            format!("an extension of {} bytes", content.len()),
        ));
    }
    let mut bytes = vec![0; usize::try_from(content.len()).unwrap_or(0)];
    let count = content.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

fn text(name: &[u8], content: &Section) -> Result<Vec<u8>, ImageError> {
    let mut bytes = bytes(name, content)?;
    if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(end);
    }
    Ok(bytes)
}

/// Parses a time, `SECONDS[.FRACTION]`, as seconds and nanoseconds. Returns `None` if it is
/// malformed.
fn time(text: &str) -> Option<(i64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    Some((whole.parse().ok()?, digits.parse().ok()?))
}

impl Extended {
    fn read(&mut self, name: &[u8], content: &Section) -> Result<(), ImageError> {
        let bytes = bytes(name, content)?;
        for extension in PaxExtensions::new(&bytes) {
            let bad = || refuse(name, "its extended header cannot be read");
            let extension = extension.map_err(|_| bad())?;
            let value = extension.value_bytes();
            let number = || {
                let text = std::str::from_utf8(value).ok();
                text.and_then(|text| text.parse().ok()).ok_or_else(bad)
            };
            match extension.key_bytes() {
                b"path" => self.name = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(number()?),
                b"uid" => self.uid = Some(number()?),
                b"gid" => self.gid = Some(number()?),
                b"mtime" => self.time = std::str::from_utf8(value).ok().and_then(time),
                key => self.sparse |= key.starts_with(b"GNU.sparse."),
            }
        }
        Ok(())
    }

    fn entry(
        self,
        header: &Header,
        name: Vec<u8>,
        kind: EntryType,
        content: Section,
    ) -> Result<Entry, ImageError> {
        if self.sparse || kind == EntryType::GNUSparse {
            return Err(refuse(&name, "it is sparse; pack it without tar's -S"));
        }
        let bad = |what| {
            let name = &name;
            move |_| refuse(name, format!("its {what} is no number"))
        };
        let owner = |given: Option<u64>, own| {
            let number = match given {
                Some(number) => number,
                None => own?,
            };
            // Linux shows a number that does not fit in the same way.
            Ok::<_, std::io::Error>(u32::try_from(number).unwrap_or(65534))
        };
        let link = match self.link {
            Some(link) => link,
            None => header.link_name_bytes().unwrap_or_default().into_owned(),
        };
        let (seconds, nanos) = match self.time {
            Some(time) => time,
            None => (header.mtime().map_err(bad("time"))?.cast_signed(), 0),
        };
        Ok(Entry {
            kind,
            link,
            mode: header.mode().map_err(bad("mode"))? & 0o7777,
            uid: owner(self.uid, header.uid()).map_err(bad("owner"))?,
            gid: owner(self.gid, header.gid()).map_err(bad("group"))?,
            seconds,
            nanos,
            content,
            name,
        })
    }
}
