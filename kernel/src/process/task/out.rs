//! Starts the program that sends files to the host when the program has ended (`ebb run --out`).

use super::image::Program;
use super::start::{self, init_process};
use super::{WaitFor, WaitOptions, executable, root_credentials, table, wait_for_child};
use crate::fs;
use crate::process::signal::{SigInfo, Signal, send_to_process};
use alloc::vec::Vec;
use ebb_wire::boot::OUT;
use logic::errno::Errno;
use logic::strings::Strings;
use machine::console;

/// The program that sends files to the host. It is opened before any other process could replace
/// it.
pub(super) struct Sender {
    program: Program,
    arguments: Strings,
}

impl Sender {
    /// Opens the program that `/.ebb/out` names. Returns `None` if there is no such file. Also
    /// returns `None`, after a message on the console, if the file or the program cannot be used.
    pub(super) fn prepare() -> Option<Self> {
        let context = fs::Context::new(fs::root());
        let who = root_credentials();
        let arguments = match start::read_strings(&context, OUT.as_bytes()) {
            Ok(arguments) if arguments.count() > 0 => arguments,
            Err(Errno::ENOENT) => return None,
            Ok(_) | Err(_) => {
                console!("init: {OUT} cannot be read");
                return None;
            }
        };
        let program = executable::open(&context, &who, arguments.first())
            .and_then(|file| Program::open(&context, &who, file));
        match program {
            Ok(program) => Some(Self { program, arguments }),
            Err(error) => {
                console!("init: what {OUT} names cannot be run: {error}");
                None
            }
        }
    }

    /// Kills all other processes, runs the program and waits for its end. So no process can change
    /// the files while they are sent. The host notices a failure by the missing data.
    pub(super) fn run(self) {
        end_all();
        let ended = self.start().and_then(|pid| {
            let which = WaitFor::Pid(pid);
            let options = WaitOptions::EXITED | WaitOptions::ALL;
            wait_for_child(init_process(), which, options)
        });
        match ended {
            Ok(Some(waited)) if waited.status.0 == 0 => {}
            Ok(waited) => {
                let status = waited.map_or(0, |waited| waited.status.0);
                console!("init: sending files to the host ended with wait status {status:#x}");
            }
            Err(error) => console!("init: files cannot be sent to the host: {error}"),
        }
    }

    fn start(self) -> Result<u32, Errno> {
        let streams = fs::stdio::open_sender_streams().ok_or(Errno::ENXIO)?;
        let path = Vec::from(self.arguments.first());
        let context = fs::Context::new(fs::root());
        start::start_process(
            &self.program,
            context,
            &path,
            [&self.arguments, &Strings::default()],
            streams,
            None,
            root_credentials(),
        )
    }
}

/// Kills all processes but init, which calls this, and waits until they are gone.
fn end_all() {
    let options = WaitOptions::EXITED | WaitOptions::ALL;
    loop {
        // Repeated after each end, because a process that was being created may have been missed.
        let all = table::lock().collect(|process| process.pid() > 1);
        for process in all.unwrap_or_default() {
            let _ = send_to_process(&process, SigInfo::kernel(Signal::SIGKILL));
        }
        if wait_for_child(init_process(), WaitFor::Any, options).is_err() {
            return;
        }
    }
}
