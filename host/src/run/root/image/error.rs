//! Errors of an archive that cannot be a root.

use std::io;

/// Why an archive cannot be a root.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("neither a directory nor a tar archive")]
    NoTar,
    #[error("at byte {at} of the archive there is no entry, and not its end")]
    Broken { at: u64 },
    #[error("entry {name}: {why}")]
    Entry { name: String, why: String },
    #[error("layer {name}: {source}")]
    Layer {
        name: String,
        source: Box<ImageError>,
    },
    #[error("the archive names {0}, and does not have it")]
    Missing(String),
    #[error("{name}: {source}")]
    Json {
        name: String,
        source: serde_json::Error,
    },
    #[error("{0}")]
    Image(String),
    #[error("{what} cannot be unpacked: {source}")]
    Coding { what: String, source: io::Error },
    #[error("no room to unpack it (TMPDIR says where): {0}")]
    Scratch(io::Error),
}
