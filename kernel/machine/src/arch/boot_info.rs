//! What the boot loader handed over.

use super::layout::PhysRange;

/// What the boot loader handed over: memory, the command line and the initramfs.
#[derive(Debug)]
pub struct BootInfo {
    /// The ranges of usable RAM: sorted, disjoint, page-aligned, from 1 MiB up. They include the
    /// kernel and the initramfs.
    pub ram: &'static [PhysRange],
    /// The kernel's command line.
    pub cmdline: &'static str,
    /// The physical range of the initramfs, which starts at a page boundary; `None` if there is
    /// none.
    pub initrd: Option<PhysRange>,
    /// The physical range of the kernel image and its page tables. It is never freed.
    pub kernel: PhysRange,
    /// The physical address after the last byte of RAM.
    pub max_address: u64,
    /// Physical address of ACPI's root pointer; `None` if the boot loader gave none.
    pub rsdp: Option<u64>,
}

impl BootInfo {
    /// Returns the values of all words `key=value` on the command line that have this `key`, in
    /// order.
    pub fn options<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'static str> + 'a {
        self.cmdline
            .split_ascii_whitespace()
            .filter_map(move |word| {
                let (name, value) = word.split_once('=')?;
                (name == key).then_some(value)
            })
    }

    /// Returns the value of the last word `key=value` on the command line that has this `key`.
    /// Returns `None` if no word has it.
    pub fn option(&self, key: &str) -> Option<&'static str> {
        self.options(key).last()
    }
}
