//! Removes the sections of a module that only a debugger reads. In a module that was built with
//! them they are by far the larger part, and would be packed and loaded with each guest.

use elf::ElfBytes;
use elf::abi::{ET_REL, SHF_ALLOC, SHT_NOBITS, SHT_NULL};
use elf::endian::LittleEndian;

/// The size of a file header and of a section header in a 64-bit ELF file, in bytes.
const HEADER: usize = 64;
/// The offset of the section table's position in the file header. The offsets below are in a
/// section header: its type, flags, position and size.
const TABLE_AT: usize = 40;
const KIND_AT: usize = 4;
const FLAGS_AT: usize = 8;
const PLACE_AT: usize = 24;
const SIZE_AT: usize = 32;
/// The maximum alignment of a section. A module with a larger one is left unchanged.
const ALIGNMENT_MAX: u64 = 4096;
/// The prefixes of the names of debugging sections, and of the sections with their relocations.
const DEBUGGING: [&str; 4] = [".debug_", ".zdebug_", ".rela.debug_", ".rela.zdebug_"];

/// Returns the bytes of the kernel module `module` without its debugging sections. Sections keep
/// their numbers, so that symbols stay valid. Returns `module` unchanged if it has no such
/// sections, cannot be parsed, or has a section with a large alignment.
pub(super) fn without_debugging(module: Vec<u8>) -> Vec<u8> {
    stripped(&module).unwrap_or(module)
}

/// Returns a copy without debugging sections. Returns `None` if there are none or `module` cannot
/// be parsed.
fn stripped(module: &[u8]) -> Option<Vec<u8>> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(module).ok()?;
    let (headers, names) = file.section_headers_with_strtab().ok()?;
    let (headers, names) = (headers?, names?);
    if file.ehdr.e_type != ET_REL || usize::from(file.ehdr.e_shentsize) != HEADER {
        return None;
    }
    let old_table = usize::try_from(file.ehdr.e_shoff).ok()?;
    let mut new = module.get(..HEADER)?.to_vec();
    let mut table = Vec::new();
    let mut any = false;
    for (number, section) in headers.iter().enumerate() {
        let at = old_table.checked_add(number.checked_mul(HEADER)?)?;
        let mut header = module.get(at..at.checked_add(HEADER)?)?.to_vec();
        let name = names.get(usize::try_from(section.sh_name).ok()?).ok()?;
        let is_loaded = section.sh_flags & u64::from(SHF_ALLOC) != 0;
        if !is_loaded && DEBUGGING.iter().any(|begin| name.starts_with(begin)) {
            any = true;
            header[KIND_AT..KIND_AT + 4].copy_from_slice(&SHT_NULL.to_le_bytes());
            for field in [FLAGS_AT, PLACE_AT, SIZE_AT] {
                header[field..field + 8].fill(0);
            }
        } else if !matches!(section.sh_type, SHT_NULL | SHT_NOBITS) {
            let from = usize::try_from(section.sh_offset).ok()?;
            let bytes = from.checked_add(usize::try_from(section.sh_size).ok()?)?;
            let bytes = module.get(from..bytes)?;
            let alignment = section.sh_addralign.max(1);
            if alignment > ALIGNMENT_MAX {
                return None;
            }
            align(&mut new, usize::try_from(alignment).ok()?);
            let place = u64::try_from(new.len()).ok()?;
            header[PLACE_AT..PLACE_AT + 8].copy_from_slice(&place.to_le_bytes());
            new.extend_from_slice(bytes);
        }
        table.extend_from_slice(&header);
    }
    align(&mut new, 8);
    let place = u64::try_from(new.len()).ok()?;
    new[TABLE_AT..TABLE_AT + 8].copy_from_slice(&place.to_le_bytes());
    new.extend_from_slice(&table);
    any.then_some(new)
}

/// Pads `bytes` with zeros to a multiple of `to`.
fn align(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the bytes of a module with these sections, given as name, bytes and whether the
    /// section is loaded. A section for their names is added.
    pub(in super::super) fn module(sections: &[(&str, &[u8], bool)]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16..20].copy_from_slice(&[1, 0, 62, 0]);
        bytes[20] = 1;
        let mut names = b"\0.shstrtab\0".to_vec();
        let mut table = vec![0; HEADER];
        let entry = |name: usize, kind: u8, loaded: bool, place: usize, size: usize| {
            let mut header = vec![0; HEADER];
            header[0] = u8::try_from(name).expect("short names");
            header[KIND_AT] = kind;
            header[FLAGS_AT] = if loaded { 2 } else { 0 };
            header[PLACE_AT..PLACE_AT + 8].copy_from_slice(&(place as u64).to_le_bytes());
            header[SIZE_AT..SIZE_AT + 8].copy_from_slice(&(size as u64).to_le_bytes());
            header[48] = 16;
            header
        };
        for (name, content, loaded) in sections {
            align(&mut bytes, 16);
            table.extend(entry(names.len(), 1, *loaded, bytes.len(), content.len()));
            names.extend_from_slice(name.as_bytes());
            names.push(0);
            bytes.extend_from_slice(content);
        }
        table.extend(entry(1, 3, false, bytes.len(), names.len()));
        bytes.extend_from_slice(&names);
        let place = (bytes.len() as u64).to_le_bytes();
        bytes[TABLE_AT..TABLE_AT + 8].copy_from_slice(&place);
        bytes[58] = 64;
        let count = u8::try_from(table.len() / HEADER).expect("few");
        (bytes[60], bytes[62]) = (count, count - 1);
        bytes.extend_from_slice(&table);
        bytes
    }

    #[test]
    fn what_a_debugger_reads_goes_and_the_rest_stays() {
        let large = vec![7; 100_000];
        let all = module(&[
            (".text", b"code", true),
            (".debug_info", &large, false),
            (".rela.debug_info", &large, false),
            (".debug_odd", b"loaded", true),
            (".modinfo", b"depends=a\0", true),
        ]);
        let small = without_debugging(all.clone());
        assert!(all.len() > 200_000 && small.len() < 2000, "{}", small.len());
        let file = ElfBytes::<LittleEndian>::minimal_parse(&small).expect("a module");
        let data = |name: &str| {
            let section = file
                .section_header_by_name(name)
                .expect("a table")
                .expect(name);
            assert_eq!(section.sh_offset % 16, 0);
            file.section_data(&section).expect("bytes").0.to_vec()
        };
        assert_eq!(data(".text"), b"code");
        assert_eq!(data(".modinfo"), b"depends=a\0");
        assert_eq!(data(".debug_odd"), b"loaded");
        assert!(data(".debug_info").is_empty());
        assert_eq!(file.section_headers().expect("a table").len(), 7);
        assert_eq!(
            without_debugging(small.clone()),
            small,
            "there is nothing left to take"
        );
    }

    #[test]
    fn what_is_not_understood_stays() {
        let whole = module(&[(".text", b"code", true), (".debug_info", b"xx", false)]);
        for length in 0..whole.len() {
            let part = whole[..length].to_vec();
            assert_eq!(without_debugging(part.clone()), part);
        }
        for at in 0..whole.len() {
            let mut odd = whole.clone();
            odd[at] ^= 0xff;
            // Any result is fine, but it must not panic.
            let _ = without_debugging(odd);
        }
    }
}
