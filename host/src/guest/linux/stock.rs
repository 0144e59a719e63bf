//! A stock kernel: its image, and the modules that its guest loads.

use super::bzimage::{BzImage, FormatError};
use super::cache::{self, CacheError};
use super::demand::{self, Demand};
use super::modules::{self, Module, ModuleError};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A kernel image larger than this is none.
const IMAGE_BYTES_MAX: u64 = 256 << 20;

/// A stock kernel that can be booted.
#[derive(Debug)]
pub(crate) struct Stock {
    /// Where its image was found.
    pub(crate) image: PathBuf,
    /// As `uname -r` prints it.
    pub(crate) release: String,
    bytes: Vec<u8>,
    init_bytes: u64,
    modules: Vec<Module>,
    demand: Demand,
}

/// Why there is no stock kernel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StockError {
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error("cannot read the kernel {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} cannot be booted", path.display())]
    Format { path: PathBuf, source: FormatError },
    #[error("{} cannot be used: there is no folder {}", image.display(), looked.display())]
    NoModules { image: PathBuf, looked: PathBuf },
    #[error("{} cannot be used", image.display())]
    Modules { image: PathBuf, source: ModuleError },
}

impl Stock {
    /// The kernel in the file `image`, or Debian's, which is fetched if it is not there yet.
    ///
    /// An image's modules are in `lib/modules/RELEASE` of the tree whose `boot` it stands in.
    pub(crate) fn find(image: Option<&Path>, disks: bool) -> Result<Self, StockError> {
        match image {
            Some(image) => Self::open(image, disks),
            None => Self::open(&cache::debian_kernel()?, disks),
        }
    }

    fn open(image: &Path, disks: bool) -> Result<Self, StockError> {
        let failed = |source| StockError::Read {
            path: image.to_owned(),
            source,
        };
        let file = File::open(image).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is not a file")));
        }
        let mut bytes = Vec::new();
        file.take(IMAGE_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        let BzImage {
            release,
            init_bytes,
        } = BzImage::parse(&bytes).map_err(|source| StockError::Format {
            path: image.to_owned(),
            source,
        })?;
        let folder = module_folder(image, &release)?;
        let failed = |source| StockError::Modules {
            image: image.to_owned(),
            source,
        };
        let modules = modules::find(&folder, disks).map_err(failed)?;
        let demand = if disks {
            demand::find(&folder).map_err(failed)?
        } else {
            Demand::default()
        };
        Ok(Self {
            image: image.to_owned(),
            release,
            bytes,
            init_bytes,
            modules,
            demand,
        })
    }

    /// The image.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Memory that it takes until it has unpacked itself.
    pub(crate) fn span_bytes(&self) -> u64 {
        self.init_bytes
    }

    /// The modules that its guest loads, in order.
    pub(crate) fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Those that it may load later.
    pub(crate) fn demand(&self) -> &Demand {
        &self.demand
    }
}

/// The folder of the modules that belong to `image`.
fn module_folder(image: &Path, release: &str) -> Result<PathBuf, StockError> {
    let real = image.canonicalize().map_err(|source| StockError::Read {
        path: image.to_owned(),
        source,
    })?;
    let root = real
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("/"));
    let places = ["lib/modules", "usr/lib/modules"].map(|place| root.join(place).join(release));
    let [first, _] = &places;
    let looked = first.clone();
    places
        .into_iter()
        .find(|place| place.is_dir())
        .ok_or(StockError::NoModules {
            image: image.to_owned(),
            looked,
        })
}
