//! `/proc/PID/pagemap`: a word for each page of an address space.

use super::space_file::Kind;
use crate::fs::file::{File, Seeks};
use crate::fs::flags::OpenFlags;
use crate::fs::io::ByteSink;
use crate::process::caller;
use crate::vm::{AddressSpace, Shown};
use alloc::sync::{Arc, Weak};
use logic::credentials::Capabilities;
use logic::errno::{Errno, SysResult};
use machine::arch::USER_END;
use machine::memory::PAGE_SIZE;
use zerocopy::IntoBytes;

/// `/proc/PID/pagemap`: its name, mode and open function. Opening the file for writing fails with
/// `EACCES`. A reader sees frame numbers only if the task that opened the file had `CAP_SYS_ADMIN`.
pub(super) static KIND: Kind = Kind {
    name: "pagemap",
    file: 0x51,
    permissions: 0o400,
    open: |space, flags| {
        if flags.writable() {
            return Err(Errno::EACCES);
        }
        let frames = caller::can(Capabilities::SYS_ADMIN);
        Ok(Arc::new(Words { space, frames }))
    },
};

const WORD: u64 = size_of::<u64>() as u64;
/// The number of words that are produced at a time.
const WORDS: usize = 128;

const PRESENT: u64 = 1 << 63;
/// The bit of a page of a file or of shared memory.
const OF_FILE: u64 = 1 << 61;
/// The bit of a page that is mapped only here.
const EXCLUSIVE: u64 = 1 << 56;

struct Words {
    space: Weak<AddressSpace>,
    /// Whether the task that opened the file may see the numbers of frames.
    frames: bool,
}

fn word(shown: Option<Shown>, frames: bool) -> u64 {
    let Some(shown) = shown else { return 0 };
    let of_file = if shown.of_file { OF_FILE } else { 0 };
    let exclusive = if shown.alone { EXCLUSIVE } else { 0 };
    let frame = if frames { shown.frame } else { 0 };
    PRESENT | of_file | exclusive | frame
}

impl File for Words {
    fn read(&self, to: &mut dyn ByteSink, offset: &mut u64, _: OpenFlags) -> SysResult {
        // A process without an address space has no words.
        let Some(space) = self.space.upgrade() else {
            return Ok(0);
        };
        let room = to.room();
        if !offset.is_multiple_of(WORD) || !(room as u64).is_multiple_of(WORD) {
            return Err(Errno::EINVAL);
        }
        let end = USER_END / PAGE_SIZE as u64 * WORD;
        let mut done = 0;
        while done < room && *offset < end {
            let mut words = [0; WORDS];
            let left = ((end - *offset) / WORD).min(((room - done) as u64) / WORD);
            let count = words.len().min(usize::try_from(left).unwrap_or(WORDS));
            let first = *offset / WORD * PAGE_SIZE as u64;
            let mut place = words[..count].iter_mut();
            space.show_pages(first, count, |shown| {
                if let Some(place) = place.next() {
                    *place = word(shown, self.frames);
                }
            });
            let put = to.put(words[..count].as_bytes())?;
            done += put;
            *offset += put as u64;
            if put < count * size_of::<u64>() {
                break;
            }
            machine::sched::cond_resched();
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
