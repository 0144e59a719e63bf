//! Answers the guest's requests about volumes.

use super::content::Ram;
use super::handles::Volumes;
use ebb_wire::root::Answer;
use ebb_wire::root::{Entry, Facts as EntryFacts};
use ebb_wire::volume::{Ask, Facts, Request};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::fs::File;
use std::time::{SystemTime, UNIX_EPOCH};

impl Volumes {
    /// Does what `request` asks for and writes the result to `answer`. `file` is the guest's
    /// memory, and `frame_offset` returns a frame's offset in it, or `None` outside of it.
    ///
    /// # Errors
    /// Fails with the error that the guest's program gets.
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
        let facts: Facts = match request.ask {
            Ask::Top => {
                let handle = self.top(handle)?;
                self.facts(handle)?.write(answer);
                let time = SystemTime::now().duration_since(UNIX_EPOCH);
                let nanos = time.map_or(0, |time| time.as_nanos());
                answer.number(u64::try_from(nanos).unwrap_or(0));
                return Ok(());
            }
            Ask::Look => self.look(handle, name)?,
            Ask::Facts => self.facts(handle)?,
            Ask::Change => self.change(handle, &numbers)?,
            Ask::File => self.make_file(handle, name, numbers[0])?,
            Ask::Folder => self.make_folder(handle, name, numbers[0])?,
            Ask::Link => self.make_link(handle, name, target)?,
            Ask::Name => self.name(handle, name, numbers[0])?,
            Ask::List => return self.list(handle, numbers[0], answer),
            Ask::Target => {
                let entry = Entry {
                    name: b"",
                    facts: EntryFacts::default(),
                    target: &self.target(handle)?,
                };
                return if answer.entry(&entry) {
                    Ok(())
                } else {
                    Err(Errno::OVERFLOW)
                };
            }
            Ask::Unlink => return self.remove(handle, name, AtFlags::empty()),
            Ask::RemoveFolder => return self.remove(handle, name, AtFlags::REMOVEDIR),
            Ask::Rename => {
                return self.rename((handle, name), (numbers[0], target), numbers[1]);
            }
            Ask::Open => return self.check_open(handle, numbers[0]),
            Ask::Sync => return self.sync(handle),
            Ask::Close => {
                self.close(handle);
                return Ok(());
            }
            Ask::Forget => return self.forget(handle, numbers[0]),
            Ask::Room => {
                self.room(handle)?
                    .into_iter()
                    .for_each(|n| answer.number(n));
                return Ok(());
            }
            Ask::Read => {
                let (facts, count) = self.read(request, &ram)?;
                facts.write(answer);
                answer.number(count);
                return Ok(());
            }
            Ask::Write => {
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
