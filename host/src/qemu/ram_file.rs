//! The file that is a guest's RAM, and the pages that the host keeps it in.

use crate::confine::{HugePageAdvice, huge_tmpfs};
use crate::machine::HostPages;
use crate::system::huge_pages;
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::fmt;
use std::io;

/// A huge page of the host's.
pub(crate) const HUGE_PAGE: u64 = 2 << 20;
/// A guest with less memory than this is left in base pages by `auto`.
const HUGE_LEAST: u64 = 128 << 20;
/// So is one with more than this, whose memory does not fit below the devices: it would hold some 10 MiB
/// more from the start, for each part of its memory has blocks with a little in them.
const HUGE_MOST: u64 = 0xb000_0000 - 1;

/// What the host keeps a guest's RAM in.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Backing {
    /// A file on a tmpfs of `ebb`'s own, in huge pages.
    Huge,
    /// A memfd, in huge pages, since the host gives them to shared memory.
    Advised,
    /// A memfd, in base pages.
    Base,
    /// A memfd of huge pages from the host's pool, reserved while the guest runs.
    Pool,
}

impl Backing {
    /// Whether memory comes and goes by whole huge pages.
    pub(crate) fn is_huge(self) -> bool {
        self != Self::Base
    }

    /// Returns what QEMU's advice about huge pages does, for a guest with `bytes` of RAM.
    pub(crate) fn advice(self, bytes: u64) -> HugePageAdvice {
        match self {
            Self::Advised | Self::Huge => HugePageAdvice::HeededFor(bytes),
            Self::Base | Self::Pool => HugePageAdvice::Refused,
        }
    }

    /// One word for tables and records.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Huge | Self::Advised => "huge",
            Self::Base => "base",
            Self::Pool => "pool",
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Huge => "huge pages, by a tmpfs of its own",
            Self::Advised => "huge pages, which the host gives to shared memory",
            Self::Base => "base pages",
            Self::Pool => "huge pages of the host's pool",
        })
    }
}

/// Why a guest's RAM cannot be had as it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackingError {
    #[error("--host-pages huge: this host gives a guest no huge pages: {0}")]
    NoHugePages(io::Error),
}

/// Makes the files of guests' RAM.
#[derive(Debug)]
pub(crate) struct RamMaker {
    backing: Backing,
    mount: Option<OwnedFd>,
    /// Why there are no huge pages, where they were wanted.
    lack: Option<String>,
}

impl RamMaker {
    /// Finds out which pages this host has for a guest with `bytes` of RAM. Call this while the process
    /// has all of its capabilities.
    ///
    /// # Errors
    /// [`BackingError::NoHugePages`] if huge pages alone will do, and there are none.
    pub(crate) fn prepare(asked: HostPages, bytes: u64) -> Result<Self, BackingError> {
        let plain = |backing| Self {
            backing,
            mount: None,
            lack: None,
        };
        match asked {
            HostPages::Base => return Ok(plain(Backing::Base)),
            HostPages::Pool => return Ok(plain(Backing::Pool)),
            HostPages::Auto if !(HUGE_LEAST..=HUGE_MOST).contains(&bytes) => {
                return Ok(plain(Backing::Base));
            }
            HostPages::Auto | HostPages::Huge => {}
        }
        let tried = huge_tmpfs().and_then(|mount| {
            probe(&new_file(&mount)?)?;
            Ok(mount)
        });
        match tried {
            Ok(mount) => Ok(Self {
                mount: Some(mount),
                ..plain(Backing::Huge)
            }),
            Err(_) if huge_pages::are_for_shared_memory() => Ok(plain(Backing::Advised)),
            Err(error) if asked == HostPages::Huge => Err(BackingError::NoHugePages(error)),
            Err(error) => Ok(Self {
                lack: Some(error.to_string()),
                ..plain(Backing::Base)
            }),
        }
    }

    /// Base pages.
    pub(crate) fn base() -> Self {
        Self {
            backing: Backing::Base,
            mount: None,
            lack: None,
        }
    }

    /// What the files are kept in.
    pub(crate) fn backing(&self) -> Backing {
        self.backing
    }

    /// What cannot be set up where a file cannot be made.
    pub(super) fn what(&self) -> &'static str {
        match self.backing {
            Backing::Pool => {
                "the guest's memory in the host's pool of huge pages (/proc/sys/vm/nr_hugepages)"
            }
            _ => "the guest's memory",
        }
    }

    /// Why there are no huge pages, if they were wanted.
    pub(crate) fn lack(&self) -> Option<&str> {
        self.lack.as_deref()
    }

    /// Makes a file of `bytes` for one guest. No memory is in it yet.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn file(&self, bytes: u64) -> Result<OwnedFd, Errno> {
        let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let memfd = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let name = "ebb-guest-ram";
        if let Some(mount) = &self.mount {
            // Its size is not sealed, which a tmpfs cannot do: see `sigbus` and `confine/calls`.
            let file = new_file(mount)?;
            rustix::fs::ftruncate(&file, bytes)?;
            return Ok(file);
        }
        let (flags, bytes) = match self.backing {
            Backing::Pool => (
                memfd | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
                bytes.next_multiple_of(HUGE_PAGE),
            ),
            _ => (memfd, bytes),
        };
        let file = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&file, bytes)?;
        rustix::fs::fcntl_add_seals(&file, sealed)?;
        Ok(file)
    }
}

/// Makes a file without a name. QEMU, which is another user, opens it by its descriptor; the folder that it is in
/// is open to no process but this one.
fn new_file(mount: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(mount, ".", flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o666))?;
    Ok(file)
}

/// Checks that touching one byte of `file` makes a whole huge page resident.
fn probe(file: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::ftruncate(file, HUGE_PAGE)?;
    let len = usize::try_from(HUGE_PAGE).map_err(|_| Errno::OVERFLOW)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let address =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0)? };
    // SAFETY: the mapping is `len` bytes long, and of a file as long that no other process has.
    unsafe { address.cast::<u8>().write_volatile(1) };
    // SAFETY: no reference into the mapping was made.
    unsafe { rustix::mm::munmap(address, len)? };
    let blocks = u64::try_from(rustix::fs::fstat(file)?.st_blocks).unwrap_or(0);
    if blocks * 512 < HUGE_PAGE {
        return Err(Errno::NOMEM);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::ram::{GuestAddress, GuestRam};
    use super::super::window::Window;
    use super::*;
    use crate::machine::Machine;
    use std::sync::atomic::Ordering::Relaxed;

    const RAM: u64 = 256 << 20;

    fn huge() -> (RamMaker, GuestRam) {
        let maker = RamMaker::prepare(HostPages::Huge, RAM).unwrap();
        let ram = GuestRam::made_by(&maker, Machine::Microvm, RAM).unwrap();
        (maker, ram)
    }

    /// Maps all of RAM as QEMU does, and writes a byte.
    fn touch(ram: &GuestRam, at: u64) {
        let len = usize::try_from(RAM).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                access,
                MapFlags::SHARED,
                ram.fd(),
                0,
            )
        };
        let address = address.unwrap();
        let at = usize::try_from(at).unwrap();
        assert!(at < len);
        // SAFETY: inside the mapping, which no reference points into.
        unsafe { address.cast::<u8>().add(at).write_volatile(1) };
        // SAFETY: as for the write.
        unsafe { rustix::mm::munmap(address, len) }.unwrap();
    }

    #[test]
    fn memory_comes_and_goes_by_huge_pages() {
        let (_maker, ram) = huge();
        assert!(ram.backing().is_huge());
        assert_eq!(ram.resident_bytes().unwrap(), 0);
        touch(&ram, 5 * HUGE_PAGE + 4097);
        assert_eq!(ram.resident_bytes().unwrap(), HUGE_PAGE);
        ram.punch(GuestAddress(5 * HUGE_PAGE), HUGE_PAGE).unwrap();
        assert_eq!(ram.resident_bytes().unwrap(), 0);
        // A word that is read where nothing is.
        let word = ram.atomic_u64(GuestAddress(9 * HUGE_PAGE)).unwrap();
        assert_eq!(word.load(Relaxed), 0);
        assert_eq!(ram.resident_bytes().unwrap(), 4096);
    }

    #[test]
    fn sparse_parts_stay_in_base_pages() {
        let (_maker, mut ram) = huge();
        ram.keep_in_base_pages(4096, HUGE_PAGE);
        ram.keep_in_base_pages(RAM - 1, 2 * HUGE_PAGE);
        assert_eq!(ram.resident_bytes().unwrap(), 3 * 4096);
        touch(&ram, 8192);
        touch(&ram, HUGE_PAGE + 8192);
        touch(&ram, RAM - 4096);
        assert_eq!(ram.resident_bytes().unwrap(), 6 * 4096);
        touch(&ram, 2 * HUGE_PAGE);
        assert_eq!(ram.resident_bytes().unwrap(), 6 * 4096 + HUGE_PAGE);
        let whole = [0, 1, 2, 3].map(|block| ram.is_one_page(GuestAddress(block * HUGE_PAGE + 7)));
        assert_eq!(whole, [false, false, true, true]);
    }

    #[test]
    fn a_file_that_was_cut_reads_as_zeroes() {
        let (_maker, ram) = huge();
        touch(&ram, 4096);
        let word = ram.atomic_u64(GuestAddress(4096)).unwrap();
        assert_eq!(word.load(Relaxed), 1);
        let window = Window::new(&ram, GuestAddress(0), 8192).unwrap();
        rustix::fs::ftruncate(ram.fd(), 0).unwrap();
        assert_eq!(word.load(Relaxed), 0);
        let far = ram.atomic_u64(GuestAddress(RAM - 8)).unwrap();
        assert_eq!(far.load(Relaxed), 0);
        // SAFETY: inside the window, which no reference points into.
        let byte = unsafe { window.base().add(4096).read_volatile() };
        assert_eq!(byte, 0);
        let mut bytes = [0; 8];
        assert_eq!(ram.read_at(GuestAddress(4096), &mut bytes), None);
    }

    #[test]
    fn small_and_large_guests_are_left_in_base_pages() {
        for bytes in [HUGE_LEAST - 1, HUGE_MOST + 1, 64 << 30] {
            let maker = RamMaker::prepare(HostPages::Auto, bytes).unwrap();
            assert_eq!(maker.backing(), Backing::Base);
        }
        for bytes in [HUGE_LEAST, HUGE_MOST] {
            let maker = RamMaker::prepare(HostPages::Auto, bytes).unwrap();
            assert!(maker.backing().is_huge() && maker.lack().is_none());
        }
    }

    #[test]
    fn a_pool_has_all_pages_of_a_guest_or_none() {
        let maker = RamMaker::prepare(HostPages::Pool, RAM).unwrap();
        // No machine of the tests has 4 TiB.
        let error = GuestRam::made_by(&maker, Machine::Q35, 4 << 40).unwrap_err();
        assert_eq!(error, Errno::NOMEM);
    }

    #[test]
    fn a_memfd_that_the_host_gives_huge_pages_is_sealed() {
        let maker = RamMaker {
            backing: Backing::Advised,
            mount: None,
            lack: None,
        };
        let ram = GuestRam::made_by(&maker, Machine::Microvm, RAM).unwrap();
        assert!(ram.backing().is_huge());
        assert_eq!(rustix::fs::ftruncate(ram.fd(), 0), Err(Errno::PERM));
    }
}
