//! The feature bits of the balloon device (virtio 1.2, 5.5.3) and those shared by all devices.

use bitflags::bitflags;

bitflags! {
    /// Feature bits that this driver knows. Bits 0–5 are specific to the balloon.
    #[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
    pub struct Features: u64 {
        /// The guest may use pages that leave the balloon only after the device acknowledged them.
        const MUST_TELL_HOST = 1 << 0;
        /// The device has a queue for memory statistics.
        const STATS_VQ = 1 << 1;
        /// The guest may take pages out of the balloon when it runs out of memory, even if the
        /// device still wants them.
        const DEFLATE_ON_OOM = 1 << 2;
        /// Free page hinting, for migration. This driver never accepts it, but the bit matters for
        /// the numbering of the queues.
        const FREE_PAGE_HINT = 1 << 3;
        /// The device has a field for the value that fills the guest's free pages.
        const PAGE_POISON = 1 << 4;
        /// Free page reporting: the device has a queue for reports.
        const REPORTING = 1 << 5;
        /// The device follows virtio 1.0 or later.
        const VERSION_1 = 1 << 32;
    }
}

/// The features that this driver can accept. [`Options::choose`](crate::Options) accepts those that
/// the device offers, except the ones that the options do not need or do not allow.
/// `FREE_PAGE_HINT` is not among them and is never accepted.
///
/// Three further features are left out on purpose:
/// * `RING_INDIRECT_DESC`: the queue would have to allocate for each report, and fail if it cannot.
///   A report fits the ring directly.
/// * `RING_EVENT_IDX`: it saves nothing with at most one request in flight on a queue.
/// * `ACCESS_PLATFORM`: page numbers are guest-physical, whether or not an IOMMU translates other
///   addresses.
pub(crate) const SUPPORTED: Features = Features::MUST_TELL_HOST
    .union(Features::STATS_VQ)
    .union(Features::DEFLATE_ON_OOM)
    .union(Features::PAGE_POISON)
    .union(Features::REPORTING)
    .union(Features::VERSION_1);
