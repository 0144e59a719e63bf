//! What ebb can learn of a running guest, whichever kernel runs in it.

use crate::failure::Failure;
use crate::header::Header;
use crate::qmp::Inquiries;
use crate::sample::Sample;
use crate::stage::Stage;
use ebb_mm::FRAME_SIZE;
use std::fmt::Debug;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// A running guest, as its host sees it. All of it is what the guest alleges.
pub(crate) trait Guest: Debug + Send + Sync {
    /// Where it is in its life; `None` while its kernel does not speak yet.
    fn stage(&self) -> Option<Stage>;

    /// Its figures now; time and resident memory are not its to tell.
    fn look(&self) -> Sample;

    /// Begins to listen to what it says by other ways than its memory.
    fn attend(
        self: Arc<Self>,
        _control: &UnixStream,
        _inquiries: Inquiries,
    ) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes in QEMU's answer to an inquiry.
    fn learn(&self, _answer: &serde_json::Value) {}

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
    fn failure(&self) -> Option<Failure> {
        None
    }
}

/// A guest with the kernel of this repository, which shows its host a page of counters.
#[derive(Debug)]
pub(crate) struct EbbGuest {
    header: Header,
    image_bytes: u64,
}

impl EbbGuest {
    /// The guest whose kernel has its page at `header` and covers `image_bytes` of memory.
    pub(crate) fn new(header: Header, image_bytes: u64) -> Self {
        Self {
            header,
            image_bytes,
        }
    }
}

impl Guest for EbbGuest {
    fn stage(&self) -> Option<Stage> {
        self.header.read().map(|reading| reading.stage)
    }

    fn look(&self) -> Sample {
        let frame = u64::try_from(FRAME_SIZE).unwrap_or(u64::MAX);
        let Some(reading) = self.header.read() else {
            return Sample::default();
        };
        let bytes = |frames: u64| frames.saturating_mul(frame);
        let counts = self.header.counts(&reading);
        Sample {
            used: counts.map(|counts| {
                let used = bytes(counts.used).saturating_add(self.image_bytes);
                used.min(self.header.memory_bytes())
            }),
            free: counts.map(|counts| bytes(counts.free)),
            unreported: counts.map(|counts| bytes(counts.unreported)),
            reported: Some(bytes(reading.reported_frames)),
            reports: Some(reading.reports),
            reported_ranges: Some(reading.reported_ranges),
            file: Some(bytes(reading.file_frames)),
            faults: Some(reading.faults),
            cpus: reading.cpus,
            first_user: reading.first_user_ns.map(Duration::from_nanos),
            stage: Some(reading.stage),
            ..Sample::default()
        }
    }
}
