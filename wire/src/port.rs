//! The ports between the host and the guest, which are virtio consoles.

/// The ports that each guest has, in their order. Ebb's kernel knows them by it.
pub const PORTS: usize = 3;
/// Stdin and stdout.
pub const STDIO: usize = 0;
/// Stderr.
pub const STDERR: usize = 1;
/// Lines of control.
pub const CONTROL: usize = 2;

/// Files for the host, once the program has ended; there only where some were asked for.
pub const OUT: usize = 3;
/// What that one is called.
pub const OUT_NAME: &str = "ebb.out";
/// What the port for the host's tree and volumes is called ([`crate::root`]).
pub const ROOT_NAME: &str = "ebb.root";

/// What the others are called. Linux's first process knows them by it.
pub const NAMES: [&str; PORTS] = ["ebb.stdio", "ebb.stderr", "ebb.control"];

/// What Ebb's kernel writes to the control port when memory has become free, and the host, which takes it by itself, has said
/// that it sleeps. There is nothing to read out of it: it is a call.
pub const DOORBELL: &[u8] = b"free\n";

/// Bytes that may be sent on an output port before the host says how many more.
pub const FIRST_WINDOW: u64 = 256 << 10;

/// A port that carries an output of the program, by its number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OutputPort {
    /// The output of [`STDIO`].
    Stdout,
    /// [`STDERR`].
    Stderr,
}

impl OutputPort {
    /// The output port of this number.
    pub fn from_number(number: usize) -> Option<Self> {
        match number {
            STDIO => Some(Self::Stdout),
            STDERR => Some(Self::Stderr),
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> usize {
        match self {
            Self::Stdout => STDIO,
            Self::Stderr => STDERR,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_have_numbers() {
        for port in [OutputPort::Stdout, OutputPort::Stderr] {
            assert_eq!(OutputPort::from_number(port.number()), Some(port));
        }
        assert_eq!(OutputPort::from_number(CONTROL), None);
    }
}
