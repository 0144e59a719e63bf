//! Whether a caller may do something with a node. Its attributes are looked at only where the caller's capabilities
//! do not say so already.

use super::flags::FileKind;
use super::node::Node;
use logic::credentials::attributes::Beginning;
use logic::credentials::{Capabilities, Credentials, Wanted};
use logic::errno::Errno;

/// Whether it may be read, written or executed.
///
/// # Errors
/// `EACCES`, or `EROFS` if what is to be written could not be with any permission.
#[inline]
pub fn check(who: &Credentials, node: &dyn Node, wanted: Wanted) -> Result<(), Errno> {
    if who.overrides(wanted) {
        return Ok(());
    }
    node.may(who, wanted)
        .map_err(|error| refusal(node, wanted, error))
}

/// Returns the error for a caller who may not do what is `wanted`: that of the file system goes before `error`.
#[cold]
fn refusal(node: &dyn Node, wanted: Wanted, error: Errno) -> Errno {
    // Devices and pipes are written also where the file system is not.
    let is_stored = matches!(
        node.kind(),
        FileKind::Regular | FileKind::Directory | FileKind::Symlink
    );
    if wanted.0 & Wanted::WRITE.0 == 0 || !is_stored {
        return error;
    }
    node.check_writable().err().unwrap_or(error)
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
    directory.may(who, Wanted::EXECUTE)
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
    directory.may(who, Wanted::CHANGE)
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
    directory.may(who, Wanted::CHANGE)?;
    who.may_take(&directory.owned(), &entry.owned())
}

/// Whether a file may get a further name.
///
/// # Errors
/// Fails with `EPERM` if not.
pub fn check_link(who: &Credentials, node: &dyn Node) -> Result<(), Errno> {
    let usable = check(who, node, Wanted::READ | Wanted::WRITE).is_ok();
    who.may_link_if(&node.owned(), usable)
}

/// What a node begins with that is made in a directory. `mask` has the permission bits that the process keeps from its files.
pub fn beginning(
    who: &Credentials,
    above: &dyn Node,
    permissions: u32,
    mask: u32,
    directory: bool,
) -> Beginning {
    Beginning {
        mask,
        ..who.new_file(&above.owned(), permissions, directory)
    }
}
