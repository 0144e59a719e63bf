//! A stock kernel: its image, and the modules that its guest loads.

use super::bzimage::{BzImage, FormatError};
use super::cache::{self, CacheError};
use super::demand::{self, Demand};
use super::modules::{self, Module, ModuleError};
use crate::guest::kernel::Extras;
use crate::system::open_regular;
use crate::text::one_line;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Where a build leaves the image in its source tree.
const BUILT_IMAGE: &str = "arch/x86/boot/bzImage";
/// Where an installed kernel stands, its modules beside it.
const BOOT: &str = "boot";
/// What a build leaves in its source tree's root: the names of what is built in.
const BUILT_IN: &str = "modules.builtin";
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
    #[error("cannot read the kernel {}", one_line(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("{} cannot be booted", one_line(path))]
    Format { path: PathBuf, source: FormatError },
    #[error(
        "{} cannot be used: there is no folder {}",
        one_line(image),
        one_line(looked)
    )]
    NoModules { image: PathBuf, looked: PathBuf },
    #[error(
        "{} is no kernel's source tree, or is not built yet: there is no {BUILT_IMAGE} in it",
        one_line(tree)
    )]
    NotBuilt { tree: PathBuf },
    #[error("{} cannot be used", one_line(image))]
    Modules { image: PathBuf, source: ModuleError },
}

impl Stock {
    /// The kernel in the file `image`, or Debian's, which is fetched if it is not there yet.
    ///
    /// An image's modules are in `lib/modules/RELEASE` of the tree whose `boot` it stands in, or in the source tree that it
    /// was built in, which may be named in its place. One that stands elsewhere has its drivers built in.
    pub(crate) fn find(image: Option<&Path>, extras: Extras) -> Result<Self, StockError> {
        match image {
            Some(image) => Self::open(image, extras),
            None => Self::open(&cache::debian_kernel()?, extras),
        }
    }

    fn open(named: &Path, extras: Extras) -> Result<Self, StockError> {
        let built = named.join(BUILT_IMAGE);
        let image = if named.is_dir() {
            if !built.is_file() {
                return Err(StockError::NotBuilt {
                    tree: named.to_owned(),
                });
            }
            built.as_path()
        } else {
            named
        };
        let failed = |source| StockError::Read {
            path: image.to_owned(),
            source,
        };
        let file = open_regular(image).map_err(failed)?;
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
        let (modules, demand) = match &folder {
            Some(folder) => {
                let modules = modules::find(folder, extras).map_err(failed)?;
                let demand = if extras.disks {
                    demand::find(folder).map_err(failed)?
                } else {
                    Demand::default()
                };
                (modules, demand)
            }
            None => (Vec::new(), Demand::default()),
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

/// The folder of the modules that belong to `image`; `None` for one that needs none.
fn module_folder(image: &Path, release: &str) -> Result<Option<PathBuf>, StockError> {
    let real = image.canonicalize().map_err(|source| StockError::Read {
        path: image.to_owned(),
        source,
    })?;
    if real.ends_with(BUILT_IMAGE) {
        let tree = real.ancestors().nth(Path::new(BUILT_IMAGE).iter().count());
        return Ok(tree
            .filter(|tree| tree.join(BUILT_IN).is_file())
            .map(Path::to_owned));
    }
    let folder = real.parent();
    let root = folder.and_then(Path::parent).unwrap_or(Path::new("/"));
    let places = ["lib/modules", "usr/lib/modules"].map(|place| root.join(place).join(release));
    let [first, _] = &places;
    let looked = first.clone();
    match places.into_iter().find(|place| place.is_dir()) {
        Some(place) => Ok(Some(place)),
        // An installed kernel whose modules were forgotten.
        None if folder.is_some_and(|folder| folder.ends_with(BOOT)) => Err(StockError::NoModules {
            image: image.to_owned(),
            looked,
        }),
        None => Ok(None),
    }
}
