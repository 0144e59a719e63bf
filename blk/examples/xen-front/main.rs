//! A Xen front-end in user space, for the laboratory (`blk/lab`). It runs in a guest, on a device
//! that no driver takes, and speaks `/dev/xen/xenbus`, `/dev/xen/gntalloc` and `/dev/xen/evtchn`.
//!
//!     xen-front FOLDER verify FILE    every layout and way of transfer; FILE gets what the disk holds
//!     xen-front FOLDER check          a short look whether the device works
//!     xen-front FOLDER attack         bad requests, indices and values, each in its turn
//!     xen-front FOLDER race           grants taken back and requests changed while they are served
//!     xen-front FOLDER time SECONDS   how long requests take, by kind
//!     xen-front FOLDER hold           large writes without end, until it is killed
//!
//! FOLDER is the front-end's end of the device: `device/front/0`. The device stays closed and ready
//! for the next one.

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

/// What went wrong, for people.
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
