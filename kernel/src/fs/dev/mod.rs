//! Device nodes, by their Linux numbers.

mod kernel_log;
mod memory;

pub use kernel_log::{LOG_READERS, log_levels, set_log_levels};

use super::devices::number;
use super::file::File;
use super::flags::OpenFlags;
use super::node::{NewNode, NodeRef};
use alloc::sync::Arc;
use logic::credentials::attributes::Beginning;
use logic::errno::Errno;
use machine::sync::Once;

/// The device nodes of `/dev`.
const NODES: [(&[u8], u64, u32); 9] = [
    (b"null", number(1, 3), 0o666),
    (b"zero", number(1, 5), 0o666),
    (b"full", number(1, 7), 0o666),
    (b"random", number(1, 8), 0o666),
    (b"urandom", number(1, 9), 0o666),
    (b"kmsg", number(1, 11), 0o644),
    (b"tty", number(5, 0), 0o666),
    (b"console", number(5, 1), 0o600),
    (b"ptmx", number(5, 2), 0o666),
];

/// The symbolic links of `/dev`.
const LINKS: [(&[u8], &[u8]); 4] = [
    (b"fd", b"/proc/self/fd"),
    (b"stdin", b"/proc/self/fd/0"),
    (b"stdout", b"/proc/self/fd/1"),
    (b"stderr", b"/proc/self/fd/2"),
];

/// Creates the entries of `/dev` in `directory`. Fails with the error of creating one.
pub(super) fn populate(directory: &NodeRef) -> Result<(), Errno> {
    for (name, number, permissions) in NODES {
        directory.create(
            name,
            NewNode::Character(number),
            Beginning::of_root(permissions),
        )?;
    }
    for (name, target) in LINKS {
        directory.create(name, NewNode::Symlink(target), Beginning::of_root(0o777))?;
    }
    directory.create(b"shm", NewNode::Directory, Beginning::of_root(0o1777))?;
    super::block::populate(directory)
}

/// Opens a terminal by its device number.
type OpenTerminal = fn(u64, OpenFlags) -> Result<Arc<dyn File>, Errno>;

static TERMINALS: Once<OpenTerminal> = Once::new();

/// Sets the function that opens terminals by device number. The first call decides. Terminals
/// depend on processes, which this module must not depend on.
pub fn set_terminals(open: OpenTerminal) {
    let _ = TERMINALS.set(open);
}

/// Opens the character device with the number `device`.
///
/// # Errors
/// Fails with the error of the function from [`set_terminals`] if the device is not one of this
/// module. Fails with `ENXIO` before that function is set.
pub(super) fn open(device: u64, flags: OpenFlags) -> Result<Arc<dyn File>, Errno> {
    const NULL: u64 = number(1, 3);
    const ZERO: u64 = number(1, 5);
    const FULL: u64 = number(1, 7);
    const RANDOM: u64 = number(1, 8);
    const URANDOM: u64 = number(1, 9);
    const KMSG: u64 = number(1, 11);
    Ok(match device {
        NULL => Arc::new(memory::Null),
        ZERO => Arc::new(memory::Zero { full: false }),
        FULL => Arc::new(memory::Zero { full: true }),
        RANDOM | URANDOM => Arc::new(memory::Random),
        KMSG => Arc::new(kernel_log::KernelLog),
        _ => return TERMINALS.get().ok_or(Errno::ENXIO)?(device, flags),
    })
}
