//! The guest kernel's image: the one embedded in this binary, or a file for developers.

use crate::embedded;
use crate::qemu::GuestAddress;
use crate::system::read_regular;
use crate::text::one_line;
use elf::ElfBytes;
use elf::endian::LittleEndian;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The base of the kernel's virtual addresses. The kernel is linked at this base (-2 GiB) plus the
/// physical address at which it is loaded.
pub(crate) const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// The image of Ebb's kernel, with the address of its header page.
#[derive(Debug)]
pub(crate) struct KernelImage {
    /// The contents of the ELF file.
    pub(crate) bytes: Cow<'static, [u8]>,
    /// The guest-physical address of the kernel's header page.
    pub(crate) header: GuestAddress,
    /// Guest memory that the loaded image covers in bytes, `.bss` included.
    pub(crate) span_bytes: u64,
}

/// The reason why an image of Ebb's kernel cannot be used.
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
    /// Loads the image at `path`, or the embedded one if that is `None`. Fails if there is no
    /// embedded one, or the file cannot be read or is not an image of Ebb's kernel.
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

/// Returns the guest-physical address of the header and the bytes of memory that the segments
/// cover. Fails if `bytes` is not an ELF file for x86-64 with the header's symbol.
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
