//! Builds the ELF image of the vDSO: a shared object of one page, with functions that replace
//! system calls.
//!
//! Loaders look functions up by name and version, in a table of the old kind (`DT_HASH`), which all
//! loaders support. The image has no sections.

use alloc::vec::Vec;

/// Size of an image in bytes.
pub const BYTES: usize = 4096;
/// The name of the shared object.
const NAME: &str = "linux-vdso.so.1";
/// The version of all functions.
const VERSION: &str = "LINUX_2.6";

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const PF_R: u32 = 4;

/// A function of the vDSO: its name, and its range of bytes relative to the beginning of the code.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// Name of the function, without `__vdso_`.
    pub name: &'a str,
    /// Offset of its first byte.
    pub start: usize,
    /// Offset after its last byte.
    pub end: usize,
}

/// Builds the image with the machine code `code`, which contains `functions`. The functions must
/// not use the stack. Returns the image and the offset of the code in the image.
///
/// Returns `None` if memory is short or the image does not fit in a page.
pub fn image(code: &[u8], functions: &[Function<'_>]) -> Option<(Vec<u8>, usize)> {
    // Offsets are known only after everything was written, so the image is written twice.
    let mut places = Places::default();
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(BYTES).ok()?;
    for _ in 0..2 {
        bytes.clear();
        places = Writer {
            bytes: &mut bytes,
            room: BYTES,
        }
        .write(code, functions, &places)?;
    }
    bytes.resize(BYTES, 0);
    Some((bytes, places.code))
}

/// Offsets in the image, which are also addresses in it.
#[derive(Copy, Clone, Debug, Default)]
struct Places {
    hash: usize,
    symbols: usize,
    strings: usize,
    string_bytes: usize,
    versions: usize,
    definitions: usize,
    dynamic: usize,
    dynamic_bytes: usize,
    frame_header: usize,
    frames: usize,
    description: usize,
    code: usize,
    end: usize,
}

/// Returns the hash of `name`, given in two parts, for `DT_HASH` and for versions.
fn hash_of(name: [&str; 2]) -> u32 {
    let bytes = name.into_iter().flat_map(str::bytes);
    bytes.fold(0, |hash: u32, c| {
        let sum = (hash << 4).wrapping_add(u32::from(c));
        let high = sum & 0xf000_0000;
        (sum ^ high >> 24) & !high
    })
}

/// Offsets of names that are stored one after another, each with a NUL.
#[derive(Default)]
struct Names {
    bytes: usize,
}

impl Names {
    /// Returns the offset of the next name, which has `length` bytes.
    fn next(&mut self, length: usize) -> u32 {
        let at = self.bytes;
        self.bytes += length + 1;
        u32::try_from(at).unwrap_or(u32::MAX)
    }
}

/// Prefixes of every function's two names: the one that loaders look up, and a weak one.
const PREFIXES: [&str; 2] = ["__vdso_", ""];

struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    room: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        if bytes.len() > self.room - self.bytes.len() {
            return None;
        }
        self.bytes.extend_from_slice(bytes);
        Some(())
    }

    fn half(&mut self, value: u16) -> Option<()> {
        self.put(&value.to_le_bytes())
    }

    fn word(&mut self, value: u32) -> Option<()> {
        self.put(&value.to_le_bytes())
    }

    fn long(&mut self, value: usize) -> Option<()> {
        self.put(&(value as u64).to_le_bytes())
    }

    /// Writes the distance in bytes from the offset `base` to the offset `to`. If `base` is `None`,
    /// writes the distance from the place where it is written. Returns `None` if the image has no
    /// room.
    fn relative(&mut self, to: usize, base: Option<usize>) -> Option<()> {
        let from = base.unwrap_or(self.bytes.len());
        let distance = i32::try_from(to.cast_signed().wrapping_sub(from.cast_signed())).ok()?;
        self.put(&distance.to_le_bytes())
    }

    /// Pads with zeros up to a multiple of `to`. Returns the offset there, or `None` if the image
    /// has no room.
    fn align(&mut self, to: usize) -> Option<usize> {
        let at = self.bytes.len();
        self.put(&[0; 16][..at.next_multiple_of(to) - at])?;
        Some(self.bytes.len())
    }

    fn write(mut self, code: &[u8], functions: &[Function<'_>], known: &Places) -> Option<Places> {
        self.headers(known)?;
        let mut places = Places {
            hash: self.align(8)?,
            ..Places::default()
        };
        self.hash_table(functions)?;
        places.symbols = self.align(8)?;
        let mut names = self.symbols(functions, known)?;
        let (object, version) = (names.next(NAME.len()), names.next(VERSION.len()));
        places.strings = self.align(8)?;
        self.strings(functions)?;
        places.string_bytes = self.bytes.len() - places.strings;
        places.versions = self.align(8)?;
        self.half(0)?;
        for _ in 0..functions.len() * PREFIXES.len() {
            self.half(2)?;
        }
        places.definitions = self.align(8)?;
        self.definition(NAME, object, 1, false)?;
        self.definition(VERSION, version, 2, true)?;
        places.dynamic = self.align(8)?;
        self.dynamic(known, object)?;
        places.dynamic_bytes = self.bytes.len() - places.dynamic;
        places.frame_header = self.align(8)?;
        self.frame_header(known)?;
        places.frames = self.align(8)?;
        places.description = self.frames(known)?;
        places.code = self.align(16)?;
        self.put(code)?;
        places.end = self.bytes.len();
        Some(places)
    }

    fn headers(&mut self, known: &Places) -> Option<()> {
        const ET_DYN: u16 = 3;
        const EM_X86_64: u16 = 62;
        let segments = [
            (PT_LOAD, PF_R | PF_X, 0, known.end, 4096),
            (PT_DYNAMIC, PF_R, known.dynamic, known.dynamic_bytes, 8),
            (
                PT_GNU_EH_FRAME,
                PF_R,
                known.frame_header,
                known.frames.saturating_sub(known.frame_header),
                4,
            ),
        ];
        // 64 bits, little-endian, current version, System V.
        self.put(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0")?;
        self.half(ET_DYN)?;
        self.half(EM_X86_64)?;
        self.word(1)?;
        self.long(0)?;
        self.long(crate::elf::HEADER_BYTES)?;
        self.long(0)?;
        self.word(0)?;
        self.half(64)?;
        self.half(56)?;
        self.half(3)?;
        // There are no sections.
        for size in [64, 0, 0] {
            self.half(size)?;
        }
        for (kind, flags, at, bytes, align) in segments {
            self.word(kind)?;
            self.word(flags)?;
            for value in [at, at, at, bytes, bytes, align] {
                self.long(value)?;
            }
        }
        Some(())
    }

    /// Returns the names of all symbols for `functions` in order. Each name has two parts: the
    /// prefix and the name of the function.
    fn names<'a>(functions: &'a [Function<'a>]) -> impl Iterator<Item = [&'a str; 2]> {
        functions
            .iter()
            .flat_map(|function| PREFIXES.map(|prefix| [prefix, function.name]))
    }

    /// Writes the hash table of the symbols for `functions`, with one bucket for each symbol. A
    /// symbol's chain continues with the symbol before it in its bucket. Returns `None` if the
    /// image has no room.
    fn hash_table(&mut self, functions: &[Function<'_>]) -> Option<()> {
        let count = u32::try_from(functions.len() * PREFIXES.len()).ok()?;
        let buckets = count.max(1);
        let bucket_of = |[prefix, name]: [&str; 2]| hash_of([prefix, name]) % buckets;
        self.word(buckets)?;
        self.word(count + 1)?;
        for bucket in 0..buckets {
            let last = Self::names(functions)
                .zip(1..)
                .filter(|(name, _)| bucket_of(*name) == bucket)
                .last();
            self.word(last.map_or(0, |(_, number)| number))?;
        }
        self.word(0)?;
        for (name, number) in Self::names(functions).zip(1_u32..) {
            let before = Self::names(functions)
                .zip(1..number)
                .filter(|(other, _)| bucket_of(*other) == bucket_of(name))
                .last();
            self.word(before.map_or(0, |(_, other)| other))?;
        }
        Some(())
    }

    fn symbols(&mut self, functions: &[Function<'_>], known: &Places) -> Option<Names> {
        const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;
        const WEAK_FUNCTION: u8 = 2 << 4 | 2;
        let mut names = Names { bytes: 1 };
        self.put(&[0; 24])?;
        for function in functions {
            for prefix in PREFIXES {
                self.word(names.next(prefix.len() + function.name.len()))?;
                let weak = prefix.is_empty();
                self.put(&[if weak { WEAK_FUNCTION } else { GLOBAL_FUNCTION }, 0])?;
                // The symbol is defined in some section; its number has no meaning here.
                self.half(1)?;
                self.long(known.code + function.start)?;
                self.long(function.end - function.start)?;
            }
        }
        Some(names)
    }

    fn strings(&mut self, functions: &[Function<'_>]) -> Option<()> {
        self.put(&[0])?;
        for [prefix, name] in Self::names(functions).chain([["", NAME], ["", VERSION]]) {
            self.put(prefix.as_bytes())?;
            self.put(name.as_bytes())?;
            self.put(&[0])?;
        }
        Some(())
    }

    /// Writes the version with this `number` and `name`. `at` is the offset of the name in the
    /// string table. Version 1 is the object's own. `last` says that no version follows. Returns
    /// `None` if the image has no room.
    fn definition(&mut self, name: &str, at: u32, number: u16, last: bool) -> Option<()> {
        const BASE: u16 = 1;
        const BYTES: u32 = 20;
        const NAME_BYTES: u32 = 8;
        self.half(1)?;
        self.half(if number == 1 { BASE } else { 0 })?;
        self.half(number)?;
        self.half(1)?;
        self.word(hash_of([name, ""]))?;
        self.word(BYTES)?;
        self.word(if last { 0 } else { BYTES + NAME_BYTES })?;
        self.word(at)?;
        self.word(0)
    }

    fn dynamic(&mut self, known: &Places, object: u32) -> Option<()> {
        const SYMBOL_BYTES: usize = 24;
        let entries = [
            // DT_SONAME, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT
            (14, object as usize),
            (4, known.hash),
            (5, known.strings),
            (6, known.symbols),
            (10, known.string_bytes),
            (11, SYMBOL_BYTES),
            // DT_VERSYM, DT_VERDEF, DT_VERDEFNUM
            (0x6fff_fff0, known.versions),
            (0x6fff_fffc, known.definitions),
            (0x6fff_fffd, 2),
            (0, 0),
        ];
        for (tag, value) in entries {
            self.long(tag)?;
            self.long(value)?;
        }
        Some(())
    }

    /// Writes the header (`.eh_frame_hdr`) by which an unwinder finds the only description of
    /// frames, whose offset is in `known`. Returns `None` if the image has no room.
    fn frame_header(&mut self, known: &Places) -> Option<()> {
        // Version; the pointer is relative to itself, the count absolute, the table relative to
        // this header.
        self.put(&[1, 0x1b, 0x03, 0x3b])?;
        let start = self.bytes.len() - 4;
        self.relative(known.frames, None)?;
        self.word(1)?;
        self.relative(known.code, Some(start))?;
        self.relative(known.description, Some(start))
    }

    /// Writes the description of frames (`.eh_frame`) for the code whose offsets are in `known`:
    /// only the return address is on the stack. Returns the offset of the entry for the code, or
    /// `None` if the image has no room.
    fn frames(&mut self, known: &Places) -> Option<usize> {
        let start = self.bytes.len();
        // Common: version 1, "zR", addresses in steps of 1 and of -8, the return address is column
        // 16, addresses are relative. The frame is 8 bytes above the stack pointer, and the return
        // address 8 bytes below the frame.
        let common = [
            1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
        ];
        self.word(u32::try_from(common.len() + 4).ok()?)?;
        self.word(0)?;
        self.put(&common)?;
        let description = self.bytes.len();
        self.word(16)?;
        self.word(u32::try_from(self.bytes.len() - start).ok()?)?;
        self.relative(known.code, None)?;
        self.word(u32::try_from(known.end.saturating_sub(known.code)).ok()?)?;
        self.word(0)?;
        // The terminator.
        self.word(0)?;
        Some(description)
    }
}
