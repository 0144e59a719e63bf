//! Memory that comes and goes while the allocator is in use: hot-plug, virtio-mem.

use core::{error, fmt};

use crate::{
    Allocator, Frame, FrameRange, Front, Order, PutBack, frame::PAGEBLOCK_FRAMES, sync::Ordering,
    zone::ZoneRef,
};

/// Why a range did not go offline or come online. Nothing of it has changed then.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OnlineError {
    /// It does not start and end with a pageblock.
    Misaligned(FrameRange),
    /// These frames of it are of no zone's ranges.
    NotManaged(FrameRange),
    /// These frames of it are in use, isolated, or held by a front: the first such pageblock's.
    InUse(FrameRange),
    /// These frames of it are offline already.
    Offline(FrameRange),
    /// These frames of it are online already.
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
    /// Takes the memory of a range away, all of which must be free. Others go on allocating
    /// meanwhile.
    ///
    /// To start with memory that is offline, name it in the configuration and take it offline
    /// before the first allocation.
    ///
    /// # Errors
    /// If the range is not of whole pageblocks, or a frame of it is in use: which. What other
    /// fronts hold counts as in use; they have been asked to drain then, so it can be tried again.
    pub fn offline(&self, front: &mut Front, range: FrameRange) -> Result<(), OnlineError> {
        self.drain(front);
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

    /// Gives a range its memory back that went offline. It can be allocated from then on.
    /// [`PutBack::Reported`] says that the host holds nothing of it, as when it was unplugged.
    ///
    /// # Errors
    /// If the range is not of whole pageblocks, or a part of it is not offline.
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
            // It may be other memory than before.
            at.zone.hand_out_words(block, !0);
            if at.bring_back(block, how) {
                Ok(())
            } else {
                Err(OnlineError::Online(frames))
            }
        });
        online.map_err(|(_, error)| error)
    }

    /// Gives a part of the memory back that went offline, in use: its frames are the caller's, who
    /// may free them one by one. Of a pageblock that is offline, the frames that the range leaves
    /// out stay away; a later call may name them, once. Calls for one pageblock must not be made at
    /// the same time.
    ///
    /// # Errors
    /// If the range leaves the zones' trees, or a pageblock of it is none of the kind.
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
                    // `Relaxed`, here and below: figures.
                    at.zone.record.missing.fetch_sub(1, Ordering::Relaxed);
                }
                let frames = u64::from(word.mask.count_ones());
                at.zone.record.managed.fetch_add(frames, Ordering::Relaxed);
            }
            true
        });
        Ok(())
    }

    /// Visits the pageblocks of a range until one fails; then, how many frames came before it.
    fn for_each_block(
        &self,
        range: FrameRange,
        mut visit: impl FnMut(ZoneRef<'_, '_>, usize, FrameRange) -> Result<(), OnlineError>,
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
    /// A block's memory goes (-1) or comes (1).
    fn count_memory(self, blocks: i64) {
        let record = self.zone.record;
        let frames = (blocks * PAGEBLOCK_FRAMES.cast_signed()).cast_unsigned();
        // Both wrap around for -1. `Relaxed`: figures.
        record.managed.fetch_add(frames, Ordering::Relaxed);
        record
            .missing
            .fetch_sub(blocks.cast_unsigned(), Ordering::Relaxed);
    }

    fn bring_back(self, block: usize, how: PutBack) -> bool {
        if !self.block(block).set_online(how == PutBack::Reported) {
            return false;
        }
        self.count_memory(1);
        self.zone.count_free(PAGEBLOCK_FRAMES.cast_signed());
        true
    }

    /// The first frames of a block that are in use next to each other; all if it is as a whole.
    fn frames_in_use(self, block: usize, all: FrameRange) -> FrameRange {
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
