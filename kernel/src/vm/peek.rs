//! Reads bytes at many addresses of a space at once.

#![expect(unsafe_code, reason = "pages are read by their frames")]

use super::entry::{PAGE, PRESENT, REGION, SPANS, Table, USER, frame_of, index};
use super::pagetable::{PageTables, Region};
use super::trial::table_of;
use super::{AddressSpace, VmaFlags};
use core::sync::atomic::Ordering;
use logic::errno::Errno;
use machine::arch::USER_END;
use machine::memory::memmap::frame_ptr;

/// The most pieces that are read under one hold of the lock.
const PIECES: usize = 64;

/// The part of the page tables that the last lookup has found.
enum Found<'t> {
    Nothing,
    /// A last-level page table, and the first address of the region that it maps.
    Table(u64, &'t Table),
    /// A huge page that the program may read: its first address, its size in bytes, and the
    /// kernel's pointer to it.
    Huge(u64, u64, *const u8),
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "addresses and `usize` have 64 bits"
)]
impl<'t> Found<'t> {
    /// Returns the kernel's pointer to the memory of `address`. Returns `None` if a fault must map
    /// the page first, or the program has no such memory.
    #[inline]
    fn show(&mut self, tables: &'t PageTables, address: u64) -> Option<*const u8> {
        match *self {
            // Below its start the difference is huge.
            Self::Table(start, table) if address.wrapping_sub(start) < REGION => {
                return page(table, address);
            }
            Self::Huge(start, span, memory) if address.wrapping_sub(start) < span => {
                return Some(memory.wrapping_add((address - start) as usize));
            }
            _ => {}
        }
        if address >= USER_END {
            return None;
        }
        match tables.region(address) {
            Region::AbsentUntil(_) => None,
            Region::Table(table) => {
                *self = Self::Table(address & !(REGION - 1), table);
                page(table, address)
            }
            Region::Trial(slot) => {
                let table = table_of(slot);
                *self = Self::Table(address & !(REGION - 1), table);
                page(table, address)
            }
            Region::Huge(slot, span) => {
                let entry = slot.load();
                if !is_readable(entry) {
                    return None;
                }
                let memory = frame_ptr(frame_of(entry)).cast_const().cast();
                *self = Self::Huge(address & !(span - 1), span, memory);
                self.show(tables, address)
            }
        }
    }
}

const fn is_readable(entry: u64) -> bool {
    entry & (PRESENT | USER) == PRESENT | USER
}

#[inline]
fn page(table: &Table, address: u64) -> Option<*const u8> {
    // Relaxed: under the space's lock.
    let entry = table[index(address, 0)].load(Ordering::Relaxed);
    let page = frame_ptr(frame_of(entry)).cast_const().cast::<u8>();
    is_readable(entry).then(|| page.wrapping_add((address % PAGE) as usize))
}

impl AddressSpace {
    /// Copies `pieces` of this space, which need not be the current one, into `to`, one behind the
    /// other. Each piece is an address and a length, and lies in one page. Returns the number of
    /// copied bytes, all of whole pieces.
    ///
    /// The copy ends early at a page that the program cannot read without a fault, in an area
    /// without the right to load, at a piece that does not fit into `to`, and after a limited
    /// number of pieces. The lock keeps the pages during the copy.
    pub fn peek(&self, pieces: impl Iterator<Item = (u64, usize)>, to: &mut [u8]) -> usize {
        let state = self.state.lock();
        let mut found = Found::Nothing;
        // The last area, which has the right to load.
        let mut area = 0..0;
        let mut done = 0;
        for (address, bytes) in pieces.take(PIECES) {
            assert!(
                address % PAGE + bytes as u64 <= PAGE,
                "a piece is of one page"
            );
            let Some(to) = to.get_mut(done..done + bytes) else {
                break;
            };
            if !area.contains(&address) {
                let next = state.areas.find(address);
                let Some(next) = next.filter(|next| next.flags.contains(VmaFlags::READ)) else {
                    break;
                };
                area = next.start..next.end;
            }
            let Some(from) = found.show(&state.tables, address) else {
                break;
            };
            // SAFETY: the piece from `from` on lies in a page that the program may read. Its entry
            // keeps the page while the lock is held. Programs may write to it at the same time, as
            // to any memory that a call reads.
            unsafe { core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), bytes) };
            done += bytes;
        }
        done
    }

    /// Copies the piece of this space at `address`, which lies in one page, into `to`, as
    /// [`Self::peek`] does. Maps the page first if necessary.
    ///
    /// # Errors
    /// Fails with `EFAULT` if the area lacks the right to load, as on Linux. The program itself can
    /// load from each page to which it has any right. Otherwise fails as [`Self::read_bytes`] does.
    pub fn peek_mapping(&self, address: u64, to: &mut [u8]) -> Result<(), Errno> {
        let flags = self.state.lock().areas.find(address).map(|area| area.flags);
        if flags.is_some_and(|flags| !flags.contains(VmaFlags::READ)) {
            return Err(Errno::EFAULT);
        }
        self.read_bytes(address, to)
    }
}

const _: () = assert!(SPANS[1] == REGION);
