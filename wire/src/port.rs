//! The ports between host and guest: virtio consoles.

/// The number of ports that every guest has: [`STDIO`], [`STDERR`] and [`CONTROL`]. Ebb's kernel
/// identifies them by their order.
pub const PORTS: usize = 3;
/// Index of the port for the program's stdin and stdout.
pub const STDIO: usize = 0;
/// Index of the port for the program's stderr.
pub const STDERR: usize = 1;
/// Index of the port for control lines ([`crate::request`], [`crate::report`]).
pub const CONTROL: usize = 2;

/// Index of the port on which the guest sends files to the host after the program has ended
/// ([`crate::out`]). Exists only if files were asked for, so [`PORTS`] does not count it.
pub const OUT: usize = 3;
/// Name of the port [`OUT`], by which `ebb-init` finds it.
pub const OUT_NAME: &str = "ebb.out";
/// Name of the port for the host's file tree and for volumes ([`crate::root`], [`crate::volume`]).
pub const ROOT_NAME: &str = "ebb.root";

/// Names of the first [`PORTS`] ports, in the order of their indices. The first process of Linux
/// guests identifies the ports by them.
pub const NAMES: [&str; PORTS] = ["ebb.stdio", "ebb.stderr", "ebb.control"];

/// The bytes that Ebb's kernel writes to the control port to wake the host in the mode
/// [`GiveBack::Shared`](crate::GiveBack::Shared), in which the host takes free memory itself. They
/// say that memory has become free while the host was marked as asleep. The host ignores the
/// contents.
pub const WAKE_BYTES: &[u8] = b"free\n";

/// The number of bytes that the guest may send on each output port before the host's first
/// [`Request::Window`](crate::request::Request::Window) for that port.
pub const FIRST_WINDOW: u64 = 256 << 10;

/// A port that carries output of the program.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum OutputPort {
    /// The output half of [`STDIO`].
    Stdout,
    /// The port [`STDERR`].
    Stderr,
}

impl OutputPort {
    /// Returns the output port with this index: [`STDIO`] or [`STDERR`]. Returns `None` for other
    /// indices.
    pub fn from_number(number: usize) -> Option<Self> {
        match number {
            STDIO => Some(Self::Stdout),
            STDERR => Some(Self::Stderr),
            _ => None,
        }
    }

    /// Returns the port's index: [`STDIO`] for `Stdout`, [`STDERR`] for `Stderr`.
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
