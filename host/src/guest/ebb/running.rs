//! A running guest with Ebb's own kernel, whose header page the host reads.

use super::header::Header;
use crate::guest::running::{DescriptorPage, Guest, Metadata, PoolTable};
use crate::guest::sample::Sample;
use crate::guest::stage::Stage;
use crate::machine::GiveBack;
use ebb_mm::{FRAME_SIZE, Frame};
use std::time::Duration;

/// A running guest with Ebb's own kernel, whose header page the host reads.
#[derive(Debug)]
pub(crate) struct EbbGuest {
    header: Header,
    /// Guest memory that the kernel's image covers, in bytes.
    image_bytes: u64,
}

impl EbbGuest {
    /// Creates the view of a guest whose kernel has its header page at `header`. `image_bytes` is
    /// the guest memory that the kernel's image covers, which counts as used.
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
                // The allocator has handed out the frames in the balloon, too.
                let frames = counts.used.saturating_sub(reading.ballooned_frames);
                let used = bytes(frames).saturating_add(self.image_bytes);
                used.min(self.header.memory_bytes())
            }),
            ballooned: counts.map(|_| bytes(reading.ballooned_frames)),
            free: counts.map(|counts| bytes(counts.free)),
            unreported: counts.map(|counts| bytes(counts.unreported)),
            reported: Some(bytes(reading.reported_frames)),
            reports: Some(reading.reports),
            reported_ranges: Some(reading.reported_ranges),
            file: Some(bytes(reading.file_frames)),
            faults: Some(reading.faults),
            huge_pages: reading.huge_pages,
            given_up: reading.given_up,
            give_back: reading.give_back,
            reclaimed: Some(reading.reclaimed),
            oom: Some(self.header.oom_kills()),
            awaited_input: reading.awaited_input,
            cpus: reading.cpus,
            first_user: reading.first_user_ns.map(Duration::from_nanos),
            ended: reading.ended_ns.map(Duration::from_nanos),
            // No other process in the guest causes page faults.
            program_faults: Some(reading.faults),
            stage: Some(reading.stage),
            ..Sample::default()
        }
    }

    fn metadata(&self) -> Option<Metadata> {
        let reading = self.header.read()?;
        Some(Metadata {
            address: reading.metadata,
            bytes: reading.metadata_bytes,
        })
    }

    fn give_back(&self) -> Option<GiveBack> {
        self.header.give_back()
    }

    fn descriptor_page(&self, frame: Frame) -> Option<DescriptorPage> {
        self.header.descriptor_page(frame)
    }

    fn pool_table(&self) -> Option<PoolTable> {
        self.header.pool_table()
    }
}
