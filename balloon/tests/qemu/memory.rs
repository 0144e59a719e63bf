//! The guest's memory: a memfd that this process and QEMU map.

use ebb_balloon::PAGE_SIZE;
use rustix::fs::{MemfdFlags, SeekFrom, ftruncate, memfd_create, seek};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::ptr::{NonNull, null_mut};
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

thread_local! {
    /// The address of the mapping, its size, and the first unallocated offset. A test has one
    /// machine at a time, and a thread of its own.
    static MAPPING: Cell<Option<(NonNull<u8>, usize, usize)>> = const { Cell::new(None) };
}

/// The first offset for allocations, above the memory that firmware uses.
const FIRST: usize = 1 << 20;

/// The memory as the driver's `Hal`. Physical addresses are offsets in the memfd.
#[derive(Debug)]
pub(crate) struct GuestMemory {
    file: OwnedFd,
    start: NonNull<u8>,
    size: usize,
}

impl GuestMemory {
    /// Creates and maps `size` bytes of memory for this thread's machine.
    pub(crate) fn new(size: usize) -> Self {
        let file = memfd_create("guest memory", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, size as u64).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(null_mut(), size, access, MapFlags::SHARED, &file, 0) }.unwrap();
        let start = NonNull::new(start.cast()).unwrap();
        MAPPING.set(Some((start, size, FIRST)));
        Self { file, start, size }
    }

    /// Returns the memfd.
    pub(crate) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Returns the number of resident bytes of the memory from `address` on.
    pub(crate) fn resident_from(&self, address: usize) -> usize {
        let mut resident = 0;
        let mut at = address as u64;
        // Ranges of data and holes alternate. After the last data, the call fails.
        while let Ok(data) = seek(&self.file, SeekFrom::Data(at)) {
            let hole = seek(&self.file, SeekFrom::Hole(data)).unwrap();
            resident += (hole - data) as usize;
            at = hole;
        }
        resident
    }

    /// Returns the pointer for a physical address. Panics if it is outside the memory.
    pub(crate) fn pointer(address: usize) -> NonNull<u8> {
        let (start, size, _) = MAPPING.get().unwrap();
        assert!(address < size);
        // SAFETY: inside the mapping.
        unsafe { start.add(address) }
    }

    /// Fills `len` bytes from a physical address on.
    pub(crate) fn fill(address: usize, len: usize, value: u8) {
        let last = Self::pointer(address + len - 1);
        let first = Self::pointer(address);
        assert_eq!(last.addr().get() - first.addr().get(), len - 1);
        // SAFETY: inside the mapping, as just checked.
        unsafe { first.write_bytes(value, len) };
    }

    /// Returns the byte at a physical address.
    pub(crate) fn first_byte(address: usize) -> u8 {
        // SAFETY: inside the mapping.
        unsafe { Self::pointer(address).read_volatile() }
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        MAPPING.set(None);
        // SAFETY: `new` made this mapping, and the driver was dropped with its machine.
        unsafe { munmap(self.start.as_ptr().cast(), self.size) }.unwrap();
    }
}

// SAFETY: each allocation is a part of the mapping that was never allocated before, and new memory
// is zero.
unsafe impl Hal for GuestMemory {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let (start, size, next) = MAPPING.get().unwrap();
        let end = next + pages * PAGE_SIZE;
        assert!(end <= size / 2, "the driver leaks memory");
        MAPPING.set(Some((start, size, end)));
        (next as PhysAddr, Self::pointer(next))
    }

    unsafe fn dma_dealloc(_address: PhysAddr, _start: NonNull<u8>, _pages: usize) -> i32 {
        0
    }

    unsafe fn mmio_phys_to_virt(_address: PhysAddr, _size: usize) -> NonNull<u8> {
        unreachable!("the transport has its own way to the registers")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        let (start, size, _) = MAPPING.get().unwrap();
        let offset = buffer.addr().get() - start.addr().get();
        assert!(offset < size);
        offset as PhysAddr
    }

    unsafe fn unshare(_address: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
}
