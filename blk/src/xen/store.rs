//! xenstore, as a back-end uses it: a tree of small values that both ends of a device write and
//! watch.

use std::fmt;
use std::io;

/// Tries of a transaction that others keep getting in the way of.
const MAX_TRIES: u32 = 64;

/// Why xenstore did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It said so.
    #[error("xenstore did not {operation} {path}: {why}")]
    Refused {
        /// What was asked for.
        operation: &'static str,
        /// Of what.
        path: String,
        /// By the name of an error number.
        why: String,
    },
    /// No answer.
    #[error("xenstore does not answer")]
    Silent,
    /// An answer to nothing that was asked.
    #[error("xenstore answered what makes no sense: {0}")]
    Nonsense(&'static str),
    /// The device.
    #[error("xenbus: {0}")]
    Io(#[from] io::Error),
}

/// Changes that become visible together. 0 is none: a change is visible at once.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction(pub u32);

/// Something changed at or below a path that is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchEvent {
    /// What changed; empty if it is not known.
    pub path: String,
    /// As given to [`Store::watch`].
    pub token: String,
}

/// xenstore.
pub trait Store: fmt::Debug {
    /// The value at `path`, if it is there.
    ///
    /// # Errors
    /// See [`StoreError`]; so for all of them.
    fn read(&mut self, tx: Transaction, path: &str) -> Result<Option<String>, StoreError>;
    /// Sets the value at `path`.
    ///
    /// # Errors
    /// If it may not be written.
    fn write(&mut self, tx: Transaction, path: &str, value: &str) -> Result<(), StoreError>;
    /// Names below `path`; none if it is not there.
    ///
    /// # Errors
    /// If they are too many.
    fn list(&mut self, path: &str) -> Result<Vec<String>, StoreError>;
    /// Has changes at and below `path` told from now on, with `token`. The first event comes at
    /// once.
    ///
    /// # Errors
    /// If there are too many watches.
    fn watch(&mut self, path: &str, token: &str) -> Result<(), StoreError>;
    /// Begins a transaction.
    ///
    /// # Errors
    /// If there are too many.
    fn begin(&mut self) -> Result<Transaction, StoreError>;
    /// Ends it. Says whether its changes stand: if not, somebody was in the way.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn commit(&mut self, tx: Transaction) -> Result<bool, StoreError>;
    /// An event that was told, without waiting for one.
    ///
    /// # Errors
    /// If the device is lost.
    fn event(&mut self) -> Result<Option<WatchEvent>, StoreError>;
}

/// Writes `values` below `folder` all at once, if the folder is still there: a device that the
/// toolstack just took away must not come back as an empty shell. Says whether it was.
///
/// # Errors
/// If xenstore does not take them.
pub fn write_all(
    store: &mut dyn Store,
    folder: &str,
    values: &[(&str, String)],
) -> Result<bool, StoreError> {
    for _ in 0..MAX_TRIES {
        let tx = store.begin()?;
        let there = store.read(tx, &format!("{folder}/frontend"))?.is_some();
        if there {
            for (name, value) in values {
                store.write(tx, &format!("{folder}/{name}"), value)?;
            }
        }
        if store.commit(tx)? {
            return Ok(there);
        }
    }
    Err(StoreError::Refused {
        operation: "write",
        path: folder.to_owned(),
        why: format!("others got in the way {MAX_TRIES} times"),
    })
}
