//! The vDSO: a page of code in every program's memory. With it a program reads the clocks and its
//! CPU's number without a system call.
//!
//! `machine::arch::vdso` has its code. `logic::vdso` builds the ELF image around the code when the
//! first program starts.

use crate::vm::pages::Wish;
use crate::vm::{AddressSpace, Backing, MapFlags, MappedFile, Mappings, PageSource, Prot};
use alloc::sync::Arc;
use logic::errno::Errno;
use logic::vdso::{self, Function};
use machine::arch;
use machine::arch::once::Once;
use machine::memory::{self, FrameRef, Mobility};

/// The page, once a program has been started.
static PAGE: Once<Arc<Page>> = Once::new();

/// A file of one page, which only the kernel changes.
struct Page {
    frame: FrameRef,
    /// The offset of the code in the page.
    code: usize,
    mappings: Mappings,
    /// The name that `/proc/PID/maps` shows.
    name: Arc<[u8]>,
}

impl Page {
    fn new() -> Result<Self, Errno> {
        let code = arch::vdso::code();
        let starts = arch::vdso::functions();
        let functions = core::array::from_fn::<_, 5, _>(|number| {
            let (name, start) = starts[number];
            let next = starts.get(number + 1).map(|(_, next)| *next);
            Function {
                name,
                start,
                end: next.unwrap_or(code.len()),
            }
        });
        let (image, code) = vdso::image(code, &functions).ok_or(Errno::ENOMEM)?;
        let frame = memory::alloc_frame(Mobility::Unmovable)?;
        frame.write(0, &image);
        frame.write(code, &arch::vdso::values());
        Ok(Self {
            frame,
            code,
            mappings: Mappings::new(),
            name: Arc::from(&b"[vdso]"[..]),
        })
    }
}

impl PageSource for Page {
    fn page(&self, index: u64, _wish: Wish) -> Result<Option<FrameRef>, Errno> {
        Ok((index == 0).then(|| self.frame.clone()))
    }

    fn present(&self, first: u64, pages: &mut [Option<FrameRef>]) {
        if let (0, Some(page)) = (first, pages.first_mut()) {
            *page = Some(self.frame.clone_of_base());
        }
    }

    fn resident(&self) -> u64 {
        1
    }

    fn mappings(&self) -> &Mappings {
        &self.mappings
    }
}

/// Makes the code of the vDSO call the kernel for the wall clock. Called before the rate of the
/// wall clock changes.
pub(crate) fn ask_for_clock() {
    if let Some(page) = PAGE.get() {
        page.frame.store_word(page.code + arch::vdso::SLEWS, 1);
    }
}

/// Stores the present setting of the wall clock in the page of the vDSO.
pub(crate) fn follow_clock() {
    if let Some(page) = PAGE.get() {
        let slews = arch::clock::wall_rate() != 0;
        let offset = arch::clock::realtime_offset();
        page.frame
            .store_word(page.code + arch::vdso::EPOCH, offset.0);
        page.frame
            .store_word(page.code + arch::vdso::SLEWS, slews.into());
    }
}

/// Maps the page of the vDSO at `address` in `vm`.
///
/// # Errors
/// Fails with `ENOMEM`.
pub(super) fn map(vm: &Arc<AddressSpace>, address: u64) -> Result<(), Errno> {
    let page = match PAGE.get() {
        Some(page) => page,
        None => {
            let new = Arc::new(Page::new()?);
            let page = PAGE.get_or_init(|| new);
            // The clock may have been set since the page was made.
            follow_clock();
            page
        }
    };
    let backing = Backing::File {
        file: MappedFile::new(page.clone(), page.name.clone(), 0, 0),
        offset: 0,
        shared: false,
        writable: false,
    };
    let prot = Prot::READ | Prot::EXEC;
    vm.map(
        Some(address),
        vdso::BYTES as u64,
        prot,
        MapFlags::FIXED,
        backing,
    )?;
    Ok(())
}
