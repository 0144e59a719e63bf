//! ELF files of programs and of their interpreters: parses them and maps them.

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

/// A parsed ELF file of a program or of an interpreter.
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
    /// Parses `file`, and forbids writing to the file while the result exists.
    ///
    /// # Errors
    /// Fails with `ENOEXEC` if the file cannot run here; the console shows the reason. Fails with
    /// `ETXTBSY` if the file is open for writing, with `ENOMEM`, and with the errors of reading.
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

    /// Returns the path of the interpreter that the file names, or `None` if it names none.
    ///
    /// # Errors
    /// Fails with `ENOEXEC` if the path is malformed, with `EIO` if the file ends before it, and
    /// with `ENOMEM`.
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

    /// Returns the address of the first instruction. `bias` is added to the addresses in the file,
    /// with wrap-around: the file may be mapped below its own addresses.
    pub(super) fn entry(&self, bias: u64) -> u64 {
        bias.wrapping_add(self.header.entry)
    }

    /// Returns the address of the program headers in memory, with `bias` added; 0 if they are not
    /// mapped.
    pub(super) fn headers(&self, bias: u64) -> u64 {
        let headers = self.layout.headers;
        headers.map_or(0, |at| bias.wrapping_add(at))
    }

    /// Maps the segments of the file into `vm`, with `bias` added to their addresses.
    ///
    /// # Errors
    /// Fails with `ENOEXEC` for a file that cannot be mapped, with `ENOMEM`, and with the errors of
    /// the mapping.
    pub(super) fn map_at(&self, vm: &Arc<AddressSpace>, bias: u64) -> Result<(), Errno> {
        for segment in elf::segments(&self.table) {
            self.map(vm, bias, &segment)?;
        }
        Ok(())
    }

    /// Maps the segments of the file into `vm` at a free address, unless the file has a fixed one.
    /// Returns the bias, which was added to the addresses in the file.
    ///
    /// # Errors
    /// Fails with the errors of [`Self::map_at`].
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
                // As on Linux a page behind the file's end faults only when it is used.
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

/// Prints on the console why a file cannot run. Returns `ENOEXEC`.
fn refuse(file: &OpenFile, error: ElfError) -> Errno {
    let path = file.path();
    let path = path::printable(&path);
    match error {
        // Shells try such files as scripts, so nothing is printed.
        ElfError::NotElf => {}
        ElfError::WrongMachine => console!("exec: {path} is not an x86-64 program"),
        ElfError::NotExecutable => console!("exec: {path} is an ELF file, but no program"),
        ElfError::Malformed(field) => console!("exec: {path} is malformed: {field}"),
    }
    Errno::ENOEXEC
}
