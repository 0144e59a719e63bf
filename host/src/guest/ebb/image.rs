//! The guest kernel's image: the one in this binary, or a developer's.

use crate::embedded;
use crate::qemu::GuestAddress;
use crate::system::read_regular;
use crate::text::one_line;
use elf::ElfBytes;
use elf::endian::LittleEndian;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The kernel is linked at -2 GiB plus the physical address it is loaded at.
pub(crate) const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// A kernel that can be booted and watched.
#[derive(Debug)]
pub(crate) struct KernelImage {
    /// The ELF file.
    pub(crate) bytes: Cow<'static, [u8]>,
    /// Where the kernel's header stands in guest RAM.
    pub(crate) header: GuestAddress,
    /// Guest memory that the loaded image covers, `.bss` included.
    pub(crate) span_bytes: u64,
}

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("this ebb was built without a guest kernel (EBB_SKIP_KERNEL)")]
    NotEmbedded,
    #[error("cannot read the kernel image {}", one_line(path))]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the kernel image is not a usable ELF file")]
    Elf(#[from] elf::ParseError),
    #[error("the kernel image {0}")]
    Unfit(&'static str),
}

impl KernelImage {
    /// The image at `path`, or the embedded one.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self, ImageError> {
        let bytes = match path {
            Some(path) => Cow::Owned(read_regular(path).map_err(|source| ImageError::Read {
                path: path.to_owned(),
                source,
            })?),
            None => match embedded::get().kernel {
                [] => return Err(ImageError::NotEmbedded),
                kernel => Cow::Borrowed(kernel),
            },
        };
        let (header, span_bytes) = inspect(&bytes)?;
        Ok(Self {
            bytes,
            header,
            span_bytes,
        })
    }
}

/// Finds the header's physical address and the memory that the segments cover.
fn inspect(bytes: &[u8]) -> Result<(GuestAddress, u64), ImageError> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(bytes)?;
    if file.ehdr.class != elf::file::Class::ELF64 || file.ehdr.e_machine != elf::abi::EM_X86_64 {
        return Err(ImageError::Unfit("is not for x86-64"));
    }
    let (symbols, names) = file
        .symbol_table()?
        .ok_or(ImageError::Unfit("has no symbols (was it stripped?)"))?;
    let header = symbols
        .iter()
        .find(|symbol| {
            usize::try_from(symbol.st_name)
                .is_ok_and(|name| names.get(name).is_ok_and(|n| n == ebb_wire::header::SYMBOL))
        })
        .ok_or(ImageError::Unfit("lacks the symbol `ebb_guest_header`"))?;
    let address = header
        .st_value
        .checked_sub(KERNEL_BASE)
        .ok_or(ImageError::Unfit(
            "has its header outside the kernel's addresses",
        ))?;
    let segments = file
        .segments()
        .ok_or(ImageError::Unfit("has no segments"))?;
    let loaded = segments
        .iter()
        .filter(|segment| segment.p_type == elf::abi::PT_LOAD);
    let span = loaded
        .map(|segment| segment.p_memsz)
        .try_fold(0u64, u64::checked_add);
    Ok((
        GuestAddress(address),
        span.ok_or(ImageError::Unfit("has impossible segments"))?,
    ))
}
