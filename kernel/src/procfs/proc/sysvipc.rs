//! `/proc/sysvipc`.

use crate::fs::synthetic::Entry;
use crate::fs::text::Text;
use crate::process::ipc::{Owner, msg, sem, shm};
use core::fmt::{Result, Write};
use machine::memory::PAGE_SIZE;

/// The files of `/proc/sysvipc`.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::file("sysvipc/msg", queues),
    Entry::file("sysvipc/sem", sets),
    Entry::file("sysvipc/shm", segments),
];

/// Writes the columns of the key, the number and the permissions of an object.
fn first_columns(text: &mut Text, id: i32, owner: &Owner) -> Result {
    write!(text, "{:10} {id:10}  {:4o} ", owner.key, owner.mode)
}

/// Writes the columns of the owner and the creator of an object.
fn owner_columns(text: &mut Text, owner: &Owner) -> Result {
    let ([uid, gid], [maker_uid, maker_gid]) = (owner.owner, owner.maker);
    write!(text, "{uid:5} {gid:5} {maker_uid:5} {maker_gid:5} ")
}

fn queues(text: &mut Text) -> Result {
    writeln!(
        text,
        "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      \
         rtime      ctime"
    )?;
    let mut place = 0;
    // Ends with the last queue.
    while let Some((one, next)) = msg::next_from(place) {
        place = next;
        first_columns(text, one.id, &one.owner)?;
        let (sent, received) = (one.sent, one.received);
        write!(
            text,
            " {:10} {:10} {:5} {:5} ",
            one.bytes, one.messages, sent.pid, received.pid
        )?;
        owner_columns(text, &one.owner)?;
        writeln!(
            text,
            "{:10} {:10} {:10}",
            sent.seconds, received.seconds, one.owner.changed
        )?;
    }
    Ok(())
}

fn sets(text: &mut Text) -> Result {
    writeln!(
        text,
        "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime"
    )?;
    let mut place = 0;
    // Ends with the last set.
    while let Some((one, next)) = sem::next_from(place) {
        place = next;
        first_columns(text, one.id, &one.owner)?;
        write!(text, "{:10} ", one.count)?;
        owner_columns(text, &one.owner)?;
        writeln!(text, "{:10} {:10}", one.used, one.owner.changed)?;
    }
    Ok(())
}

fn segments(text: &mut Text) -> Result {
    writeln!(
        text,
        "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      \
         atime      dtime      ctime                   rss                  swap"
    )?;
    let mut place = 0;
    // Ends with the last segment.
    while let Some((one, next)) = shm::next_from(place) {
        place = next;
        let [made_by, last_by] = one.pids;
        let [attached, detached] = one.times;
        let resident = one.resident * PAGE_SIZE as u64;
        first_columns(text, one.id, &one.owner)?;
        write!(
            text,
            "{:21} {made_by:5} {last_by:5}  {:5} ",
            one.bytes, one.attached
        )?;
        owner_columns(text, &one.owner)?;
        writeln!(
            text,
            "{attached:10} {detached:10} {:10} {resident:21} {:21}",
            one.owner.changed, 0
        )?;
    }
    Ok(())
}
