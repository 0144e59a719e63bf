//! `ebb`: runs ordinary Linux programs in small VMs. What it does is in `src/`; this adds what its guests
//! run, built by `build.rs`.

use ebb_host::Embedded;
use std::process::ExitCode;

fn main() -> ExitCode {
    ebb_host::main(Embedded {
        kernel: include_bytes!(concat!(env!("OUT_DIR"), "/kernel.elf")),
        experiments: include_bytes!(concat!(env!("OUT_DIR"), "/workloads.elf")),
        init: include_bytes!(concat!(env!("OUT_DIR"), "/init.elf")),
    })
}
