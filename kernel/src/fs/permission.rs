//! Whether a caller may do something with a node. Its attributes are looked at only where the caller's capabilities
//! do not say so already.

use super::node::Node;
use logic::credentials::attributes::Beginning;
use logic::credentials::{Capabilities, Credentials, Wanted};
use logic::errno::Errno;

/// Whether it may be read, written or executed.
///
/// # Errors
/// `EACCES`.
#[inline]
pub fn check(who: &Credentials, node: &dyn Node, wanted: Wanted) -> Result<(), Errno> {
    if who.overrides(wanted) {
        return Ok(());
    }
    who.may(wanted, &node.owned())
}

/// Whether a directory may be passed.
///
/// # Errors
/// `EACCES`.
#[inline]
pub fn check_search(who: &Credentials, directory: &dyn Node) -> Result<(), Errno> {
    if who.passes_directories() {
        return Ok(());
    }
    who.may(Wanted::EXECUTE, &directory.owned())
}

/// Whether a directory may get an entry.
///
/// # Errors
/// `EACCES`.
#[inline]
pub fn check_change(who: &Credentials, directory: &dyn Node) -> Result<(), Errno> {
    if who.can(Capabilities::DAC_OVERRIDE) {
        return Ok(());
    }
    who.may(Wanted::CHANGE, &directory.owned())
}

/// Whether a directory may lose an entry.
///
/// # Errors
/// `EACCES`, `EPERM`.
pub fn check_remove(
    who: &Credentials,
    directory: &dyn Node,
    entry: &dyn Node,
) -> Result<(), Errno> {
    if who.can(Capabilities::DAC_OVERRIDE | Capabilities::FOWNER) {
        return Ok(());
    }
    who.may_remove(&directory.owned(), &entry.owned())
}

/// What a node begins with that is made in a directory.
pub fn beginning(
    who: &Credentials,
    above: &dyn Node,
    permissions: u32,
    directory: bool,
) -> Beginning {
    who.new_file(&above.owned(), permissions, directory)
}
