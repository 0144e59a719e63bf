//! A Xen front-end in user space, for the laboratory (`blk/lab`). It runs in a guest, on a device
//! that no driver uses, with `/dev/xen/xenbus`, `/dev/xen/gntalloc` and `/dev/xen/evtchn`.
//!
//! ```text
//! xen-front FOLDER verify FILE    every layout and kind of transfer; FILE gets the disk's contents
//! xen-front FOLDER check          a short test whether the device works
//! xen-front FOLDER attack         bad requests, indices and values, one after the other
//! xen-front FOLDER race           grants revoked and requests changed while they are served
//! xen-front FOLDER time SECONDS   durations of requests, by kind
//! xen-front FOLDER hold           large writes without end, until it is killed
//! ```
//!
//! FOLDER is the front-end's end of the device: `device/front/0`. Afterwards the device is closed
//! and ready for the next front-end.

#![allow(
    clippy::cast_possible_truncation,
    reason = "sizes of a test, which are small"
)]

mod attack;
mod gntalloc;
mod race;
mod session;
mod stream;
mod verify;

use session::Session;
use std::process::ExitCode;

/// An error, for people.
pub(crate) type Failed = Box<dyn std::error::Error>;

fn run(arguments: &[String]) -> Result<String, Failed> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [folder, command @ ..] = &words[..] else {
        return Err("which device? FOLDER is missing".into());
    };
    let mut session = Session::open(folder)?;
    match command {
        ["verify", file] => verify::verify(&mut session, file),
        ["check"] => verify::check(&mut session),
        ["attack"] => attack::attack(&mut session),
        ["race"] => race::race(&mut session),
        ["time", seconds] => stream::time(&mut session, seconds.parse()?),
        ["hold"] => stream::hold(&mut session),
        _ => Err(format!("what is {command:?}? the head of main.rs says what there is").into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(done) => {
            println!("{done}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("xen-front: {error}");
            ExitCode::FAILURE
        }
    }
}
