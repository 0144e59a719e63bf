//! The feature bits of the balloon device (virtio 1.2, 5.5.3) and those shared by all devices.

use bitflags::bitflags;

bitflags! {
    /// Feature bits that this driver knows. Bits 0–5 are the balloon's own.
    #[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
    pub struct Features: u64 {
        /// Pages of the balloon may be used again only after the device has acknowledged that.
        const MUST_TELL_HOST = 1 << 0;
        /// A queue for memory statistics is present.
        const STATS_VQ = 1 << 1;
        /// The guest may take pages back from the balloon when it runs out of memory.
        const DEFLATE_ON_OOM = 1 << 2;
        /// Free page hinting for migration. Known because it takes part in the numbering of the
        /// queues; this driver never accepts it.
        const FREE_PAGE_HINT = 1 << 3;
        /// The device takes the value that the guest's free pages are filled with.
        const PAGE_POISON = 1 << 4;
        /// Free page reporting: a queue for reports is present.
        const REPORTING = 1 << 5;
        /// The device follows virtio 1.0 or later.
        const VERSION_1 = 1 << 32;
    }
}

/// What this driver accepts where it is offered.
///
/// Not among them, on purpose: `RING_INDIRECT_DESC`, for which the queue would have to allocate
/// with every report (and give up when it cannot), although a report fits the ring directly; and
/// `RING_EVENT_IDX`, which saves nothing where at most one request is under way on a queue; and
/// `ACCESS_PLATFORM`, since page numbers are guest-physical whatever translates other addresses.
pub(crate) const SUPPORTED: Features = Features::MUST_TELL_HOST
    .union(Features::STATS_VQ)
    .union(Features::DEFLATE_ON_OOM)
    .union(Features::PAGE_POISON)
    .union(Features::REPORTING)
    .union(Features::VERSION_1);
