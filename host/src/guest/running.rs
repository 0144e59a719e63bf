//! What ebb can learn of a running guest, whichever kernel runs in it.

use super::sample::Sample;
use super::stage::Stage;
use crate::machine::GiveBack;
use crate::qemu::{GuestAddress, Inquiries};
use std::fmt::Debug;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Why a guest did not run its program, in its own words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Complaint {
    /// The program could not be started.
    CannotRun(String),
    /// The guest is at fault.
    Failed(String),
}

/// Where a guest's allocator has its metadata.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Metadata {
    pub(crate) address: GuestAddress,
    pub(crate) bytes: u64,
}

/// Where a guest has the table of its pools of huge pages: a list of the addresses of its pages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct PoolTable {
    pub(crate) address: GuestAddress,
    /// Entries of the list.
    pub(crate) pages: u64,
}

/// A running guest, as its host sees it. All of it is what the guest alleges.
pub(crate) trait Guest: Debug + Send + Sync {
    /// Where it is in its life; `None` while its kernel does not speak yet.
    fn stage(&self) -> Option<Stage>;

    /// Its figures now; time and resident memory are not its to tell.
    fn look(&self) -> Sample;

    /// Begins to listen to what it says by other ways than its memory.
    fn attend(self: Arc<Self>, _control: &UnixStream, _inquiries: Inquiries) -> io::Result<()> {
        Ok(())
    }

    /// Takes in QEMU's answer to an inquiry.
    fn learn(&self, _answer: &serde_json::Value) {}

    /// Notes that the virtual CPUs stand still, so that no request is sent to the guest, or that they run.
    fn stand(&self, _still: bool) {}

    /// Waits until it can take input; false if it ended before.
    fn wait_until_up(&self) -> bool {
        true
    }

    /// Whether it waits to be told that its machine may end, since all that the program wrote to
    /// stdout and stderr is `received`.
    fn is_to_be_ended(&self, _received: [u64; 2]) -> bool {
        false
    }

    /// Why it could not run the program, if it says so.
    fn complaint(&self) -> Option<Complaint> {
        None
    }

    /// Where its allocator's metadata is; `None` until it works, and where no host can read it.
    fn metadata(&self) -> Option<Metadata> {
        None
    }

    /// How it gives memory back now; `None` where it has not decided yet, or does not say.
    fn give_back(&self) -> Option<GiveBack> {
        None
    }

    /// Where it has the descriptors of frames, as its header's `descriptors` says.
    fn descriptors(&self) -> [u64; 2] {
        [0; 2]
    }

    /// Where the table of its pools of huge pages is; `None` while there was never a page in them, and where no host can
    /// read it.
    fn pool_table(&self) -> Option<PoolTable> {
        None
    }
}
