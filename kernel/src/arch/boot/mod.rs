//! From PVH entry to `kernel_main`.

/// A range of physical addresses, `end` exclusive.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PhysRange {
    /// First byte.
    pub start: u64,
    /// First byte behind.
    pub end: u64,
}

impl PhysRange {
    /// Length in bytes.
    pub const fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether an address lies in it.
    pub const fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// What the boot loader left.
#[derive(Debug)]
pub struct BootInfo {
    /// Usable RAM: sorted, disjoint, page-aligned, from 1 MiB up. Holds the kernel and the initrd.
    pub ram: &'static [PhysRange],
    /// The kernel's command line.
    pub cmdline: &'static str,
    /// The initramfs, page-aligned outwards (its first byte is the archive's first).
    pub initrd: Option<PhysRange>,
    /// The kernel image with its early page tables: never to be given away.
    pub kernel: PhysRange,
    /// First address behind all RAM.
    pub max_address: u64,
}

impl BootInfo {
    /// The values of `key=value` words of the command line with that key, in order.
    pub fn options<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'static str> + 'a {
        self.cmdline
            .split_ascii_whitespace()
            .filter_map(move |word| {
                let (name, value) = word.split_once('=')?;
                (name == key).then_some(value)
            })
    }

    /// The last value of `key=value` on the command line.
    pub fn option(&self, key: &str) -> Option<&'static str> {
        self.options(key).last()
    }
}
