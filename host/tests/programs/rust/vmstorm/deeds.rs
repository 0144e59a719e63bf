//! The operations of an actor on files. Each one is recorded in its journal.

use crate::actor::{Actor, BUFFER_PAGES};
use crate::areas::Source;
use crate::control;
use crate::files::{File, Nature};
use crate::guard;
use crate::journal::{Kind, RECORDS};
use crate::log;
use crate::sys::{self, PAGE, PAGE_WORDS};
use std::ops::Range;

/// How often an actor that waits for a cut reads the file's size before it stops waiting.
const SIGHTS: u32 = 3000;

impl Actor {
    /// Returns whether the journal has space for the records of one operation.
    pub fn may_do(&self) -> bool {
        control::desk(self.id).journal.len() + 8 < RECORDS
    }

    /// Returns a random file that can be cut.
    pub fn memory_file(&mut self) -> &'static File {
        self.file(&[0, 1, 2])
    }

    /// Returns a random one of these files.
    pub fn file(&mut self, numbers: &[usize]) -> &'static File {
        let number = numbers[self.random.below(numbers.len() as u64) as usize];
        self.file_number(number)
    }

    pub fn file_number(&self, number: usize) -> &'static File {
        &self.files[number]
    }

    /// Returns a random file.
    pub fn any_file(&mut self) -> &'static File {
        let numbers: Vec<usize> = (0..self.files.len()).collect();
        self.file(&numbers)
    }

    fn some_size(&mut self, file: &File) -> u64 {
        match self.random.below(4) {
            0 => 0,
            1 => self.random.below(file.pages) * PAGE,
            _ => self.random.below(file.bytes() / 8) * 8,
        }
    }

    /// Truncates a file to `size` bytes.
    pub fn cut_to(&mut self, file: &File, size: u64) {
        log!("truncate file {} to {size:#x}", file.number);
        let start = control::tick();
        let outcome = sys::truncate(file.fd, size);
        self.must("ftruncate", outcome);
        file.note(self.id, Kind::Cut, size..u64::MAX, u64::MAX, start);
    }

    pub fn cut(&mut self, file: &File) {
        let size = self.some_size(file);
        self.cut_to(file, size);
    }

    /// Extends a file to its full length.
    pub fn extend(&mut self, file: &File) {
        self.cut_to(file, file.bytes());
    }

    /// Zeroes a random range in one of several ways.
    pub fn clear(&mut self, file: &File) {
        let pages = self.random.range(file.pages);
        self.clear_pages(file, pages);
    }

    pub fn clear_pages(&mut self, file: &File, pages: Range<u64>) {
        let mut bytes = pages.start * PAGE..pages.end * PAGE;
        let by_mapping = file.nature == Nature::Anonymous
            || file.nature == Nature::Memory && self.random.once_in(3);
        let start = control::tick();
        if by_mapping {
            log!("MADV_REMOVE file {} {bytes:#x?}", file.number);
            let at = file.view + bytes.start;
            let outcome = sys::advise(at, bytes.end - bytes.start, sys::MADV_REMOVE);
            self.must("MADV_REMOVE", outcome);
        } else {
            if file.nature == Nature::Memory && self.random.once_in(2) {
                bytes.start += 8 * self.random.below(PAGE_WORDS as u64);
                bytes.end -= 8 * self.random.below((bytes.end - bytes.start) / 8).min(511);
            }
            let punch = self.random.once_in(2);
            let kind = if punch {
                sys::FALLOC_PUNCH_HOLE
            } else {
                sys::FALLOC_ZERO_RANGE
            };
            log!("fallocate({kind}) file {} {bytes:#x?}", file.number);
            let mode = kind | sys::FALLOC_KEEP_SIZE;
            match sys::allocate(file.fd, mode, bytes.start, bytes.end - bytes.start) {
                Ok(()) => {}
                Err(sys::EOPNOTSUPP) => return,
                Err(e) => self.fail(&format!("fallocate failed with error {e}")),
            }
        }
        file.note(self.id, Kind::Clear, bytes.clone(), bytes.end, start);
    }

    /// Stores to the actor's own words through a mapping.
    pub fn store(&mut self, file: &File) {
        let (id, actors) = (self.id, self.actors);
        let Some(words) = file.own_words(&mut self.random, id, actors) else {
            return;
        };
        self.store_words(file, words);
    }

    /// Stores to the words and returns those that were stored.
    pub fn store_words(&mut self, file: &File, mut words: Range<u64>) -> Range<u64> {
        let mut at = file.view + words.start * 8;
        if self.random.once_in(2)
            && let Some((own, room)) = self.own_mapping(file, words.start)
        {
            at = own;
            words.end = words.end.min(words.start + room);
        }
        log!("store file {} words {words:#x?} at {at:#x}", file.number);
        let tag = file.tag(self.id);
        let start = control::tick();
        let count = words.end - words.start;
        let stored = guard::fill(at, tag | words.start, count as usize) as u64;
        let bytes = words.start * 8..(words.start + stored) * 8;
        if stored < count && file.nature != Nature::Memory {
            let at = at + stored * 8;
            self.fail(&format!(
                "a store to file {} at {at:#x} faults",
                file.number
            ));
        }
        if stored > 0 {
            file.note(self.id, Kind::Store, bytes.clone(), bytes.end, start);
        }
        words.start..words.start + stored
    }

    /// Returns where this thread has a word of a file mapped for writing, and how many words
    /// follow. Returns `None` if it has no such mapping.
    fn own_mapping(&self, file: &File, word: u64) -> Option<(u64, u64)> {
        let byte = word * 8;
        self.areas.iter().find_map(|area| {
            let Source::Shared {
                file: number,
                first,
            } = area.source
            else {
                return None;
            };
            let offset = byte.checked_sub(first * PAGE)?;
            let room = (area.pages() * PAGE).checked_sub(offset)? / 8;
            (number == file.number && area.is_writable() && room > 0)
                .then_some((area.start + offset, room))
        })
    }

    /// Writes the actor's own words with a system call. With `cut_short`, the readable source ends
    /// before the length that the call asks for.
    pub fn write(&mut self, file: &File, cut_short: bool) {
        let (id, actors) = (self.id, self.actors);
        let Some(words) = file.own_words(&mut self.random, id, actors) else {
            return;
        };
        self.write_words(file, words, cut_short);
    }

    pub fn write_words(&mut self, file: &File, words: Range<u64>, cut_short: bool) {
        if file.nature == Nature::Anonymous {
            return;
        }
        let count = (words.end - words.start).min(BUFFER_PAGES * PAGE_WORDS as u64);
        let bytes = words.start * 8..(words.start + count) * 8;
        let tag = file.tag(self.id);
        let end = self.buffer + BUFFER_PAGES * PAGE;
        let from = if cut_short {
            end - count * 8
        } else {
            self.buffer
        };
        let asked = if cut_short {
            bytes.end.next_multiple_of(PAGE) - bytes.start
        } else {
            bytes.end - bytes.start
        };
        guard::fill(from, tag | words.start, count as usize);
        log!(
            "pwrite file {} words {words:#x?}, asking for {asked} bytes",
            file.number
        );
        let start = control::tick();
        let written = match sys::write_at(file.fd, from, asked, bytes.start) {
            Ok(written) => written,
            Err(sys::EFAULT) if cut_short => 0,
            Err(e) => self.fail(&format!("pwrite failed with error {e}")),
        };
        let whole = bytes.end - bytes.start;
        if written > whole || written < whole && !cut_short {
            self.fail(&format!("pwrite of {whole} bytes wrote {written}"));
        }
        let certain = bytes.start..bytes.start + written / 8 * 8;
        file.note(self.id, Kind::Write, certain, bytes.end, start);
    }

    /// Waits until another actor has cut a file, extends it and writes to it. This write comes
    /// after the cut, even if the call that cuts has not returned yet.
    pub fn revive(&mut self, file: &File) {
        log!("watch the size of file {}", file.number);
        for _ in 0..SIGHTS {
            let size = file.size();
            if size < file.bytes() {
                let start = control::tick();
                self.extend(file);
                let seen = size..size;
                file.note(self.id, Kind::Sight, seen, size, start);
                self.write(file, false);
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Syncs everything that was stored to a disk.
    pub fn sync_disk(&mut self, file: &File) {
        let pages = if self.random.once_in(2) {
            0..file.pages
        } else {
            self.random.range(file.pages)
        };
        if self.random.once_in(4) {
            log!("fsync file {}", file.number);
            let outcome = sys::sync_file(file.fd);
            self.must("fsync", outcome);
        } else {
            log!("msync file {} pages {pages:?}", file.number);
            let at = file.view + pages.start * PAGE;
            let bytes = (pages.end - pages.start) * PAGE;
            let outcome = sys::sync_map(at, bytes, sys::MS_SYNC);
            self.must("msync of the disk", outcome);
        }
    }
}
