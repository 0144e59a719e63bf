//! The guest kernel of Ebb: boots by PVH, runs Linux x86-64 programs, gives back the memory that
//! they do not use.
//!
//! The parts, from the top: this file, [`syscall`], [`procfs`], [`process`], [`fs`], [`drivers`],
//! [`vm`]; then, in crates of their own, `machine` (threads, memory, CPUs) and `logic` (code that
//! needs no machine). Each part uses only those below it, which `tests/layers.rs` checks. If a
//! lower part needs a higher one, it declares a contract, which this file or `process` implements.
//!
//! `unsafe` code is forbidden here, except in [`vm`], where files that need it allow it in their
//! first lines, with the reason.
#![no_std]
#![no_main]
#![deny(unsafe_code)]
#![allow(
    unreachable_pub,
    reason = "`pub` is what a room shows to the others, whichever crate it is in"
)]

extern crate alloc;

#[forbid(unsafe_code)]
mod drivers;
#[forbid(unsafe_code)]
mod fs;
#[forbid(unsafe_code)]
mod process;
#[forbid(unsafe_code)]
mod procfs;
#[forbid(unsafe_code)]
mod syscall;
mod vm;

use machine::arch::{self, BootInfo, Entries};
use machine::memory::{self, Helpers};
use machine::{console, sched};

/// Runs on the first CPU, on its boot stack, with final page tables and the console ready.
fn main(boot: &'static BootInfo) -> ! {
    memory::init(boot, &drivers::give_back::EVENTS);
    drivers::give_back::configure(boot);
    arch::init(boot);
    drivers::init(boot);
    fs::init(boot);
    procfs::mount(boot);
    process::terminal::mount();
    fs::unpack(boot);
    arch::start_other_cpus(memory::stack_for_cpu);
    procfs::finish();
    syscall::init(boot);
    console!(
        "ebb {}: {} MiB, {} CPUs, {} kHz",
        env!("CARGO_PKG_VERSION"),
        memory::allocator().managed_frames() >> 8,
        arch::cpu_count(),
        arch::clock::tsc_khz()
    );
    process::task::start(boot, procfs::apply_boot_line)
}

machine::define_entries! {
    syscall: syscall::entry,
    user_store: vm::on_user_store,
    user_fault: process::signal::on_user_fault,
    exit_to_user: process::task::exit_to_user,
    others: Entries {
        main,
        start_cpu: sched::start_cpu,
        memory_own: memory::percpu::own_of,
        timer: sched::on_timer,
        resched: || {
            memory::percpu::drain_if_asked();
            sched::on_resched();
        },
        kernel_fault: vm::on_kernel_fault,
        exception: process::signal::on_exception,
        flush: drivers::port::flush_all,
    },
}

machine::define_memory_helpers!(Helpers {
    has_thread: sched::started,
    killed: || sched::current().killed(),
    yield_now: sched::yield_now,
    give_way: sched::give_way,
    sleep_until: sched::sleep_until,
    shrink_caches: || {
        fs::tmpfs::trim_all()
            || fs::tmpfs::relieve()
            || fs::hostfs::relieve()
            || fs::block::relieve()
    },
    weigh_trials: vm::khugepaged::weigh_all,
    make_block: vm::compaction::make_block,
    take_gib: vm::compaction::gib::take,
    relieve_soon: vm::compaction::daemon::relieve_soon,
    deflate: drivers::balloon::deflate_on_oom,
    stalled: |work| {
        let _stalls = sched::pressure::memory_stall();
        work();
    },
    is_coming: || vm::spaces_going() > 0,
    kill: process::task::oom_kill,
});
