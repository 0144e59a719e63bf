//! ELF files of programs and of what loads them: what they say, and how they get into memory.

use crate::fs::{self, OpenFile};
use crate::vm::{AddressSpace, Backing, MapFlags, MappedFile, Prot};
use alloc::sync::Arc;
use alloc::vec::Vec;
use logic::elf::{self, ElfError, Header, Layout, Segment};
use logic::errno::Errno;
use logic::path;
use machine::arch::USER_END;
use machine::console;
use machine::memory;

const PAGE: u64 = 4096;

/// A file that has been looked at.
pub(super) struct ElfFile {
    pub(super) file: Arc<OpenFile>,
    pub(super) header: Header,
    pub(super) layout: Layout,
    table: Vec<u8>,
}

fn zeros(bytes: usize) -> Result<Vec<u8>, Errno> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(bytes).map_err(|_| Errno::ENOMEM)?;
    buffer.resize(bytes, 0);
    Ok(buffer)
}

impl ElfFile {
    /// Looks at a file.
    ///
    /// # Errors
    /// `ENOEXEC` when it is none that can run here; the console says why. `ETXTBSY` when somebody
    /// has it open for writing.
    pub(super) fn open(file: Arc<OpenFile>) -> Result<Self, Errno> {
        file.forbid_writing()?;
        let mut bytes = [0; elf::HEADER_BYTES];
        fs::read_exact_at(&file, 0, &mut bytes)?;
        let header = elf::header(&bytes).map_err(|error| refuse(&file, error))?;
        let mut table = zeros(header.count * elf::PROGRAM_HEADER_BYTES)?;
        fs::read_exact_at(&file, header.table_offset, &mut table)?;
        let layout =
            elf::layout(&header, &table, USER_END).map_err(|error| refuse(&file, error))?;
        Ok(Self {
            file,
            header,
            layout,
            table,
        })
    }

    /// The path of the program that loads it, if it names one.
    ///
    /// # Errors
    /// `ENOEXEC` when that is no path, `EIO` when the file ends before it, `ENOMEM`.
    pub(super) fn interpreter(&self) -> Result<Option<Vec<u8>>, Errno> {
        let Some(found) = self.layout.interpreter else {
            return Ok(None);
        };
        let mut path = zeros(found.bytes)?;
        fs::read_exact_at(&self.file, found.offset, &mut path).map_err(|_| Errno::EIO)?;
        let malformed = || refuse(&self.file, ElfError::Malformed("PT_INTERP"));
        if path.pop() != Some(0) {
            return Err(malformed());
        }
        path.truncate(
            path.iter()
                .position(|&byte| byte == 0)
                .unwrap_or(path.len()),
        );
        Ok(Some(path))
    }

    /// Its first instruction, where `bias` is added to the addresses in it. Sums wrap around: it may be put below where it
    /// would be by itself.
    pub(super) fn entry(&self, bias: u64) -> u64 {
        bias.wrapping_add(self.header.entry)
    }

    /// Its program headers in memory likewise; 0: they are not there.
    pub(super) fn headers(&self, bias: u64) -> u64 {
        let headers = self.layout.headers;
        headers.map_or(0, |at| bias.wrapping_add(at))
    }

    /// Maps its segments.
    ///
    /// # Errors
    /// `ENOMEM`, `ENOEXEC` for a file that cannot be mapped.
    pub(super) fn map_at(&self, vm: &Arc<AddressSpace>, bias: u64) -> Result<(), Errno> {
        for segment in elf::segments(&self.table) {
            self.map(vm, bias, &segment)?;
        }
        Ok(())
    }

    /// The same where there is room, unless it says where it wants to be; gives the bias.
    ///
    /// # Errors
    /// As [`Self::map_at`].
    pub(super) fn map_anywhere(&self, vm: &Arc<AddressSpace>) -> Result<u64, Errno> {
        let mut bias = 0;
        if !self.header.fixed {
            let bytes = (self.layout.end - self.layout.start).next_multiple_of(PAGE);
            let nothing = Prot::empty();
            let start = vm.map(None, bytes, nothing, MapFlags::empty(), Backing::Anonymous)?;
            vm.unmap(start, bytes)?;
            bias = start.wrapping_sub(self.layout.start);
        }
        self.map_at(vm, bias)?;
        Ok(bias)
    }

    fn map(&self, vm: &Arc<AddressSpace>, bias: u64, segment: &Segment) -> Result<(), Errno> {
        if segment.memory_bytes == 0 {
            return Ok(());
        }
        let mut prot = Prot::empty();
        prot.set(Prot::READ, segment.read);
        prot.set(Prot::WRITE, segment.write);
        prot.set(Prot::EXEC, segment.execute);
        let into_page = segment.address % PAGE;
        let start = bias.wrapping_add(segment.address - into_page);
        let file_end = start
            .wrapping_add(into_page)
            .wrapping_add(segment.file_bytes);
        let mapped_end = if segment.file_bytes == 0 {
            start
        } else {
            file_end.next_multiple_of(PAGE)
        };
        if segment.file_bytes != 0 {
            let backing = Backing::File {
                file: mapped_file(&self.file)?,
                offset: segment.offset - into_page,
                shared: false,
                writable: false,
            };
            vm.map(
                Some(start),
                mapped_end - start,
                prot,
                MapFlags::FIXED,
                backing,
            )?;
            if segment.memory_bytes > segment.file_bytes && mapped_end > file_end {
                let zeros = [0; memory::PAGE_SIZE];
                let bytes = usize::try_from(mapped_end - file_end).unwrap_or(zeros.len());
                let zeroed = vm.write_bytes(file_end, &zeros[..bytes.min(zeros.len())], true);
                // As on Linux a page behind the file's end is found missing when it is used.
                zeroed.or_else(|error| match error {
                    Errno::EFAULT => Ok(()),
                    other => Err(other),
                })?;
            }
        }
        let end = bias.wrapping_add(segment.end()).next_multiple_of(PAGE);
        if end > mapped_end {
            let flags = MapFlags::FIXED;
            vm.map(
                Some(mapped_end),
                end - mapped_end,
                prot,
                flags,
                Backing::Anonymous,
            )?;
        }
        Ok(())
    }
}

fn mapped_file(file: &OpenFile) -> Result<MappedFile, Errno> {
    let id = file.node().id();
    let source = file.file().page_source().ok_or(Errno::ENOEXEC)?;
    Ok(MappedFile::new(
        source,
        Arc::from(file.path()),
        id.inode,
        id.device,
    ))
}

/// Says on the console why a file cannot run.
fn refuse(file: &OpenFile, error: ElfError) -> Errno {
    let path = file.path();
    let path = path::printable(&path);
    match error {
        // Shells try such files as scripts: nothing to say.
        ElfError::NotElf => {}
        ElfError::WrongMachine => console!("exec: {path} is not an x86-64 program"),
        ElfError::NotExecutable => console!("exec: {path} is an ELF file, but no program"),
        ElfError::Malformed(field) => console!("exec: {path} is malformed: {field}"),
    }
    Errno::ENOEXEC
}
