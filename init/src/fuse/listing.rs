//! Reads all names of a folder from the host, which returns them in parts.

use ebb_wire::root::{Entry, entries, leading_number};
use rustix::io::Errno;

/// Adds all names of a folder to `names` and returns `names`. `ask` asks the host for the names
/// from an index on, adds them with [`piece`], and returns the index to continue from, or 0 at the
/// end. Fails with `EIO` if the indices do not increase, and with the errors of `ask`.
pub(super) fn whole<N>(
    mut names: Vec<N>,
    mut ask: impl FnMut(u64, &mut Vec<N>) -> Result<u64, Errno>,
) -> Result<Vec<N>, Errno> {
    let mut from = 0;
    // Ends, since the indices increase.
    loop {
        let next = ask(from, &mut names)?;
        if next == 0 {
            return Ok(names);
        }
        if next <= from {
            return Err(Errno::IO);
        }
        from = next;
    }
}

/// Adds the names in `rest`, the contents of an answer of the host, to `names`. Returns the index
/// from which to ask for the next names, or 0 at the end. Fails with `EIO` if the answer has no
/// index.
pub(super) fn piece<N: for<'a> From<Entry<'a>>>(
    rest: &[u8],
    names: &mut Vec<N>,
) -> Result<u64, Errno> {
    let (next, rest) = leading_number(rest).ok_or(Errno::IO)?;
    names.extend(entries(rest).map(N::from));
    Ok(next)
}
