//! Drops root's capabilities from the threads of a back-end.

use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;

/// Drops, for ever, all capabilities of the calling thread that are not in `wanted`. Threads that
/// it starts later inherit this, and set-user-ID programs cannot raise it again (`no_new_privs`).
/// Adds no capability: the thread of a process that is not root's has none.
///
/// # Errors
/// Fails if the kernel refuses one of these calls. Earlier ones are not undone.
pub fn keep_capabilities(wanted: CapabilitySet) -> io::Result<()> {
    let kept = rustix::thread::capabilities(None)?.permitted & wanted;
    rustix::thread::set_no_new_privs(true)?;
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root has capabilities to lose. For other users the sets are empty before and after.
    #[test]
    fn capabilities_go_for_the_thread_and_those_it_starts() {
        let sets = || rustix::thread::capabilities(None).unwrap();
        let before = sets();
        let wanted = CapabilitySet::SYS_RESOURCE;
        let (own, started) = std::thread::spawn(move || {
            keep_capabilities(wanted).unwrap();
            (sets(), std::thread::spawn(sets).join().unwrap())
        })
        .join()
        .unwrap();
        let kept = before.permitted & wanted;
        assert_eq!((own.permitted, own.effective), (kept, kept));
        assert_eq!(own.inheritable, CapabilitySet::empty());
        assert_eq!(started, own);
        assert_eq!(sets(), before, "other threads are as they were");
    }
}
