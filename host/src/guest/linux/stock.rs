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

/// The path of the image in a source tree after a build.
const BUILT_IMAGE: &str = "arch/x86/boot/bzImage";
/// The folder of installed kernels, next to which the module folders are.
const BOOT: &str = "boot";
/// The folders that contain an installed kernel's modules, in a subfolder named after its release.
const MODULES: [&str; 2] = ["lib/modules", "usr/lib/modules"];
/// The list of built-in modules that a build leaves in the root of its source tree.
const BUILT_IN: &str = "modules.builtin";
/// The maximum size of a kernel image in bytes.
const IMAGE_BYTES_MAX: u64 = 256 << 20;

/// A stock kernel that can be booted, with the modules for its guest.
#[derive(Debug)]
pub(crate) struct Stock {
    /// The path of its image.
    pub(crate) image: PathBuf,
    /// The release as `uname -r` prints it.
    pub(crate) release: String,
    bytes: Vec<u8>,
    init_bytes: u64,
    modules: Vec<Module>,
    demand: Demand,
}

/// The reason why a stock kernel cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StockError {
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error("cannot read the kernel {}", one_line(path))]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "{} has {bytes} bytes, and a kernel's image has at most {IMAGE_BYTES_MAX}",
        one_line(path)
    )]
    TooLarge { path: PathBuf, bytes: u64 },
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
    /// Loads the kernel in the file `image` and the modules that a guest with `extras` needs.
    /// Without `image` this is Debian's kernel, which is fetched from the network if it is not in
    /// the cache.
    ///
    /// `image` may be the image of an installed kernel: it is in a folder `boot`, and its modules
    /// are in `lib/modules/RELEASE` next to that folder. It may also be a built source tree, or the
    /// image inside. An image anywhere else must have its drivers built in.
    ///
    /// Fails if the image cannot be read, is over 256 MiB or not a usable kernel, if a source tree
    /// is not built, or if a required module is missing or unusable.
    pub(crate) fn find(image: Option<&Path>, extras: Extras) -> Result<Self, StockError> {
        match image {
            Some(image) => Self::open(image, extras),
            None => Self::open(&cache::debian_kernel()?, extras),
        }
    }

    /// Loads the kernel whose image or source tree is at `named`.
    fn open(named: &Path, extras: Extras) -> Result<Self, StockError> {
        let failed = |source| StockError::Read {
            path: named.to_owned(),
            source,
        };
        let opened = open_named(named, OFlags::PATH).map_err(|error| failed(error.into()))?;
        let kind = facts(&opened, b"").map_err(|errno| failed(errno.into()))?;
        // Everything below uses the opened file, even if `named` leads to another one by now.
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
        let size = file.metadata().map_err(failed)?.len();
        if size > IMAGE_BYTES_MAX {
            return Err(StockError::TooLarge {
                path: image.to_owned(),
                bytes: size,
            });
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

    /// Returns the contents of the kernel image's file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes of guest memory that the kernel needs until it has unpacked itself.
    pub(crate) fn span_bytes(&self) -> u64 {
        self.init_bytes
    }

    /// Returns the modules that the guest loads at boot, in the order of loading. The list is empty
    /// if all are built in.
    pub(crate) fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Returns the modules that a guest with disks may load on request. There are none for a guest
    /// without disks.
    pub(crate) fn demand(&self) -> &Demand {
        &self.demand
    }
}

/// The location of a kernel's image.
enum ImagePlace {
    /// In a source tree, which the user named.
    Tree(Tree),
    /// A file with this real path, without links.
    File(PathBuf),
}

impl ImagePlace {
    /// Returns the folder with the modules of `image`, or `None` if the image needs none. Fails
    /// with `NoModules` if an installed kernel has no module folder.
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
        // A file in a folder `boot` is an installed kernel, whose modules are missing.
        if folder.is_some_and(|folder| folder.ends_with(BOOT)) {
            return Err(StockError::NoModules {
                image: image.to_owned(),
                looked: root.join(MODULES[0]).join(release),
            });
        }
        Ok(None)
    }
}
