//! The file that backs a guest's RAM, and the kind of pages that the host uses for it.

use crate::confine::{HugePageAdvice, huge_tmpfs};
use crate::machine::HostPages;
use crate::system::huge_pages;
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::fmt;
use std::io;

/// The size of a huge page of the host in bytes.
pub(crate) const HUGE_PAGE: u64 = 2 << 20;
/// The smallest guest, in bytes of RAM, for which `--host-pages auto` uses huge pages.
const HUGE_LEAST: u64 = 128 << 20;
/// The largest guest, in bytes of RAM, for which `--host-pages auto` uses huge pages. The RAM of a
/// larger guest does not fit below the devices. It would hold some 10 MiB more from the start,
/// since each of its parts has blocks with little in them.
const HUGE_MOST: u64 = 0xb000_0000 - 1;

/// The kind of file and pages that back a guest's RAM on the host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Backing {
    /// A file on a tmpfs that `ebb` mounts, in huge pages.
    Huge,
    /// A memfd, in huge pages, because the host's settings allow them for shared memory.
    Advised,
    /// A memfd in base pages of 4 KiB.
    Base,
    /// A memfd of huge pages from the host's hugetlb pool, reserved while the guest runs.
    Pool,
}

impl Backing {
    /// Returns whether the host uses huge pages, so that memory is allocated and freed 2 MiB at a
    /// time. Returns `false` only for [`Self::Base`].
    pub(crate) fn is_huge(self) -> bool {
        self != Self::Base
    }

    /// Returns which effect QEMU's `madvise` for huge pages has: heeded for a guest with `bytes` of
    /// RAM if huge pages of shared memory are in use, else refused.
    pub(crate) fn advice(self, bytes: u64) -> HugePageAdvice {
        match self {
            Self::Advised | Self::Huge => HugePageAdvice::HeededFor(bytes),
            Self::Base | Self::Pool => HugePageAdvice::Refused,
        }
    }

    /// Returns a short name for tables and records: `huge`, `base`, or `pool`.
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

/// The reason why the kind of pages that the user asked for is not available.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackingError {
    #[error("--host-pages huge: this host gives a guest no huge pages: {0}")]
    NoHugePages(io::Error),
}

/// Makes RAM files for guests, all in the same kind of file and pages.
#[derive(Debug)]
pub(crate) struct RamMaker {
    /// The kind of file and pages of each file.
    backing: Backing,
    /// The tmpfs for [`Backing::Huge`].
    mount: Option<OwnedFd>,
    /// Why the files are in base pages although huge pages were wanted.
    lack: Option<String>,
}

impl RamMaker {
    /// Chooses the kind of file and pages for a guest with `bytes` of RAM, by the user's choice
    /// `asked` and by what this host offers. For huge pages mounts a tmpfs and tries one. Call this
    /// while the process has all of its capabilities, which mounting needs.
    ///
    /// With `Auto`, guests below 128 MiB or too large for the memory below the devices get base
    /// pages, and so does a guest on a host without huge pages. [`Self::lack`] tells why in the
    /// latter case. The host's pool is not examined here.
    ///
    /// # Errors
    /// [`BackingError::NoHugePages`] if `asked` is `Huge` and this host has none.
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

    /// Returns a maker of RAM files in base pages.
    pub(crate) fn base() -> Self {
        Self {
            backing: Backing::Base,
            mount: None,
            lack: None,
        }
    }

    /// Returns the kind of file and pages that this maker uses.
    pub(crate) fn backing(&self) -> Backing {
        self.backing
    }

    /// Returns a name of the guest's memory for error messages, which mentions the host's pool of
    /// huge pages if that is used.
    pub(super) fn what(&self) -> &'static str {
        match self.backing {
            Backing::Pool => {
                "the guest's memory in the host's pool of huge pages (/proc/sys/vm/nr_hugepages)"
            }
            _ => "the guest's memory",
        }
    }

    /// Returns why the files are in base pages although huge pages were tried. Returns `None` if
    /// they are in huge pages, or huge pages were not tried.
    pub(crate) fn lack(&self) -> Option<&str> {
        self.lack.as_deref()
    }

    /// Makes a RAM file of `bytes` bytes for one guest, with no page resident yet. For the pool,
    /// rounds the size up to whole huge pages. The size of a memfd is sealed; that of a file on a
    /// tmpfs is not.
    ///
    /// # Errors
    /// The kernel's if the file cannot be made, resized or sealed.
    pub(super) fn file(&self, bytes: u64) -> Result<OwnedFd, Errno> {
        let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let memfd = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let name = "ebb-guest-ram";
        if let Some(mount) = &self.mount {
            // A tmpfs cannot seal the size of a file: see `sigbus` and `confine/calls`.
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

/// Makes a file without a name on `mount`. QEMU runs as another user and opens the file by its
/// descriptor, so its mode is 0666. No other process can reach the folder.
fn new_file(mount: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::openat(mount, ".", flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o666))?;
    Ok(file)
}

/// Checks that a write of one byte to `file` makes a whole huge page resident. Fails with `ENOMEM`
/// if it does not.
fn probe(file: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::ftruncate(file, HUGE_PAGE)?;
    let len = usize::try_from(HUGE_PAGE).map_err(|_| Errno::OVERFLOW)?;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
    let address =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0)? };
    // SAFETY: the mapping has `len` bytes, and so has the file, which no other process has open.
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

    /// Maps all of RAM as QEMU does, and writes one byte at `at`.
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
        // SAFETY: the address is inside the mapping, into which no reference points.
        unsafe { address.cast::<u8>().add(at).write_volatile(1) };
        // SAFETY: the mapping was made above with this length, and no reference points into it.
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
        // Reading a word in a hole costs one base page.
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
        // SAFETY: the address is inside the window, into which no reference points.
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
        // No machine that runs these tests has 4 TiB of memory.
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
