//! [`Failure`]: the reasons why the guest cannot run its program.

use std::io;

/// The reason why the guest cannot run its program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("cannot {what}")]
    System {
        what: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "no port called {0} appeared: has the kernel virtio_console, virtio_balloon, and virtio_mmio or virtio_pci, built \
         in or as modules that ebb finds?"
    )]
    NoPort(&'static str),
    #[error("{0} is not a list of words ended by NULs")]
    List(&'static str),
}

/// Returns the failure of an operating-system call. `what` continues the message "cannot …".
impl Failure {
    pub(crate) fn new(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System {
            what: what.into(),
            source: source.into(),
        }
    }

    /// Returns the message with all its causes in one line.
    pub(crate) fn line(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            text.push_str(&format!(": {error}"));
            source = error.source();
        }
        text.replace('\n', " ")
    }
}
