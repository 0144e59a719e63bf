//! The interface through which `ebb` observes a running guest, independent of its kernel.

use super::sample::Sample;
use super::stage::Stage;
use crate::machine::GiveBack;
use crate::qemu::{GuestAddress, MonitorSender};
use ebb_mm::Frame;
use std::fmt::Debug;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The reason why a guest did not run its program, in the guest's words without control characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Complaint {
    /// The program could not be started.
    CannotRun(String),
    /// The guest itself failed.
    Failed(String),
}

/// The location of the allocator's metadata in guest memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Metadata {
    pub(crate) address: GuestAddress,
    /// The size in bytes.
    pub(crate) bytes: u64,
}

/// The location of the table of the guest's hugetlb pools, which lists the addresses of their
/// pages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct PoolTable {
    pub(crate) address: GuestAddress,
    /// The number of entries.
    pub(crate) pages: u64,
}

/// A page of 4 KiB with page descriptors of a guest. Both values are claims of the guest.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct DescriptorPage {
    /// The guest-physical address, a multiple of the page size.
    pub(crate) address: GuestAddress,
    /// Whether its memory came from the guest's allocator, when a huge page left a pool. Otherwise
    /// it has held descriptors since boot.
    pub(crate) restored: bool,
}

/// A running guest as its host sees it. All values are claims of the guest.
pub(crate) trait Guest: Debug + Send + Sync {
    /// Returns whether the guest boots, runs its program, or has ended. Returns `None` until its
    /// kernel has reported anything, or if its report is not valid.
    fn stage(&self) -> Option<Stage>;

    /// Returns the guest's current figures, without the time and the resident memory. Figures that
    /// are not known are `None`.
    fn look(&self) -> Sample;

    /// Starts threads that read what the guest sends other than by its memory: on the `_control`
    /// port, and through QEMU by `_inquiries`. By default starts none. Fails if the socket cannot
    /// be duplicated or a thread cannot be started.
    fn attend(self: Arc<Self>, _control: &UnixStream, _inquiries: MonitorSender) -> io::Result<()> {
        Ok(())
    }

    /// Records QEMU's answer to a command that was sent by a [`MonitorSender`]. By default ignores
    /// it.
    fn learn(&self, _answer: &serde_json::Value) {}

    /// Records whether the virtual CPUs are stopped. While they are, the threads of
    /// [`Self::attend`] send the guest no request.
    fn set_stopped(&self, _still: bool) {}

    /// Blocks until the guest can take input. Returns `false` if it ended before. By default
    /// returns `true` at once.
    fn wait_until_up(&self) -> bool {
        true
    }

    /// Returns whether the guest waits for permission to end its machine. `_received` has the bytes
    /// that arrived from stdout and from stderr. Returns `false` until all bytes that the program
    /// wrote have arrived, and for kernels that need no permission.
    fn is_to_be_ended(&self, _received: [u64; 2]) -> bool {
        false
    }

    /// Returns why the guest could not run the program. Returns `None` if the guest has not
    /// reported a reason, or its kernel never does.
    fn complaint(&self) -> Option<Complaint> {
        None
    }

    /// Returns the location of the allocator's metadata. Returns `None` until the allocator works,
    /// and for kernels that do not publish it.
    fn metadata(&self) -> Option<Metadata> {
        None
    }

    /// Returns how the guest gives free memory back now. Returns `None` if the kernel does not
    /// publish it, or has not published anything yet.
    fn give_back(&self) -> Option<GiveBack> {
        None
    }

    /// Returns the page with the descriptors of `frame` and of the other frames of its aligned 64.
    /// The caller has taken the pageblock of `frame` from the guest's allocator, or the virtual
    /// CPUs are stopped and the 64 frames are free. Returns `None` if the guest is moving the
    /// table that maps the page, or the kernel does not publish where its descriptors are.
    fn descriptor_page(&self, _frame: Frame) -> Option<DescriptorPage> {
        None
    }

    /// Returns the location of the table of the guest's hugetlb pools. Returns `None` until a pool
    /// has had its first page, and for kernels that do not publish it.
    fn pool_table(&self) -> Option<PoolTable> {
        None
    }
}
