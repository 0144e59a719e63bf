//! Tests that ebb reports a panic of the guest kernel and shows the last lines of its log.

use crate::scratch::Scratch;
use crate::{ebb, programs};
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_kernel_that_panics_says_where() {
    let program = programs::text(programs::path("out_of_memory"));
    let options = ["-m", "64M", "-c", "2", "--sysctl", "vm.panic_on_oom=1"];
    let outcome = ebb::run(300, &options, &[program]);
    let log = outcome.expect(125).err();
    for part in [
        "the guest kernel panicked",
        "out of memory",
        "panic_on_oom",
        "  at 0xffffffff8",
    ] {
        assert!(log.contains(part), "no {part:?} in\n{log}");
    }
}

#[test]
fn a_kernel_that_is_told_to_crash_does() {
    let script = "echo before; echo c > /proc/sysrq-trigger; echo after";
    let outcome = ebb::run(300, &["-m", "64M", "-c", "2"], &["sh", "-c", script]);
    let log = outcome.expect(125).err();
    assert_eq!(outcome.out(), "before\n");
    assert!(log.contains("the guest kernel panicked"), "{log}");
}

/// Shows that packed files below `/proc` cause no panic, although `/proc/self` refers to no task
/// when the archive is unpacked.
#[test]
fn files_that_are_packed_below_proc_are_no_panic() {
    let scratch = Scratch::new("packed-below-proc");
    let file = scratch.write("file", "text");
    let places = [
        "/proc/self/x",
        "/proc/self/fd/3",
        "/proc/thread-self/x",
        "/proc/mounts/x",
        "/dev/stdin/x",
    ];
    let files = places.map(|place| format!("{file}:{place}"));
    let mut options = vec!["-m", "64M", "--root", "none"];
    for file in &files {
        options.extend(["--file", file]);
    }
    let outcome = ebb::run(300, &options, &["sh", "-c", "echo alive"]);
    assert_eq!(outcome.expect(0).out(), "alive\n");
    // ebb packs no interpreter at this path.
    let script = scratch.write("script", "#!/proc/self/exe\n");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, executable).expect("it is ours");
    let options = ["-m", "512M", "--root", "none"];
    let outcome = ebb::run(300, &options, &[&script]);
    assert!(
        outcome.err().contains("/proc/self/exe"),
        "{}",
        outcome.err()
    );
    outcome.expect(126);
    // In the guest, the path refers to the program that runs the script.
    let words = r"printf '#!/proc/self/exe\n' > s; chmod +x s; ./s; echo $?";
    let outcome = ebb::run(300, &options, &["sh", "-c", words]);
    assert_eq!(outcome.expect(0).out(), "127\n");
}

/// A copy of the kernel in `ebb` with other code for some functions.
struct Patched(Scratch, String);

impl Patched {
    fn new(name: &str, patches: &[(&str, &[u8])]) -> Self {
        let built = concat!(env!("OUT_DIR"), "/kernel.elf");
        let mut image = std::fs::read(built).expect("the kernel that ebb embeds");
        for (function, code) in patches {
            let at = place(&image, function, code.len());
            image[at..at + code.len()].copy_from_slice(code);
        }
        let scratch = Scratch::new(name);
        let path = scratch.write("kernel", &image);
        Self(scratch, path)
    }

    /// Returns the log of ebb for a guest with this kernel that runs `script` and panics.
    fn log(&self, script: &str) -> String {
        let options = ["-m", "64M", "-c", "2", "--kernel-image", &self.1];
        let outcome = ebb::run(300, &options, &["sh", "-c", script]);
        assert!(!self.0.path("kernel").is_empty());
        outcome.expect(125).err()
    }
}

/// Returns the file offset of a function's code.
fn place(image: &[u8], function: &str, bytes: usize) -> usize {
    let file = elf::ElfBytes::<elf::endian::LittleEndian>::minimal_parse(image).expect("ELF");
    let (symbols, names) = file.symbol_table().expect("ELF").expect("symbols");
    let named = |symbol: &elf::symbol::Symbol| {
        let name = names.get(symbol.st_name as usize).unwrap_or_default();
        format!("{:#}", rustc_demangle::demangle(name)) == function
    };
    let symbol = symbols.iter().find(named).expect(function);
    let segments = file.segments().expect("segments");
    let inside = |segment: &elf::segment::ProgramHeader| {
        let end = segment.p_vaddr + segment.p_filesz;
        (segment.p_vaddr..end).contains(&symbol.st_value)
    };
    let segment = segments.iter().find(inside).expect("its segment");
    let at = segment.p_offset + (symbol.st_value - segment.p_vaddr);
    let at = usize::try_from(at).expect("in the file");
    assert!(at + bytes <= image.len());
    at
}

/// Returns the kernel's own lines about panics.
fn told(log: &str) -> Vec<&str> {
    let lines = log.lines().filter(|line| line.contains("kernel panicked"));
    lines
        .filter(|line| !line.contains("the guest kernel"))
        .collect()
}

/// Machine code: `swapgs`, GS base set to `base`, a store through it, `ud2`.
fn entry_that_loses_gs(base: u64) -> Vec<u8> {
    let [low, high] = [base & 0xffff_ffff, base >> 32].map(|half| half.to_le_bytes());
    [
        &[0x0f, 0x01, 0xf8, 0xb9, 0x01, 0x01, 0x00, 0xc0, 0xb8],
        &low[..4],
        &[0xba],
        &high[..4],
        &[0x0f, 0x30, 0x65, 0x48, 0x89, 0x24, 0x25, 0x08, 0, 0, 0],
        UD2,
    ]
    .concat()
}

const UD2: &[u8] = &[0x0f, 0x0b];
const ENTRY: &str = "arch_syscall_entry";
const BACKTRACE: &str = "machine::arch::panic::backtrace";

#[test]
fn a_trap_is_told_once_whatever_gs_holds() {
    for base in [0, 0x1000, 0x7fff_ffff_f000, 0xffff_f000_0000_0000] {
        let kernel = Patched::new("panic-gs", &[(ENTRY, &entry_that_loses_gs(base))]);
        let log = kernel.log("true");
        assert!(
            log.contains("the guest kernel panicked"),
            "{base:#x}: {log}"
        );
        assert_eq!(told(&log).len(), 1, "{base:#x}: {log}");
        assert!(log.contains("its GS base was"), "{base:#x}: {log}");
        assert!(log.contains("rax "), "{base:#x}: {log}");
    }
}

#[test]
fn a_trap_while_a_panic_is_told_ends_it() {
    let script = "echo c > /proc/sysrq-trigger";
    let kernel = Patched::new("panic-nested", &[(BACKTRACE, UD2)]);
    let log = kernel.log(script);
    // The first panic is reported first, and the second one in a single line.
    assert!(log.contains("sysrq triggered crash"), "{log}");
    let lines = told(&log);
    assert_eq!(lines.len(), 2, "{log}");
    assert!(
        lines[1].contains("while panicking: invalid instruction"),
        "{log}"
    );
    // This also holds for a trap, and if the CPU's state is unusable.
    let entry = entry_that_loses_gs(0xffff_f000_0000_0000);
    let kernel = Patched::new("panic-nested-gs", &[(ENTRY, &entry), (BACKTRACE, UD2)]);
    let log = kernel.log("true");
    let lines = told(&log);
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[1].contains("while panicking"), "{log}");
}
