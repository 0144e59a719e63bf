//! Memory hot-plug: takes pageblocks offline and brings them online while the allocator is in use,
//! as virtio-mem needs it.

use core::{error, fmt};

use crate::{
    Allocator, CpuCache, Frame, FrameRange, Order, PutBack, frame::PAGEBLOCK_FRAMES, ids::BlockId,
    sync::Ordering, zone::ZoneRef,
};

/// Why a range did not go offline or come online. The allocator is unchanged in that case.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OnlineError {
    /// The range does not start and end at pageblock boundaries.
    Misaligned(FrameRange),
    /// These frames of the range are in no zone's ranges.
    NotManaged(FrameRange),
    /// These frames of the range are allocated, isolated or held by a per-CPU cache. They are in
    /// the first such pageblock.
    InUse(FrameRange),
    /// These frames of the range are offline already.
    Offline(FrameRange),
    /// These frames of the range are online already.
    Online(FrameRange),
}

impl fmt::Display for OnlineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (range, why) = match self {
            Self::Misaligned(range) => (range, "not whole pageblocks"),
            Self::NotManaged(range) => (range, "not managed"),
            Self::InUse(range) => (range, "in use"),
            Self::Offline(range) => (range, "offline"),
            Self::Online(range) => (range, "online"),
        };
        write!(
            f,
            "frames {:#x}..{:#x}: {why}",
            range.start.number(),
            range.end().number()
        )
    }
}

impl error::Error for OnlineError {}

impl Allocator<'_> {
    /// Takes the pageblocks of `range` offline. All their frames must be free. Drains `cache`
    /// first. Other threads may allocate at the same time.
    ///
    /// To start with memory that is offline, name it in the configuration and take it offline
    /// before the first allocation.
    ///
    /// # Errors
    /// Fails with `Misaligned` if `range` is not whole pageblocks, with `Offline` if a pageblock is
    /// offline already, and with `NotManaged` if a pageblock is in no zone or has no memory. Fails
    /// with `InUse` and the first frames found in use or isolated, or partly without memory.
    ///
    /// After any error all per-CPU caches have been requested to drain, so after `InUse` a later
    /// call may succeed. The pageblocks taken before the failure are brought back online.
    pub fn offline(&self, cache: &mut CpuCache, range: FrameRange) -> Result<(), OnlineError> {
        self.drain(cache);
        let taken = self.for_each_block(range, |at, block, frames| {
            let state = at.zone.arrays.states[block].load();
            if state.is_offline() {
                return Err(OnlineError::Offline(frames));
            }
            if state.is_missing() {
                return Err(OnlineError::NotManaged(frames));
            }
            at.zone.count_free(-(PAGEBLOCK_FRAMES.cast_signed()));
            if !at.block(block).set_offline() {
                at.zone.count_free(PAGEBLOCK_FRAMES.cast_signed());
                return Err(OnlineError::InUse(at.frames_in_use(block, frames)));
            }
            at.count_memory(-1);
            Ok(())
        });
        taken.map_err(|(done, error)| {
            let back = FrameRange::new(range.start, done);
            let undone = self.for_each_block(back, |at, block, _| {
                at.bring_back(block, PutBack::Unchanged);
                Ok(())
            });
            debug_assert!(undone.is_ok(), "{back:?} was taken offline");
            self.request_drain();
            error
        })
    }

    /// Brings the offline pageblocks of `range` back as free memory. Pass [`PutBack::Reported`] if
    /// the host holds no memory for them, as after an unplug. Their contents count as unknown. No
    /// other thread may bring the same pageblocks online at the same time.
    ///
    /// # Errors
    /// Fails with `Misaligned` if `range` is not whole pageblocks, with `Online` if a pageblock is
    /// not offline, and with `NotManaged` if it is in no zone or has no memory. No pageblock is
    /// brought online then.
    pub fn online(&self, range: FrameRange, how: PutBack) -> Result<(), OnlineError> {
        let offline = self.for_each_block(range, |at, block, frames| {
            let state = at.zone.arrays.states[block].load();
            if state.is_offline() {
                Ok(())
            } else if state.is_missing() {
                Err(OnlineError::NotManaged(frames))
            } else {
                Err(OnlineError::Online(frames))
            }
        });
        offline.map_err(|(_, error)| error)?;
        let online = self.for_each_block(range, |at, block, frames| {
            // The memory may be other memory than before, so it does not count as never handed out.
            at.zone.hand_out_words(block, !0);
            if at.bring_back(block, how) {
                Ok(())
            } else {
                Err(OnlineError::Online(frames))
            }
        });
        online.map_err(|(_, error)| error)
    }

    /// Brings a part of the offline memory back as allocated frames of order 0. The frames belong
    /// to the caller, who may free them one by one. The other frames of a pageblock stay offline
    /// until a later call names them.
    ///
    /// The caller must name each frame only once, must name no frame that is online already, and
    /// must not call this for one pageblock from two threads at the same time.
    ///
    /// # Errors
    /// Fails with `NotManaged` if a frame is in no pageblock of a zone, or if a pageblock of
    /// `range` is allocated whole, isolated or missing. No frame is brought back then.
    pub fn admit(&self, range: FrameRange) -> Result<(), OnlineError> {
        let mut outside = None;
        self.for_each_word(range, |found| {
            let fits = found.as_ref().is_some_and(|(at, block, _)| {
                let state = at.zone.arrays.states[*block].load();
                state.is_offline() || !state.is_whole()
            });
            if !fits {
                outside = Some(OnlineError::NotManaged(range));
            }
            fits
        });
        if let Some(error) = outside {
            return Err(error);
        }
        self.for_each_word(range, |found| {
            if let Some((at, block, word)) = found {
                if at.block(block).set_admitted() {
                    at.zone.hand_out_words(block, !0);
                    // `Relaxed`, here and below: these are statistics.
                    at.zone.record.missing.fetch_sub(1, Ordering::Relaxed);
                }
                let frames = u64::from(word.mask.count_ones());
                at.zone.record.managed.fetch_add(frames, Ordering::Relaxed);
            }
            true
        });
        Ok(())
    }

    /// Calls `visit` for each pageblock of `range` until one call fails. An error comes with the
    /// number of frames of `range` before the failed pageblock. Fails if `range` is not whole
    /// pageblocks of zones.
    fn for_each_block(
        &self,
        range: FrameRange,
        mut visit: impl FnMut(ZoneRef<'_, '_>, BlockId, FrameRange) -> Result<(), OnlineError>,
    ) -> Result<(), (u64, OnlineError)> {
        let whole = range.start.is_aligned(Order::PAGEBLOCK)
            && range.frames.is_multiple_of(PAGEBLOCK_FRAMES)
            && range.start.number().checked_add(range.frames).is_some();
        if !whole {
            return Err((0, OnlineError::Misaligned(range)));
        }
        let mut done = 0;
        while done < range.frames {
            let frames = FrameRange::new(range.start.offset(done), PAGEBLOCK_FRAMES);
            let visited = match self.locate(frames.start) {
                Some((zone, block)) => visit(self.zone(zone), block, frames),
                None => Err(OnlineError::NotManaged(frames)),
            };
            visited.map_err(|error| (done, error))?;
            done += PAGEBLOCK_FRAMES;
        }
        Ok(())
    }
}

impl ZoneRef<'_, '_> {
    /// Adds `blocks` pageblocks (1 or -1) to the zone's statistics of managed memory.
    fn count_memory(self, blocks: i64) {
        let record = self.zone.record;
        let frames = (blocks * PAGEBLOCK_FRAMES.cast_signed()).cast_unsigned();
        // Both wrap around for -1. `Relaxed`: these are statistics.
        record.managed.fetch_add(frames, Ordering::Relaxed);
        record
            .missing
            .fetch_sub(blocks.cast_unsigned(), Ordering::Relaxed);
    }

    /// Brings an offline pageblock online and counts its frames as free. Returns `false` if the
    /// pageblock is not offline.
    fn bring_back(self, block: BlockId, how: PutBack) -> bool {
        if !self.block(block).set_online(how == PutBack::Reported) {
            return false;
        }
        self.count_memory(1);
        self.zone.count_free(PAGEBLOCK_FRAMES.cast_signed());
        true
    }

    /// Returns the first run of allocated frames in `block`, whose frames are `all`. Returns `all`
    /// if no frame has its bit set, as in a pageblock that is allocated whole.
    fn frames_in_use(self, block: BlockId, all: FrameRange) -> FrameRange {
        let bits = &self.zone.arrays.bits[block];
        let used = |frame: &u64| {
            let (word, bit) = (crate::frame::index(frame / 64), frame % 64);
            bits.word(word) >> bit & 1 != 0
        };
        let Some(first) = (0..PAGEBLOCK_FRAMES).find(used) else {
            return all;
        };
        let frames = (first..PAGEBLOCK_FRAMES).take_while(used).count() as u64;
        FrameRange::new(Frame::new(all.start.number() + first), frames)
    }
}
