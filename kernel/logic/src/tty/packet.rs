//! Packet mode: before the far side reads data, it is notified of events of the terminal.

use bitflags::bitflags;

bitflags! {
    /// The events that the master of a pseudo-terminal is notified of in packet mode (`TIOCPKT_*`).
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct Packet: u8 {
        /// Input that was typed but not read was discarded.
        const FLUSH_READ = 1;
        /// Output that was written but not shown was discarded.
        const FLUSH_WRITE = 2;
        /// Output was stopped.
        const STOP = 4;
        /// Output continues.
        const START = 8;
        /// STOP and START are no longer `^S` and `^Q`.
        const NO_STOP = 16;
        /// STOP and START are `^S` and `^Q` again.
        const DO_STOP = 32;
        /// `EXTPROC` has changed.
        const SETTINGS = 64;
    }
}
