//! A [`Read`] that gives at most as many bytes as it is allowed to.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// The number of bytes that a [`Budget`] may still read, at first 0. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowance(Rc<Cell<u64>>);

impl Allowance {
    /// Sets the number of bytes that the reader with this allowance may read from now on to
    /// `bytes`. The former number is discarded.
    pub(super) fn set(&self, bytes: u64) {
        self.0.set(bytes);
    }

    /// Returns whether no byte may be read until [`Self::set`].
    pub(super) fn is_used_up(&self) -> bool {
        self.0.get() == 0
    }
}

/// A [`Read`] that fails with an error once its [`Allowance`] is used up. It never reads more of
/// the inner reader than is allowed.
#[derive(Debug)]
pub(super) struct Budget<R> {
    inner: R,
    allowance: Allowance,
}

impl<R: Read> Budget<R> {
    /// Creates a reader of `inner` that is limited by `allowance`, which the caller can set again
    /// later.
    pub(super) fn new(inner: R, allowance: &Allowance) -> Self {
        Self {
            inner,
            allowance: allowance.clone(),
        }
    }
}

impl<R: Read> Read for Budget<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let left = self.allowance.0.get();
        if left == 0 {
            return Err(io::Error::other("more than is allowed"));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let read = self.inner.read(&mut into[..most])?;
        self.allowance.set(left.saturating_sub(read as u64));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_allowed() {
        let allowance = Allowance::default();
        let mut reader = Budget::new(&b"abcdef"[..], &allowance);
        let mut buffer = [0; 4];
        reader
            .read(&mut buffer)
            .expect_err("nothing is allowed yet");
        allowance.set(5);
        assert_eq!(reader.read(&mut buffer).expect("four"), 4);
        assert_eq!(reader.read(&mut buffer).expect("one"), 1);
        assert!(allowance.is_used_up());
        reader.read(&mut buffer).expect_err("used up");
        allowance.set(9);
        assert_eq!(reader.read(&mut buffer).expect("the last"), 1);
        assert_eq!(reader.read(&mut buffer).expect("the end"), 0);
    }
}
