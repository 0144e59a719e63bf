//! Files in memory. Every page of a filled file has a mark that tells its offset.

use crate::Failure;
use crate::mapping::{Mapping, PAGE_BYTES};
use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};

/// The offset of the mark in its page. `Mapping::touch` writes elsewhere.
const MARK_OFFSET: usize = PAGE_BYTES - 1;
/// Number of pages in one write.
const PAGES_A_WRITE: usize = 256;

/// Creates a file of `bytes` bytes without a name (`memfd_create`). All its pages are in the page
/// cache, and each has its mark. Fails with `System` if the file cannot be created or written.
pub(crate) fn filled(bytes: usize) -> Result<File, Failure> {
    let mut file = create(0)?;
    let mut buffer = vec![0; PAGES_A_WRITE * PAGE_BYTES];
    for start in (0..bytes).step_by(buffer.len()) {
        for offset in (0..buffer.len()).step_by(PAGE_BYTES) {
            buffer[offset + MARK_OFFSET] = mark(start + offset);
        }
        let count = buffer.len().min(bytes - start);
        file.write_all(&buffer[..count])
            .map_err(Failure::system(format!("write a file of {bytes} bytes")))?;
    }
    Ok(file)
}

/// Creates an empty file without a name (`memfd_create`). Fails with `System` if that fails.
pub(crate) fn empty() -> Result<File, Failure> {
    create(0)
}

/// Creates a file of `bytes` bytes, a multiple of 2 MiB, that consists of huge pages of the
/// kernel's pool. None is allocated yet. Fails with `System` if the kernel has no such files or
/// refuses the size.
pub(crate) fn of_huge_pages(bytes: usize) -> Result<File, Failure> {
    let file = create(libc::MFD_HUGETLB | libc::MFD_HUGE_2MB)?;
    file.set_len(bytes as u64)
        .map_err(Failure::system(format!("make a file {bytes} bytes long")))?;
    Ok(file)
}

fn create(flags: libc::c_uint) -> Result<File, Failure> {
    let flags = libc::MFD_CLOEXEC | flags;
    // SAFETY: the name is a C string, and the call accesses no other memory.
    let descriptor = unsafe { libc::memfd_create(c"ebb-experiment".as_ptr(), flags) };
    if descriptor < 0 {
        return Err(Failure::last_os("memfd_create"));
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

/// Checks the mark of each whole page in the first `bytes` bytes of `mapping`, a mapping of a file
/// from [`filled`]. Other bytes may differ. Fails with `Wrong` and the number of pages with another
/// mark. Panics if the mapping is shorter.
pub(crate) fn check(mapping: &Mapping, bytes: usize) -> Result<(), Failure> {
    let wrong = (0..bytes / PAGE_BYTES)
        .map(|page| page * PAGE_BYTES)
        .filter(|&start| mapping.read(start + MARK_OFFSET) != mark(start))
        .count();
    match wrong {
        0 => Ok(()),
        wrong => Err(Failure::Wrong(format!(
            "{wrong} pages of a private mapping differ from the file"
        ))),
    }
}

/// Returns the mark of the page at `offset`. Adjacent pages and pages 256 apart have different
/// marks.
#[allow(clippy::cast_possible_truncation, reason = "it is a hash")]
fn mark(offset: usize) -> u8 {
    let page = offset / PAGE_BYTES;
    (page ^ page.rotate_right(8)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_mapping_has_the_files_contents_and_keeps_writes_to_itself() {
        let bytes = 300 * PAGE_BYTES;
        let file = filled(bytes).expect("a file in memory");
        let mut mapping = Mapping::of_file(&file, bytes).expect("map");
        mapping.touch();
        check(&mapping, bytes).expect("the file's contents");
        mapping.write(7 * PAGE_BYTES + MARK_OFFSET, 0xee);
        assert!(check(&mapping, bytes).is_err());
        let again = Mapping::of_file(&file, bytes).expect("map again");
        check(&again, bytes).expect("the file is unchanged");
        assert!(again.check().is_err());
    }
}
