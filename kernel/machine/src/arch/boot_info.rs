//! What the boot loader left.

use super::layout::PhysRange;

/// What the boot loader left.
#[derive(Debug)]
pub struct BootInfo {
    /// Usable RAM: sorted, disjoint, page-aligned, from 1 MiB up. Holds the kernel and the initrd.
    pub ram: &'static [PhysRange],
    /// The kernel's command line.
    pub cmdline: &'static str,
    /// The initramfs; starts on a page.
    pub initrd: Option<PhysRange>,
    /// The kernel image with its page tables: never to be given away.
    pub kernel: PhysRange,
    /// First address behind all RAM.
    pub max_address: u64,
    /// Physical address of ACPI's root pointer.
    pub rsdp: Option<u64>,
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
