//! The master of a pseudo-terminal as a file.

use super::control;
use super::device::{CHUNK, Terminal, breathe, take_turn};
use crate::fs::io::{ByteSink, ByteSource};
use crate::fs::owner::{Kind, Recipient};
use crate::fs::poll::{Notifier, PollMask};
use crate::fs::{File, OpenFlags};
use crate::process::signal::recipient;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use logic::errno::{Errno, SysResult};

/// The most bytes that a read returns, as on Linux.
const MOST: usize = 4095;

/// An open master of a pseudo-terminal. Closing it hangs the terminal up.
#[derive(Debug)]
pub(super) struct Master(pub(super) Arc<Terminal>);

impl Drop for Master {
    fn drop(&mut self) {
        self.0.master_gone.store(true, Ordering::SeqCst);
        self.0.hang_up();
    }
}

impl File for Master {
    fn read(&self, to: &mut dyn ByteSink, _: &mut u64, flags: OpenFlags) -> SysResult {
        if to.room() == 0 {
            return Ok(0);
        }
        let mut buffer = Vec::new();
        let size = to.room().min(MOST);
        buffer.try_reserve_exact(size).map_err(|_| Errno::ENOMEM)?;
        buffer.resize(size, 0);
        loop {
            // Read before the output: a writer writes first and closes then.
            let closed = self.0.is_closed();
            let mut told = None;
            let count = self.0.change(|line| {
                told = line.take_packet();
                if told.is_some() {
                    return 0;
                }
                // In packet mode a byte before the data announces it.
                let before = usize::from(line.is_in_packet_mode());
                if line.output_bytes() == 0 {
                    return 0;
                }
                let count = line.peek_output(&mut buffer[before..]);
                line.consume_output(count);
                before + count
            });
            if let Some(packet) = told {
                return to.put(&[packet.bits()]);
            }
            if count > 0 {
                return to.put(&buffer[..count]);
            }
            if closed {
                return Err(Errno::EIO);
            }
            if flags.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            self.0.far.queue().wait(|| {
                let some =
                    |line: &logic::tty::Discipline| line.output_bytes() > 0 || line.has_packet();
                self.0.is_closed() || self.0.look(some)
            })?;
        }
    }

    fn write(&self, from: &mut dyn ByteSource, _: &mut u64, flags: OpenFlags) -> SysResult {
        let _turn = take_turn(&self.0.typing, flags.nonblocking())?;
        let mut buffer = [0; CHUNK];
        let mut done = 0;
        while from.left() > 0 {
            let taken = match from.take(&mut buffer) {
                Ok(taken) => taken,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            let mut rest = &buffer[..taken];
            while !rest.is_empty() {
                let count = self.0.type_bytes(rest);
                rest = &rest[count..];
                done += count;
                if count > 0 {
                    continue;
                }
                if self.0.look(|line| line.has_input_room()) {
                    return if done > 0 {
                        Ok(done)
                    } else {
                        Err(Errno::ENOMEM)
                    };
                }
                let end = if flags.nonblocking() {
                    Err(Errno::EAGAIN)
                } else {
                    let room = || self.0.look(|line| line.has_input_room());
                    self.0.far.queue().wait(room).map_err(Errno::from)
                };
                match end {
                    Ok(()) => {}
                    Err(error) if done == 0 => return Err(error),
                    Err(_) => return Ok(done),
                }
            }
            // Bytes were written, so the call returns their count.
            if breathe().is_err() {
                break;
            }
        }
        Ok(done)
    }

    fn poll(&self) -> PollMask {
        let mut mask = PollMask::empty();
        self.0.look(|line| {
            mask.set(PollMask::READABLE, line.output_bytes() > 0);
            mask.set(PollMask::WRITABLE, line.has_input_room());
            if line.has_packet() {
                mask |= PollMask::PRI | PollMask::READABLE;
            }
        });
        if self.0.is_closed() {
            mask |= PollMask::HUP;
        }
        mask
    }

    fn notifier(&self) -> Option<Arc<Notifier>> {
        Some(self.0.far.clone())
    }

    fn signals(&self) -> Result<Option<Arc<Notifier>>, Errno> {
        Ok(self.notifier())
    }

    fn usual_owner(&self) -> Option<(Kind, Arc<dyn Recipient>)> {
        recipient::caller()
    }

    fn ioctl(&self, command: u32, argument: u64) -> SysResult {
        control::ioctl(&self.0, control::Side::Master, command, argument)
    }
}
