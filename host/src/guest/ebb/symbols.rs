//! Function names for the addresses in a kernel's backtrace.

use super::image::KERNEL_BASE;
use crate::text::Names;
use elf::ElfBytes;
use elf::endian::LittleEndian;
use rustc_demangle::demangle;
use std::borrow::Cow;
use std::sync::OnceLock;

/// The maximum number of addresses that are looked up in a line; a backtrace has one or two.
const ADDRESSES_MAX: usize = 4;

/// The functions of a kernel image, for backtraces. The symbol table is read when the first address
/// is looked up.
#[derive(Debug)]
pub(crate) struct Symbols {
    image: Cow<'static, [u8]>,
    functions: OnceLock<Vec<Function>>,
}

#[derive(Debug)]
struct Function {
    start: u64,
    size: u64,
    name: String,
}

impl Symbols {
    /// Creates the table for the ELF file with the bytes `image`. If these are not valid, no
    /// address gets a name.
    pub(crate) fn new(image: Cow<'static, [u8]>) -> Self {
        Self {
            image,
            functions: OnceLock::new(),
        }
    }

    /// Returns the name of the function at `address` and the offset in it. Returns `None` if no
    /// function is there.
    fn find(&self, address: u64) -> Option<(&str, u64)> {
        if address < KERNEL_BASE {
            return None;
        }
        let functions = self
            .functions
            .get_or_init(|| read(&self.image).unwrap_or_default());
        let after = functions.partition_point(|function| function.start <= address);
        let function = &functions[after.checked_sub(1)?];
        let offset = address - function.start;
        // A return address may be one past the function's end, after a call that does not return.
        (offset <= function.size).then_some((function.name.as_str(), offset))
    }
}

impl Names for Symbols {
    /// Returns `line` with a function name after each address that is in one of the kernel's
    /// functions.
    fn annotate(&self, line: &str) -> String {
        let mut text = String::with_capacity(line.len());
        let mut rest = line;
        for _ in 0..ADDRESSES_MAX {
            let Some(start) = rest.find("0xffffffff") else {
                break;
            };
            let digits = &rest[start + 2..];
            let len = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
            let (before, after) = rest.split_at(start + 2 + len);
            text.push_str(before);
            rest = after;
            let address = u64::from_str_radix(&digits[..len], 16).ok();
            if let Some((name, offset)) = address.and_then(|address| self.find(address)) {
                text.push_str(&format!(" <{name}+{offset:#x}>"));
            }
        }
        text.push_str(rest);
        text
    }
}

/// Returns the functions of the ELF file `image`, sorted by address.
fn read(image: &[u8]) -> Result<Vec<Function>, elf::ParseError> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(image)?;
    let Some((symbols, names)) = file.symbol_table()? else {
        return Ok(Vec::new());
    };
    let mut functions: Vec<Function> = symbols
        .iter()
        .filter(|symbol| symbol.st_symtype() == elf::abi::STT_FUNC)
        .filter_map(|symbol| {
            let name = names.get(usize::try_from(symbol.st_name).ok()?).ok()?;
            let name = format!("{:#}", demangle(name));
            Some(Function {
                start: symbol.st_value,
                size: symbol.st_size,
                name,
            })
        })
        .collect();
    functions.sort_unstable_by_key(|function| function.start);
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_names() {
        let symbols = Symbols::new(Cow::Borrowed(&[]));
        let start = KERNEL_BASE + 0x20_0000;
        let function = |start, size, name: &str| Function {
            start,
            size,
            name: name.into(),
        };
        symbols
            .functions
            .set(vec![
                function(start, 0x10, "a::b"),
                function(start + 0x100, 0x20, "c"),
            ])
            .expect("it is new");
        assert_eq!(
            symbols.annotate("at 0xffffffff80200108, 0xffffffff80200010 and on"),
            "at 0xffffffff80200108 <c+0x8>, 0xffffffff80200010 <a::b+0x10> and on"
        );
        for line in [
            "at 0xffffffff80200090",
            "0xffffffff",
            "0xffffffffffffffffff",
            "nothing",
        ] {
            assert_eq!(symbols.annotate(line), line);
        }
    }

    #[test]
    fn broken_images_have_no_names() {
        let symbols = Symbols::new(Cow::Borrowed(b"\x7fELF"));
        assert_eq!(symbols.annotate("0xffffffff80200000"), "0xffffffff80200000");
    }
}
