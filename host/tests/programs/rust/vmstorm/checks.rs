//! The checks while all actors stand still.

use crate::actor::{Actor, window};
use crate::areas::{Area, Source, check_page};
use crate::control;
use crate::files::{File, Nature, describe};
use crate::guard;
use crate::journal::History;
use crate::log;
use crate::sys::{self, PAGE, PAGE_WORDS, ZEROES};
use std::io::Read;
use std::sync::Mutex;

/// Files without changes are compared in one of this number of rounds.
const UNTOUCHED_ROUNDS: u64 = 8;
/// More bytes than `/proc/self/maps` has.
const MAPS_BYTES: usize = 1 << 20;

/// The areas of all threads of a process, collected for the thread that compares them with
/// `/proc/self/maps`.
pub static LAID_DOWN: Mutex<Vec<Area>> = Mutex::new(Vec::new());

/// Checks that the content of the file is possible after the round's operations. All later checks
/// expect this content.
pub fn settle(actor: &Actor, file: &File, actors: usize) {
    log!("check file {}", file.number);
    let history = History::of(file.number, actors);
    if history.is_empty() && !control::round().is_multiple_of(UNTOUCHED_ROUNDS) {
        return;
    }
    let size = file.size();
    if file.nature == Nature::Memory && !history.allows_size(size, file.bytes()) {
        actor.fail(&format!(
            "file {} is {size:#x} bytes long, which no operation made it: {history:x?}",
            file.number
        ));
    }
    for page in 0..file.pages {
        let mut words = [0; PAGE_WORDS];
        let there = size.saturating_sub(page * PAGE).min(PAGE) as usize / 8;
        let got = file.read_page(page, &mut words);
        if got != there {
            actor.fail(&format!(
                "page {page} of file {} has {got} words instead of {there}: its size is {size:#x}",
                file.number
            ));
        }
        must_be_allowed(actor, file, &history, page, &words, size);
        file.settle(page, &words);
    }
}

fn must_be_allowed(
    actor: &Actor,
    file: &File,
    history: &History,
    page: u64,
    words: &[u64; PAGE_WORDS],
    size: u64,
) {
    if let Err(wrong) = history.check(page, words, file.settled(page), size) {
        actor.fail(&format!(
            "file {} (size {size:#x}), word {:#x} (page {page}) is {}; {}",
            file.number,
            wrong.word,
            describe(wrong.found),
            wrong.why
        ));
    }
}

/// Checks that this process's common mapping of each file (`view`) shows the file. `whose` names
/// the process in a failure.
pub fn common_views(actor: &Actor, whose: &str) {
    for file in actor.files {
        let untouched = History::of(file.number, actor.actors).is_empty();
        if untouched && !control::round().is_multiple_of(UNTOUCHED_ROUNDS) {
            continue;
        }
        let size = file.size();
        for page in 0..file.pages {
            compare(actor, file, page, file.view + page * PAGE, size, whose);
        }
    }
}

/// Checks that the shared mappings of this thread show the files.
pub fn shared_views(actor: &Actor, whose: &str) {
    for area in actor.areas.iter().filter(|area| area.is_readable()) {
        let Source::Shared { file, first } = area.source else {
            continue;
        };
        let file = &actor.files[file];
        let size = file.size();
        for page in 0..area.pages() {
            compare(
                actor,
                file,
                first + page,
                area.start + page * PAGE,
                size,
                whose,
            );
        }
    }
}

/// Checks a page of a shared mapping: it shows the file, or faults beyond its end. In the last
/// page, the bytes after the end are arbitrary.
fn compare(actor: &Actor, file: &File, page: u64, at: u64, size: u64, whose: &str) {
    if file.nature == Nature::Disk && page >= file.pages {
        // The disk continues after the part that the storm uses.
        return;
    }
    if page < size / PAGE && guard::compare(at, file.settled(page)) == PAGE_WORDS {
        return;
    }
    let there = size.saturating_sub(page * PAGE).min(PAGE) as usize / 8;
    let mut words = [0; PAGE_WORDS];
    let got = guard::read(at, &mut words);
    let ends = page * PAGE >= size.next_multiple_of(PAGE);
    if (got == 0) != ends || got != 0 && got != PAGE_WORDS {
        actor.fail(&format!(
            "{whose} mapping of page {page} of file {} at {at:#x} has {got} words; the file's size \
             is {size:#x}",
            file.number
        ));
    }
    if ends {
        return;
    }
    let settled = file.settled(page);
    if let Some(word) = (0..there).find(|&word| words[word] != settled[word]) {
        actor.fail(&format!(
            "{whose} mapping of page {page} of file {} at {at:#x} shows in word {word}: {}, but the \
             file has {}",
            file.number,
            describe(words[word]),
            describe(settled[word])
        ));
    }
}

/// Checks that all mappings of this thread are as in its model.
pub fn own_areas(actor: &mut Actor) {
    log!("check all areas");
    let areas: Vec<Area> = actor.areas.iter().cloned().collect();
    for area in &areas {
        actor.check_own_pages(area);
        if let Source::Private { file, first } = area.source
            && area.is_readable()
        {
            private_view(actor, area, file, first);
        }
    }
}

/// Checks that a private mapping of a file shows the file, except for its own pages.
fn private_view(actor: &mut Actor, area: &Area, file: usize, first: u64) {
    let history = History::of(file, actor.actors);
    for (number, &own) in area.own.iter().enumerate() {
        let page = first + number as u64;
        let at = area.start + number as u64 * PAGE;
        if own == 0 {
            if page < actor.files[file].pages {
                let size = actor.files[file].size();
                compare(actor, &actor.files[file], page, at, size, "a private");
            }
            continue;
        }
        if history.may_have_cut(page) {
            // The copy may have disappeared with the file's page, or have been made after that.
            actor.replace_with_nothing(at..at + PAGE);
            continue;
        }
        if let Err(text) = check_page(at, own, true) {
            actor.fail(&format!(
                "a private copy of page {page} of file {file} at {at:#x}: {text}"
            ));
        }
    }
}

/// One line of `/proc/self/maps`.
#[derive(Debug)]
struct Entry {
    start: u64,
    end: u64,
    rights: String,
    offset: u64,
    name: String,
}

fn maps() -> Vec<Entry> {
    // The buffer is allocated before, because nothing may be mapped between two reads.
    let mut text = String::with_capacity(MAPS_BYTES);
    std::fs::File::open("/proc/self/maps")
        .and_then(|mut file| file.read_to_string(&mut text))
        .unwrap_or_else(|e| control::fail(&format!("/proc/self/maps: {e}")));
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let rights = words.next()?.to_owned();
        let offset = words.next()?;
        let name = words.nth(2).unwrap_or_default().to_owned();
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(Entry {
            start: hex(start)?,
            end: hex(end)?,
            rights,
            offset: hex(offset)?,
            name,
        })
    };
    let entry =
        |line| parse(line).unwrap_or_else(|| control::fail(&format!("a line of maps: {line:?}")));
    text.lines().map(entry).collect()
}

/// Checks that `/proc/self/maps` lists exactly the mappings of this process's threads, without
/// overlaps.
pub fn compare_maps(threads: usize) {
    log!("compare maps");
    let entries = maps();
    for pair in entries.windows(2) {
        if pair[0].end > pair[1].start || pair[0].start >= pair[0].end {
            control::fail(&format!("areas overlap: {:x?} and {:x?}", pair[0], pair[1]));
        }
    }
    let areas = std::mem::take(&mut *LAID_DOWN.lock().expect("no thread has panicked"));
    let mut expected = 0;
    for area in &areas {
        expected += area.pages() * u64::from(in_a_window(area.start, threads));
        check_entries(&entries, area);
    }
    // The windows contain no other mapping.
    let found: u64 = entries
        .iter()
        .filter(|entry| in_a_window(entry.start, threads))
        .map(|entry| (entry.end - entry.start) / PAGE)
        .sum();
    if found != expected {
        control::fail(&format!(
            "{found} pages are mapped in the windows instead of {expected}"
        ));
    }
}

fn in_a_window(address: u64, threads: usize) -> bool {
    (0..threads).any(|thread| window(thread).contains(&address))
}

/// Checks that an area is completely covered by lines with the right properties.
fn check_entries(entries: &[Entry], area: &Area) {
    let mut at = area.start;
    while at < area.end() {
        let holds = |entry: &&Entry| entry.start <= at && at < entry.end;
        let Some(entry) = entries.iter().find(holds) else {
            control::fail(&format!(
                "{at:#x} of {:#x}..{:#x} is not in maps",
                area.start,
                area.end()
            ))
        };
        let rights = match area.prot {
            sys::PROT_NONE => "---",
            sys::PROT_READ => "r--",
            _ => "rw-",
        };
        let (kind, offset) = match area.source {
            Source::Nothing => ("p", None),
            Source::Shared { first, .. } => ("s", Some(first)),
            Source::Private { first, .. } => ("p", Some(first)),
        };
        let offset = offset.map(|first| first * PAGE + at - area.start);
        let shown = entry.offset + at - entry.start;
        if entry.rights != format!("{rights}{kind}")
            || offset.is_some_and(|offset| offset != shown)
            || offset.is_some() == entry.name.is_empty()
        {
            control::fail(&format!(
                "maps say {entry:x?} of {at:#x}, which is {:?} with protection {}",
                area.source, area.prot
            ));
        }
        at = entry.end;
    }
}

/// Extends a file to its full length. Checks that the bytes after the old end are possible after
/// the operations.
pub fn reset(actor: &Actor, file: &File, actors: usize) {
    log!("reset file {}", file.number);
    match file.nature {
        Nature::Anonymous => {}
        Nature::Disk => disk_has_all(actor, file),
        Nature::Memory => {
            let size = file.size();
            let history = History::of(file.number, actors);
            let outcome = sys::truncate(file.fd, file.bytes());
            actor.must("ftruncate to the whole length", outcome);
            for page in size / PAGE..file.pages {
                let mut words = [0; PAGE_WORDS];
                if file.read_page(page, &mut words) != PAGE_WORDS {
                    actor.fail(&format!("a read of page {page} is short"));
                }
                let before = size.saturating_sub(page * PAGE).min(PAGE) as usize / 8;
                let settled = file.settled(page);
                if let Some(word) = (0..before).find(|&word| words[word] != settled[word]) {
                    actor.fail(&format!(
                        "word {word} of page {page} changed with no actor there"
                    ));
                }
                check_tail(actor, file, &history, page, &words, before, size);
                file.settle(page, &words);
            }
        }
    }
}

/// Checks the words after the old end of a file that was made longer.
fn check_tail(
    actor: &Actor,
    file: &File,
    history: &History,
    page: u64,
    words: &[u64; PAGE_WORDS],
    before: usize,
    size: u64,
) {
    if before == 0 {
        if words != &ZEROES
            && let Some(word) = words.iter().position(|&word| word != 0)
        {
            // No mapping could store beyond the last page.
            actor.fail(&format!(
                "file {} ended at {size:#x} and was made longer: word {word} of page {page} is {}",
                file.number,
                describe(words[word])
            ));
        }
        return;
    }
    must_be_allowed(actor, file, history, page, words, size);
}

/// Checks that the content of a disk's page cache is on the disk after fsync.
fn disk_has_all(actor: &Actor, file: &File) {
    let Some(direct) = file.direct else { return };
    let outcome = sys::sync_file(file.fd);
    actor.must("fsync", outcome);
    for page in 0..file.pages {
        let got = sys::read_at(direct, actor.buffer, PAGE, page * PAGE);
        if actor.must("a direct read", got) != PAGE {
            actor.fail("a direct read is short");
        }
        let mut words = [0; PAGE_WORDS];
        guard::read(actor.buffer, &mut words);
        let settled = file.settled(page);
        if let Some(word) = (0..PAGE_WORDS).find(|&word| words[word] != settled[word]) {
            actor.fail(&format!(
                "word {word} of page {page} of the disk is {}, but the cache has {}",
                describe(words[word]),
                describe(settled[word])
            ));
        }
    }
}
