//! The knobs that choose the number of the next object of System V IPC. Programs that restore a
//! saved process use them.

use crate::fs::knob::Store;
use crate::fs::synthetic::Entry;
use crate::fs::text::Text;
use crate::process::ipc::{msg, sem, shm};
use core::fmt::{Result as Written, Write};
use logic::errno::Errno;

/// The knobs `msg_next_id`, `sem_next_id` and `shm_next_id` of `/proc/sys/kernel`.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::knob(
        "sys/kernel/msg_next_id",
        |text| show(text, msg::next_id()),
        Store::natural(0, i32::MAX, |value| {
            msg::set_next_id(id(value)?);
            Ok(())
        }),
    ),
    Entry::knob(
        "sys/kernel/sem_next_id",
        |text| show(text, sem::next_id()),
        Store::natural(0, i32::MAX, |value| {
            sem::set_next_id(id(value)?);
            Ok(())
        }),
    ),
    Entry::knob(
        "sys/kernel/shm_next_id",
        |text| show(text, shm::next_id()),
        Store::natural(0, i32::MAX, |value| {
            shm::set_next_id(id(value)?);
            Ok(())
        }),
    ),
];

/// Shows the number that was requested for the next object, or -1 if there is none.
fn show(text: &mut Text, id: Option<i32>) -> Written {
    writeln!(text, "{}", id.unwrap_or(-1))
}

fn id(value: u64) -> Result<i32, Errno> {
    i32::try_from(value).map_err(|_| Errno::EINVAL)
}
