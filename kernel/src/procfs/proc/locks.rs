//! `/proc/locks`, and the locks in `/proc/PID/fdinfo/N`.

use crate::fs::devices;
use crate::fs::file::OpenFile;
use crate::fs::locks::{self, shown_pid};
use crate::fs::table::FileTable;
use crate::fs::text::Text;
use core::fmt::{Result, Write};
use logic::locks::ranges::{Kind, LAST_BYTE};
use logic::locks::table::{BUCKETS, Line, Owner, World};
use machine::sched;

/// Writes the line of a lock, as Linux's `lock_get_status` does.
fn line(text: &mut Text, line: &Line) -> Result {
    let class = match (line.subject.world, line.owner) {
        (World::Whole, _) => "FLOCK ",
        (World::Ranges, Owner::Files(_)) => "POSIX ",
        (World::Ranges, Owner::Description(_)) => "OFDLCK",
    };
    let kind = match line.held.kind {
        Kind::Shared => "READ",
        Kind::Exclusive => "WRITE",
    };
    let arrow = if line.waits { "-> " } else { "" };
    write!(text, "{}: {arrow}{class} ADVISORY  {kind} ", line.number)?;
    match shown_pid(line.subject.world, line.owner, &line.held) {
        Some(pid) => write!(text, "{pid} ")?,
        None => text.write_str("-1 ")?,
    }
    let file = line.subject.file;
    let (major, minor) = devices::parts(file.device);
    let span = line.held.span;
    write!(
        text,
        "{major:02x}:{minor:02x}:{} {} ",
        file.inode, span.first
    )?;
    if span.last == LAST_BYTE {
        writeln!(text, "EOF")
    } else {
        writeln!(text, "{}", span.last)
    }
}

/// Writes the text of `/proc/locks` to `text`. Reads the table of locks bucket by bucket. Fails if
/// `text` is full, and with `ENOMEM`.
pub(super) fn locks(text: &mut Text) -> Result {
    let mut before = 0;
    for bucket in 0..BUCKETS {
        let mut lines = locks::in_bucket(bucket).map_err(|error| text.fail(error))?;
        for one in &mut lines {
            one.number += before;
            line(text, one)?;
        }
        before += lines.iter().filter(|line| !line.waits).count();
        sched::cond_resched();
    }
    Ok(())
}

/// Writes the lines of `/proc/PID/fdinfo/N` about locks that were placed through `file`, a
/// descriptor of `files`. Fails if `text` is full, and with `ENOMEM`.
pub(super) fn of_descriptor(text: &mut Text, files: &FileTable, file: &OpenFile) -> Result {
    let lines = locks::placed_by(files, file).map_err(|error| text.fail(error))?;
    lines.iter().try_for_each(|one| {
        text.write_str("lock:\t")?;
        line(text, one)
    })
}
