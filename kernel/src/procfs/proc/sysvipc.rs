//! `/proc/sysvipc`.

use crate::fs::synthetic::Entry;
use crate::fs::text::Text;
use crate::process::shm;
use core::fmt::{Result, Write};
use machine::memory::PAGE_SIZE;

pub(super) const ENTRIES: &[Entry] = &[Entry::file("sysvipc/shm", segments)];

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
        let ([uid, gid], [maker_uid, maker_gid]) = (one.owner, one.maker);
        let [attached, detached, changed] = one.times;
        let resident = one.resident * PAGE_SIZE as u64;
        writeln!(
            text,
            "{:10} {:10}  {:4o} {:21} {made_by:5} {last_by:5}  {:5} {uid:5} {gid:5} {maker_uid:5} {maker_gid:5} \
             {attached:10} {detached:10} {changed:10} {resident:21} {:21}",
            one.key, one.id, one.mode, one.bytes, one.attached, 0
        )?;
    }
    Ok(())
}
