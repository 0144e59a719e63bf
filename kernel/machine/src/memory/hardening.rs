//! Linux's boot options against uses of freed memory and against predictable addresses:
//! `page_poison=`, `init_on_free=`, `init_on_alloc=` and `page_alloc.shuffle=`.

use super::boot::is_zeroed;
use super::{allocator, percpu, poison};
use crate::arch::{BootInfo, random};
use ebb_mm::{Mobility, Order, Request};
use logic::page_poison::{Fill, switch};

/// Applies the options `page_poison=`, `init_on_free=`, `init_on_alloc=` and `page_alloc.shuffle=`
/// of the command line in `info`. The first CPU calls this before others run, and before anything
/// was freed.
pub(super) fn configure(info: &BootInfo) {
    let fill = Fill::of(is_on(info, "page_poison"), is_on(info, "init_on_free"));
    // As on Linux, the option for freed pages takes precedence over the one for allocated pages.
    let zero = is_on(info, "init_on_alloc") && fill != Fill::Poison;
    // Pages that were never used must be zero.
    let check = fill == Fill::Poison && is_zeroed(info);
    poison::set(fill, zero, check);
    if fill == Fill::Poison {
        let state = match (finds_a_write(), check) {
            (true, true) => "on",
            (true, false) => "on, but not checked: RAM was not zero at boot",
            (false, _) => "does not work",
        };
        crate::console!("page poisoning: {state}");
    }
    if is_on(info, "page_alloc.shuffle") {
        let mut seed = [0; size_of::<u64>()];
        random::fill(&mut seed);
        allocator().shuffle(u64::from_ne_bytes(seed));
    }
}

/// Returns whether the boot option `name` is on the command line in `info` and is on. Prints a
/// message if it has another value than 0 or 1.
fn is_on(info: &BootInfo, name: &str) -> bool {
    let Some(text) = info.option(name) else {
        return false;
    };
    switch(text).unwrap_or_else(|| {
        crate::console!("{name}={text}: not 0 or 1");
        false
    })
}

/// Tests page poisoning. Returns whether it detects a write to a poisoned page.
fn finds_a_write() -> bool {
    let request = Request::new(Order::BASE, Mobility::Unmovable);
    let Ok(frame) = percpu::allocate(request) else {
        return false;
    };
    let found = poison::finds_a_write(frame);
    // Filled again as it is freed.
    percpu::free(frame, Order::BASE);
    found
}
