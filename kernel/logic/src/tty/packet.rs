//! Packet mode: the far side learns, before what it reads, what happened to the terminal.

use bitflags::bitflags;

bitflags! {
    /// What happened (`TIOCPKT_*`).
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct Packet: u8 {
        /// What was typed and not read is forgotten.
        const FLUSH_READ = 1;
        /// What was written and not shown is forgotten.
        const FLUSH_WRITE = 2;
        /// Output is held back.
        const STOP = 4;
        /// Output goes on.
        const START = 8;
        /// STOP and START are not `^S` and `^Q`.
        const NO_STOP = 16;
        /// They are again.
        const DO_STOP = 32;
        /// `EXTPROC` has changed.
        const SETTINGS = 64;
    }
}
