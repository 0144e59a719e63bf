//! The command `ebb workloads`: runs the embedded program of the experiments on the host, as a
//! report names it with its arguments.

use crate::embedded;
use crate::failure::Failure;
use crate::system::memory_file;
use clap::Args;
use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Options of `ebb workloads`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct WorkloadsOptions {
    /// Arguments of the program, as in `page-fault 4k`; `--help` lists its experiments
    #[arg(
        value_name = "ARGUMENTS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

/// Replaces this process by the program of the experiments, with the arguments in `options`.
/// Returns only if that fails.
///
/// # Errors
/// Fails if this binary was built without the experiments, or if the program cannot be written to
/// memory or executed.
pub(crate) fn run(options: &WorkloadsOptions) -> Result<u8, Failure> {
    let program = embedded::get().experiments;
    if program.is_empty() {
        return Err(Failure::Usage(
            "this ebb was built without its experiments (EBB_SKIP_KERNEL)".into(),
        ));
    }
    let mut file =
        memory_file("ebb-workloads").map_err(Failure::setup("memory for the experiments"))?;
    file.write_all(program)
        .map_err(Failure::setup("memory for the experiments"))?;
    let error = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .arg0("ebb-workloads")
        .args(&options.arguments)
        .exec();
    Err(Failure::setup("running the experiments")(error))
}
