//! The names of a folder, which the host gives piece by piece.

use ebb_wire::root::{Entry, entries, leading_number};
use rustix::io::Errno;

/// Adds all names to those that are there. `ask` adds those from a number on ([`piece`]), and tells the next number, or 0.
pub(super) fn whole<N>(
    mut names: Vec<N>,
    mut ask: impl FnMut(u64, &mut Vec<N>) -> Result<u64, Errno>,
) -> Result<Vec<N>, Errno> {
    let mut from = 0;
    // Ends: the numbers grow.
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

/// Adds the names of an answer, and tells the next number.
pub(super) fn piece<N: for<'a> From<Entry<'a>>>(
    rest: &[u8],
    names: &mut Vec<N>,
) -> Result<u64, Errno> {
    let (next, rest) = leading_number(rest).ok_or(Errno::IO)?;
    names.extend(entries(rest).map(N::from));
    Ok(next)
}
