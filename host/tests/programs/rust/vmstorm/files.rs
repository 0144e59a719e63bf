//! The files that all actors change: who may write which words, and their content after the last
//! check.

use crate::control::{self, ACTORS};
use crate::journal::{self, Kind, Record, Span};
use crate::random::Random;
use crate::sys::{self, PAGE, PAGE_WORDS};
use std::ffi::{CStr, CString, c_int};
use std::ops::Range;

/// The position of fields in a word's value. The number of the word is in the lowest bits.
const FILE_SHIFT: u32 = 20;
const ACTOR_SHIFT: u32 = 24;
const RECORD_SHIFT: u32 = 30;
const ROUND_SHIFT: u32 = 40;
/// A bit that makes every written word non-zero.
const WRITTEN: u64 = 1 << 63;

/// The kind of a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Nature {
    /// A file in memory, which can be cut and extended.
    Memory,
    /// Shared anonymous memory, which has a mapping and no descriptor.
    Anonymous,
    /// A disk, which has a fixed size.
    Disk,
}

/// One file.
#[derive(Debug)]
pub struct File {
    pub number: usize,
    pub nature: Nature,
    pub fd: c_int,
    /// A descriptor for reads that bypass the page cache, if that is possible.
    pub direct: Option<c_int>,
    pub pages: u64,
    /// The address of a mapping that every process has.
    pub view: u64,
    /// The address of the content after the last check, which all processes share.
    settled: u64,
}

impl File {
    fn new(number: usize, nature: Nature, fd: c_int, pages: u64) -> Self {
        let anonymous = sys::MAP_SHARED | sys::MAP_ANONYMOUS;
        let place = |row: u64| 0x1800_0000_0000 + (row << 32) + number as u64 * (64 << 20);
        let fixed = sys::MAP_FIXED_NOREPLACE;
        let view = match nature {
            Nature::Anonymous => sys::map(
                place(0),
                pages * PAGE,
                sys::PROT_BOTH,
                anonymous | fixed,
                -1,
                0,
            ),
            _ => {
                let flags = sys::MAP_SHARED | fixed;
                sys::map(place(0), pages * PAGE, sys::PROT_BOTH, flags, fd, 0)
            }
        };
        let settled = sys::map(
            place(1),
            pages * PAGE,
            sys::PROT_BOTH,
            anonymous | fixed,
            -1,
            0,
        );
        Self {
            number,
            nature,
            fd,
            direct: None,
            pages,
            view: view.expect("a mapping of a new file"),
            settled: settled.expect("memory for what a file shows"),
        }
    }

    /// Returns the full length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.pages * PAGE
    }

    /// Returns the current length of the file in bytes.
    pub fn size(&self) -> u64 {
        if self.nature == Nature::Memory {
            sys::size(self.fd).unwrap_or_else(|e| {
                control::fail(&format!("the size of file {}: error {e}", self.number))
            })
        } else {
            self.bytes()
        }
    }

    /// Returns the words of a page after the last check.
    pub fn settled(&self, page: u64) -> &[u64] {
        let at = self.settled + page * PAGE;
        // SAFETY: the page is in the mapping, which changes only between barriers, while no other
        // actor reads it.
        unsafe { std::slice::from_raw_parts(at as *const u64, PAGE_WORDS) }
    }

    /// Sets the expected words of a page for the following rounds.
    pub fn settle(&self, page: u64, words: &[u64]) {
        crate::guard::read(words.as_ptr() as u64, unsafe {
            // SAFETY: as in `settled`. Only one actor calls this.
            std::slice::from_raw_parts_mut((self.settled + page * PAGE) as *mut u64, PAGE_WORDS)
        });
    }

    /// Reads a page with a system call. Returns the number of words up to the end of the file.
    pub fn read_page(&self, page: u64, words: &mut [u64]) -> usize {
        if self.nature == Nature::Anonymous {
            return crate::guard::read(self.view + page * PAGE, words);
        }
        let to = words.as_mut_ptr() as u64;
        match sys::read_at(self.fd, to, PAGE, page * PAGE) {
            Ok(bytes) => bytes as usize / 8,
            Err(e) => control::fail(&format!(
                "read of page {page}, file {}: error {e}",
                self.number
            )),
        }
    }

    /// Returns the two parts of a page in a round with shared pages: the first words, and the rest.
    pub fn parts(&self, page: u64) -> [Range<u64>; 2] {
        let start = page * PAGE_WORDS as u64;
        let border =
            start + 8 * (1 + control::random_of_round(page).below(PAGE_WORDS as u64 / 8 - 1));
        [start..border, border..start + PAGE_WORDS as u64]
    }

    /// Returns words that only this actor may write in this round, or `None` if there are none.
    /// Each page is divided into parts with different owners.
    pub fn own_words(
        &self,
        random: &mut Random,
        actor: usize,
        actors: usize,
    ) -> Option<Range<u64>> {
        let mut plan = control::random_of_round(self.number as u64);
        let (actor, actors) = (actor as u64, actors as u64);
        let turn = plan.below(actors);
        let pages = 1 << plan.below(6);
        let pieces = self.pages / pages;
        // The parts `first`, `first + actors` and so on belong to the actor.
        let first = (actor + actors - turn) % actors;
        if first >= pieces {
            return None;
        }
        let piece = first + actors * random.below((pieces - first).div_ceil(actors));
        let words = PAGE_WORDS as u64;
        let start = piece * pages * words;
        let long = random.once_in(2);
        let from = if long { 0 } else { random.below(pages * words) };
        let length = if long {
            pages * words
        } else {
            1 + random.below(64)
        };
        Some(start + from..start + (from + length).min(pages * words))
    }

    /// Returns the value, without the word number, for the next words that an actor writes.
    pub fn tag(&self, actor: usize) -> u64 {
        let round = control::round();
        let record = control::desk(actor).journal.len() as u64;
        WRITTEN
            | (round & 0x7f_ffff) << ROUND_SHIFT
            | record << RECORD_SHIFT
            | (actor as u64) << ACTOR_SHIFT
            | (self.number as u64) << FILE_SHIFT
    }

    /// Records an operation that began at `start` and ends now.
    pub fn note(&self, actor: usize, kind: Kind, bytes: Range<u64>, perhaps_to: u64, start: u64) {
        let record = Record {
            file: self.number,
            kind,
            bytes: Span {
                start: bytes.start,
                end: bytes.end,
            },
            perhaps_to: perhaps_to.max(bytes.end),
            tag: self.tag(actor),
            start,
            end: control::tick(),
        };
        journal::note(actor, record);
    }
}

/// Describes the fields of a word's value.
pub fn describe(value: u64) -> String {
    if value & WRITTEN == 0 {
        return format!("{value:#x}");
    }
    format!(
        "{value:#x} (word {:#x} of file {}, actor {}, record {}, round {})",
        value & ((1 << FILE_SHIFT) - 1),
        value >> FILE_SHIFT & 0xf,
        value >> ACTOR_SHIFT & (ACTORS as u64 - 1),
        value >> RECORD_SHIFT & 0x3ff,
        value >> ROUND_SHIFT & 0x7f_ffff,
    )
}

/// Creates the files before processes are forked. `disk` is a block device or an ordinary file.
pub fn create(disk: Option<&str>) -> Vec<File> {
    let memory = |number, name: &CStr, pages: u64| {
        let fd = sys::memfd(name).expect("a memfd");
        sys::truncate(fd, pages * PAGE).expect("room in a memfd");
        File::new(number, Nature::Memory, fd, pages)
    };
    let mut files = vec![memory(0, c"small", 16), memory(1, c"large", 1024)];
    let path = CString::new(format!("/tmp/vmstorm-{}", std::process::id())).expect("no zero byte");
    let fd = sys::open_file(&path, sys::O_RDWR | sys::O_CREAT).expect("a file in /tmp");
    sys::unlink_file(&path).expect("it was just made");
    sys::truncate(fd, 128 * PAGE).expect("room in /tmp");
    files.push(File::new(2, Nature::Memory, fd, 128));
    files.push(File::new(3, Nature::Anonymous, -1, 64));
    if let Some(path) = disk {
        let path = CString::new(path).expect("no zero byte");
        let fd = sys::open_file(&path, sys::O_RDWR).expect("the disk");
        const PAGES: u64 = 128;
        assert!(
            sys::size(fd).is_ok_and(|size| size >= PAGES * PAGE),
            "the disk has 512 KiB or more"
        );
        let mut file = File::new(files.len(), Nature::Disk, fd, PAGES);
        let zeroes = vec![0_u8; (PAGES * PAGE) as usize];
        let written = sys::write_at(fd, zeroes.as_ptr() as u64, PAGES * PAGE, 0);
        assert_eq!(written, Ok(PAGES * PAGE), "zeroes on the disk");
        file.direct = sys::open_file(&path, sys::O_RDWR | sys::O_DIRECT).ok();
        files.push(file);
    }
    files
}
