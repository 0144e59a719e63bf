//! The command `ebb`, which runs ordinary Linux programs in small VMs. The crate `ebb-host` in
//! `src/` implements it. This file adds the guest programs that `build.rs` has built.

use ebb_host::Embedded;
use std::process::ExitCode;

fn main() -> ExitCode {
    ebb_host::main(Embedded {
        kernel: include_bytes!(concat!(env!("OUT_DIR"), "/kernel.elf")),
        experiments: include_bytes!(concat!(env!("OUT_DIR"), "/workloads.elf")),
        init: include_bytes!(concat!(env!("OUT_DIR"), "/init.elf")),
        commit: env!("EBB_COMMIT"),
    })
}
