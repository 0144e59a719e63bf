//! Open regular files of a volume.

use super::super::file::{File, Seeks};
use super::super::flags::OpenFlags;
use super::super::io::{ByteSink, ByteSource, MAX_RW_COUNT};
use super::failures::Seen;
use super::node::HostNode;
use super::pages::{PAGE, in_page};
use super::writeback;
use crate::drivers::volume::{self, FRAMES_MAX, Opcode, Outgoing, Request};
use crate::vm::PageSource;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::errno::{Errno, SysResult};
use machine::memory::{self, FrameRef, Mobility, PAGE_SIZE};

/// The most pages that a read fetches at once.
const AHEAD: usize = 32;
/// Bits of [`Opcode::Open`].
const READ: u64 = 1;
const WRITE: u64 = 2;

/// An open regular file.
pub(super) struct OpenHostFile {
    node: Arc<HostNode>,
    writes: bool,
    seen: Seen,
}

impl OpenHostFile {
    /// Opens `node` here and on the host. Returns the open file.
    ///
    /// # Errors
    /// Fails with `EROFS` if `flags` ask to write and the mount is read-only. Fails with the host's
    /// error if the host cannot open the file.
    pub(super) fn open(node: Arc<HostNode>, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
        let writes = flags.writable();
        if writes {
            node.fs.volume.open_writer()?;
            node.opens.fetch_add(1, Ordering::AcqRel);
        }
        // From here on, dropping `file` undoes this.
        let seen = node.failures.begin();
        let file = Arc::new(Self { node, writes, seen });
        let mut request = Request::new(Opcode::Open, file.node.handle);
        request.numbers[0] = (u64::from(flags.readable()) * READ) | (u64::from(writes) * WRITE);
        {
            // Held so that no other task closes the file on the host.
            let _moving = file.node.moving.lock();
            if writes {
                file.node.pinned.store(true, Ordering::Relaxed);
            }
            volume::done(&request)?;
        }
        // Bytes that others wrote until now must be seen, however the file was found.
        file.node.attributes();
        writeback::use_lately(&file.node);
        Ok(file)
    }
}

impl Drop for OpenHostFile {
    fn drop(&mut self) {
        if self.writes {
            // AcqRel: pairs with the Acquire of the task that closes the file on the host.
            let last = self.node.opens.fetch_sub(1, Ordering::AcqRel) == 1;
            if last && self.node.pinned.load(Ordering::Relaxed) {
                // A task that closed another open file at the same time left the rest to this one.
                // Without memory the host keeps the file open longer.
                let _ = writeback::note(&self.node);
            }
            self.node.fs.volume.close_writer();
        }
    }
}

/// Copies up to `most` bytes of `from` into new frames, the first of them at `within` in the first
/// frame. Returns the frames and the number of bytes. Fails with `ENOMEM` and with the error of
/// `from`, but only if no byte was copied.
fn gather(
    from: &mut dyn ByteSource,
    within: usize,
    most: usize,
) -> Result<(Vec<Option<FrameRef>>, usize), Errno> {
    let mut frames = Vec::new();
    let room = (within + most).div_ceil(PAGE_SIZE);
    frames.try_reserve_exact(room).map_err(|_| Errno::ENOMEM)?;
    let mut done = 0;
    while done < most {
        let at = (within + done) % PAGE_SIZE;
        let count = (PAGE_SIZE - at).min(most - done);
        let frame = match memory::alloc_frame(Mobility::Unmovable) {
            Ok(frame) => frame,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        let moved = match from.take_frame(&frame, at, count) {
            Ok(moved) => moved,
            // The bytes before are sent all the same.
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        frames.push(Some(frame));
        done += moved;
        if moved < count {
            break;
        }
    }
    Ok((frames, done))
}

impl File for OpenHostFile {
    fn read(&self, to: &mut dyn ByteSink, offset: &mut u64, _: OpenFlags) -> SysResult {
        let node = &self.node;
        let mut done = 0;
        while to.room() > 0 && done < MAX_RW_COUNT {
            let frame = match node.fetch(*offset / PAGE, AHEAD) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            let left = node.size().saturating_sub(*offset);
            let count = usize::try_from(left).unwrap_or(usize::MAX);
            let count = count.min(PAGE_SIZE - in_page(*offset)).min(to.room());
            if count == 0 {
                break;
            }
            match to.put_frame(&frame, in_page(*offset), count) {
                Ok(moved) => {
                    done += moved;
                    *offset += moved as u64;
                    if moved < count {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            super::super::io::breathe(done);
        }
        Ok(done)
    }

    fn write(&self, from: &mut dyn ByteSource, offset: &mut u64, flags: OpenFlags) -> SysResult {
        let node = &self.node;
        if from.left() == 0 {
            return Ok(0);
        }
        let append = flags.contains(OpenFlags::APPEND);
        if append {
            *offset = node.ask()?.size;
        }
        let mut room = (i64::MAX as u64).saturating_sub(*offset);
        if room == 0 {
            return Err(Errno::EFBIG);
        }
        if let Some(limit) = from.size_limit() {
            if *offset >= limit {
                return Err(Errno::FILE_SIZE_LIMIT);
            }
            room = room.min(limit - *offset);
        }
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let total = from.left().min(MAX_RW_COUNT).min(room);
        let mut done = 0;
        while done < total {
            let within = in_page(*offset);
            let most = (FRAMES_MAX * PAGE_SIZE - within).min(total - done);
            // Gathered before `moving` is locked, because the bytes may be in a mapping of this
            // file.
            let (frames, count) = match gather(from, within, most) {
                Ok(gathered) => gathered,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            let bytes = Outgoing {
                frames: &frames,
                within,
                count,
                offset: (!append).then_some(*offset),
            };
            match node.send(&bytes) {
                Ok((sent, at)) => {
                    done += sent;
                    *offset = at + sent as u64;
                    if sent < most {
                        break;
                    }
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            machine::sched::cond_resched();
        }
        if flags.contains(OpenFlags::DSYNC) {
            self.sync()?;
        }
        Ok(done)
    }

    fn seeks(&self) -> Seeks {
        Seeks::Anywhere
    }

    fn seek_data(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        let size = self.node.attributes().size;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        // The guest does not know of holes, so all of it counts as data.
        Ok(if hole { size } else { offset })
    }

    fn page_source(&self) -> Option<Arc<dyn PageSource>> {
        Some(self.node.views.get(&self.node, false))
    }

    fn shared_page_source(&self, writable: bool) -> Option<Arc<dyn PageSource>> {
        Some(self.node.views.get(&self.node, writable))
    }

    fn sync(&self) -> Result<(), Errno> {
        self.node.sync(&self.seen)
    }

    fn last_close(&self) {
        if self.node.is_dirty() {
            self.node.write_back();
        }
        // This file still counts as open.
        self.node.close_unused(u32::from(self.writes));
    }

    fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<(), Errno> {
        if mode != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let end = offset
            .checked_add(length)
            .filter(|&end| end <= i64::MAX as u64);
        let end = end.ok_or(Errno::EFBIG)?;
        if end > self.node.ask()?.size {
            self.node.resize(end)?;
        }
        Ok(())
    }
}
