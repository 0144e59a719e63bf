//! [`Failure`]: the reasons why the guest cannot run its program.

use std::error::Error;
use std::{fmt, io};

/// The reason why the guest cannot run its program.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A call of the operating system failed. `what` continues the message "cannot …".
    System { what: String, source: io::Error },
    /// The port with this name did not appear.
    NoPort(&'static str),
    /// The packed file at this path is malformed.
    List(&'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { what, .. } => write!(f, "cannot {what}"),
            Self::NoPort(name) => write!(
                f,
                "no port called {name} appeared: has the kernel virtio_console, virtio_balloon, and virtio_mmio or \
                 virtio_pci, built in or as modules that ebb finds?"
            ),
            Self::List(name) => write!(f, "{name} is not a list of words ended by NULs"),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            Self::NoPort(_) | Self::List(_) => None,
        }
    }
}

impl Failure {
    /// Returns the failure `source` of an operating-system call. `what` continues the message
    /// "cannot …".
    pub(crate) fn new(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System {
            what: what.into(),
            source: source.into(),
        }
    }

    /// Returns the message with all its causes in one line.
    pub(crate) fn line(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            text.push_str(&format!(": {error}"));
            source = error.source();
        }
        text.replace('\n', " ")
    }
}
