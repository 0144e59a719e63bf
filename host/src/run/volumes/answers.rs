//! Answers the guest's requests about volumes.

use super::content::Ram;
use super::handles::Volumes;
use ebb_wire::root::Answer;
use ebb_wire::root::{Attributes as EntryAttributes, Entry};
use ebb_wire::volume::{Attributes, Opcode, Request};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::fs::File;
use std::time::{SystemTime, UNIX_EPOCH};

impl Volumes {
    /// Carries out one `request` of the guest and writes the result to `answer`. `file` is the
    /// guest's memory. `frame_offset` returns the offset in it of the frame with a guest-physical
    /// address, and `None` if there is no such frame.
    ///
    /// # Errors
    /// Fails with the error number for the guest's program: `ESTALE` for an unknown handle,
    /// `EFAULT` for a frame outside of the guest's memory, `EDQUOT` at the volume's limit, or
    /// another one of the host. The caller then has to discard the partly written `answer`.
    pub(crate) fn answer(
        &mut self,
        request: &Request<'_>,
        file: &File,
        frame_offset: &dyn Fn(u64) -> Option<u64>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let ram = Ram { file, frame_offset };
        let Request {
            handle,
            numbers,
            name,
            target,
            ..
        } = *request;
        let facts: Attributes = match request.opcode {
            Opcode::Top => {
                let handle = self.top(handle)?;
                self.facts(handle)?.write(answer);
                let time = SystemTime::now().duration_since(UNIX_EPOCH);
                let nanos = time.map_or(0, |time| time.as_nanos());
                answer.number(u64::try_from(nanos).unwrap_or(0));
                return Ok(());
            }
            Opcode::Lookup => self.look(handle, name)?,
            Opcode::GetAttributes => self.facts(handle)?,
            Opcode::SetAttributes => self.change(handle, &numbers)?,
            Opcode::CreateFile => self.make_file(handle, name, numbers[0])?,
            Opcode::CreateFolder => self.make_folder(handle, name, numbers[0])?,
            Opcode::CreateSymlink => self.make_link(handle, name, target)?,
            Opcode::CreateLink => self.name(handle, name, numbers[0])?,
            Opcode::List => return self.list(handle, numbers[0], answer),
            Opcode::ReadLink => {
                let entry = Entry {
                    name: b"",
                    attributes: EntryAttributes::default(),
                    target: &self.target(handle)?,
                };
                return if answer.entry(&entry) {
                    Ok(())
                } else {
                    Err(Errno::OVERFLOW)
                };
            }
            Opcode::Unlink => return self.remove(handle, name, AtFlags::empty()),
            Opcode::RemoveFolder => return self.remove(handle, name, AtFlags::REMOVEDIR),
            Opcode::Rename => {
                return self.rename((handle, name), (numbers[0], target), numbers[1]);
            }
            Opcode::Open => return self.check_open(handle, numbers[0]),
            Opcode::Sync => return self.sync(handle),
            Opcode::Close => {
                self.close(handle);
                return Ok(());
            }
            Opcode::Forget => return self.forget(handle, numbers[0]),
            Opcode::StatFs => {
                self.room(handle)?
                    .into_iter()
                    .for_each(|n| answer.number(n));
                return Ok(());
            }
            Opcode::Read => {
                let (facts, count) = self.read(request, &ram)?;
                facts.write(answer);
                answer.number(count);
                return Ok(());
            }
            Opcode::Write => {
                let (facts, count, offset) = self.write(request, &ram)?;
                facts.write(answer);
                answer.number(count);
                answer.number(offset);
                return Ok(());
            }
        };
        facts.write(answer);
        Ok(())
    }
}
