//! The interface to xenstore: a tree of small values that both ends of a device write and watch.

use std::fmt;
use std::io;

/// Maximum number of attempts at a transaction that conflicts with others.
const MAX_TRIES: u32 = 64;

/// The reason why an operation of xenstore failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// xenstore refused it.
    #[error("xenstore did not {operation} {path}: {why}")]
    Refused {
        /// The operation.
        operation: &'static str,
        /// The path.
        path: String,
        /// The name of an error number.
        why: String,
    },
    /// xenstore did not answer in time.
    #[error("xenstore does not answer")]
    Silent,
    /// xenstore sent a malformed answer, or one that belongs to no request.
    #[error("xenstore answered what makes no sense: {0}")]
    Nonsense(&'static str),
    /// The device failed.
    #[error("xenbus: {0}")]
    Io(#[from] io::Error),
}

/// The number of a transaction, whose changes become visible together. 0 means none: each change is
/// visible at once.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction(pub u32);

/// A change at or below a watched path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchEvent {
    /// The path that changed; empty if events were lost.
    pub path: String,
    /// The token passed to [`Store::watch`].
    pub token: String,
}

/// A connection to xenstore. All operations except [`Self::event`] wait for the answer.
pub trait Store: fmt::Debug {
    /// Returns the value at `path`. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if xenstore refuses or does not answer. See [`StoreError`]; this holds for all
    /// operations.
    fn read(&mut self, tx: Transaction, path: &str) -> Result<Option<String>, StoreError>;
    /// Sets the value at `path`, which is made if it does not exist.
    ///
    /// # Errors
    /// Fails if this domain may not write it, or path and value are too long for a message.
    fn write(&mut self, tx: Transaction, path: &str, value: &str) -> Result<(), StoreError>;
    /// Returns the names directly below `path`. Returns an empty list if `path` does not exist.
    ///
    /// # Errors
    /// Fails if the names are too long for one answer.
    fn list(&mut self, path: &str) -> Result<Vec<String>, StoreError>;
    /// Watches `path`: from now on each change at or below it is reported as an event with `token`,
    /// which [`Self::event`] returns. The first event comes at once, without a change.
    ///
    /// # Errors
    /// Fails if this domain has too many watches.
    fn watch(&mut self, path: &str, token: &str) -> Result<(), StoreError>;
    /// Begins a transaction and returns its number, for the operations in it and for
    /// [`Self::commit`].
    ///
    /// # Errors
    /// Fails if this domain has too many transactions.
    fn begin(&mut self) -> Result<Transaction, StoreError>;
    /// Ends the transaction `tx`. Returns `true` if its changes were made, and `false` if they were
    /// dropped because they conflict with others.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn commit(&mut self, tx: Transaction) -> Result<bool, StoreError>;
    /// Ends the transaction `tx` and drops its writes.
    ///
    /// # Errors
    /// See [`StoreError`].
    fn abort(&mut self, tx: Transaction) -> Result<(), StoreError>;
    /// Takes one event of a watch that has arrived. Returns `None` if there is none. Does not wait.
    ///
    /// # Errors
    /// Fails if the device fails or xenstore sends nonsense.
    fn event(&mut self) -> Result<Option<WatchEvent>, StoreError>;
}

/// Writes `values`, names and their values, below `folder` in one transaction, if the device there
/// still exists. Otherwise a device that the toolstack has just removed would get an empty folder
/// again. Returns `false`, and writes nothing, if it does not exist.
///
/// # Errors
/// Fails if xenstore refuses or does not answer, or after 64 conflicts.
pub fn write_all(
    store: &mut dyn Store,
    folder: &str,
    values: &[(&str, String)],
) -> Result<bool, StoreError> {
    for _ in 0..MAX_TRIES {
        let tx = store.begin()?;
        let there = match write_in(store, tx, folder, values) {
            Ok(there) => there,
            Err(error) => {
                // A domain may have a few open transactions only.
                let _ = store.abort(tx);
                return Err(error);
            }
        };
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

/// Writes `values` below `folder` in the transaction `tx`, if the device there still exists.
/// Returns `false` if it does not. Fails if xenstore refuses or does not answer.
fn write_in(
    store: &mut dyn Store,
    tx: Transaction,
    folder: &str,
    values: &[(&str, String)],
) -> Result<bool, StoreError> {
    let there = store.read(tx, &format!("{folder}/frontend"))?.is_some();
    if there {
        for (name, value) in values {
            store.write(tx, &format!("{folder}/{name}"), value)?;
        }
    }
    Ok(there)
}

#[cfg(test)]
mod tests {
    use super::super::fake::FakeStore;
    use super::*;

    #[test]
    fn a_refused_write_leaves_no_transaction_open() {
        let mut store = FakeStore::default();
        store.set("device/frontend", "front");
        let long = [("value", "x".repeat(5000))];
        let refused = write_all(&mut store, "device", &long);
        assert!(
            matches!(refused, Err(StoreError::Refused { .. })),
            "{refused:?}"
        );
        assert_eq!(store.open_transactions(), 0);
        let written = write_all(&mut store, "device", &[("value", "x".to_owned())]);
        assert!(matches!(written, Ok(true)), "{written:?}");
        assert_eq!(store.open_transactions(), 0);
    }
}
