//! A stock kernel: its image, and the modules that its guest loads.

use super::bzimage::{BzImage, FormatError};
use super::cache::{self, CacheError};
use super::demand::{self, Demand};
use super::module_reader::ModuleReader;
use super::modules::{self, Module, ModuleError};
use super::tree::Tree;
use crate::guest::kernel::Extras;
use crate::system::opened::{facts, kind_of, own_path};
use crate::system::{open_named, regular_of};
use crate::text::one_line;
use rustix::fs::{FileType, OFlags};
use std::borrow::Cow;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Where a build leaves the image in its source tree.
const BUILT_IMAGE: &str = "arch/x86/boot/bzImage";
/// Where an installed kernel stands, its modules beside it.
const BOOT: &str = "boot";
/// Where its modules stand then, in a folder that is called as the kernel's release.
const MODULES: [&str; 2] = ["lib/modules", "usr/lib/modules"];
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
        let failed = |source| StockError::Read {
            path: named.to_owned(),
            source,
        };
        let opened = open_named(named, OFlags::PATH).map_err(|error| failed(error.into()))?;
        let kind = facts(&opened, b"").map_err(|errno| failed(errno.into()))?;
        // All that follows goes by what was opened, whatever its name leads to by now.
        let (file, image, place) = if kind_of(&kind) == FileType::Directory {
            let tree = Tree::of(opened).map_err(failed)?;
            let file = tree.file(Path::new(BUILT_IMAGE));
            let file = file.map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => failed(error),
                _ => StockError::NotBuilt {
                    tree: named.to_owned(),
                },
            })?;
            (
                file,
                Cow::from(named.join(BUILT_IMAGE)),
                ImagePlace::Tree(tree),
            )
        } else {
            let real = std::fs::read_link(own_path(&opened)).map_err(failed)?;
            let file = regular_of(&opened).map_err(failed)?;
            (file, Cow::from(named), ImagePlace::File(real))
        };
        let image = &*image;
        let failed = |source| StockError::Read {
            path: image.to_owned(),
            source,
        };
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
        let tree = place.modules(image, &release)?;
        let failed = |source| StockError::Modules {
            image: image.to_owned(),
            source,
        };
        let (modules, demand) = match &tree {
            Some(tree) => {
                let reader = &mut ModuleReader::default();
                let modules = modules::find(tree, reader, extras).map_err(failed)?;
                let demand = if extras.disks {
                    demand::find(tree, reader).map_err(failed)?
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

/// Where a kernel's image stands.
enum ImagePlace {
    /// In a source tree, which was named.
    Tree(Tree),
    /// At a real path.
    File(PathBuf),
}

impl ImagePlace {
    /// Returns the folder of the modules that belong to `image`; `None` for one that needs none.
    fn modules(self, image: &Path, release: &str) -> Result<Option<Tree>, StockError> {
        let built = |tree: Tree| tree.has_file(Path::new(BUILT_IN)).then_some(tree);
        let real = match self {
            Self::Tree(tree) => return Ok(built(tree)),
            Self::File(real) => real,
        };
        if real.ends_with(BUILT_IMAGE) {
            let top = real.ancestors().nth(Path::new(BUILT_IMAGE).iter().count());
            let tree = top.and_then(|top| Tree::open(top).ok());
            return Ok(tree.and_then(built));
        }
        let folder = real.parent();
        let root = folder.and_then(Path::parent).unwrap_or(Path::new("/"));
        let mut tree = Tree::open(root).ok();
        for place in MODULES {
            match tree.map(|tree| tree.below(Path::new(place).join(release))) {
                Some(Ok(found)) => return Ok(Some(found)),
                Some(Err(same)) => tree = Some(same),
                None => tree = None,
            }
        }
        // An installed kernel whose modules were forgotten.
        if folder.is_some_and(|folder| folder.ends_with(BOOT)) {
            return Err(StockError::NoModules {
                image: image.to_owned(),
                looked: root.join(MODULES[0]).join(release),
            });
        }
        Ok(None)
    }
}
