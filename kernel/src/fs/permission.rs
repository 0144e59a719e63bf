//! Permission checks of a caller for a node. The node's attributes are read only if the caller's
//! capabilities do not decide already.

use super::flags::FileKind;
use super::node::Node;
use logic::credentials::attributes::Beginning;
use logic::credentials::{Capabilities, Credentials, Wanted};
use logic::errno::Errno;

/// Checks that `who` may use `node` as `wanted`: read, write or execute it.
///
/// # Errors
/// Fails with `EACCES`, or with `EROFS` if no permission would allow the write.
#[inline]
pub fn check(who: &Credentials, node: &dyn Node, wanted: Wanted) -> Result<(), Errno> {
    if who.overrides(wanted) {
        return Ok(());
    }
    node.may(who, wanted)
        .map_err(|error| refusal(node, wanted, error))
}

/// Returns the error for a caller that lacks the access `wanted`. An error of the file system takes
/// precedence over `error`.
#[cold]
fn refusal(node: &dyn Node, wanted: Wanted, error: Errno) -> Errno {
    // Devices and pipes can be written even in a read-only file system.
    let is_stored = matches!(
        node.kind(),
        FileKind::Regular | FileKind::Directory | FileKind::Symlink
    );
    if wanted.0 & Wanted::WRITE.0 == 0 || !is_stored {
        return error;
    }
    node.check_writable().err().unwrap_or(error)
}

/// Checks that `who` may search `directory`.
///
/// # Errors
/// Fails with `EACCES` if `who` may not.
#[inline]
pub fn check_search(who: &Credentials, directory: &dyn Node) -> Result<(), Errno> {
    if who.passes_directories() {
        return Ok(());
    }
    directory.may(who, Wanted::EXECUTE)
}

/// Checks that `who` may create an entry in `directory`.
///
/// # Errors
/// Fails with `EACCES` if `who` may not.
#[inline]
pub fn check_change(who: &Credentials, directory: &dyn Node) -> Result<(), Errno> {
    if who.can(Capabilities::DAC_OVERRIDE) {
        return Ok(());
    }
    directory.may(who, Wanted::CHANGE)
}

/// Checks that `who` may remove `entry` from `directory`.
///
/// # Errors
/// Fails with `EACCES` if `who` may not change the directory, and with `EPERM` if the sticky bit
/// protects the entry.
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

/// Checks that `who` may give `node` another name.
///
/// # Errors
/// Fails with `EPERM` if `who` may not.
pub fn check_link(who: &Credentials, node: &dyn Node) -> Result<(), Errno> {
    let usable = check(who, node, Wanted::READ | Wanted::WRITE).is_ok();
    who.may_link_if(&node.owned(), usable)
}

/// Returns the first attributes of a node that `who` creates in `above`. `directory` says whether
/// the node is a directory. `mask` has the permission bits that files of the process do not get.
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
