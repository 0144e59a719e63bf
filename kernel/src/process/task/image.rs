//! Builds a program's initial memory: its file, its heap, its stack.

use super::elf_file::ElfFile;
use super::{executable, limits, vdso};
use crate::fs::{self, OpenFile, permission};
use crate::process::signal;
use crate::vm::{AddressSpace, Backing, MapFlags, Prot};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use linux_raw_sys::auxvec;
use logic::credentials::{Credentials, Wanted};
use logic::elf;
use logic::errno::Errno;
use logic::path;
use logic::strings::Strings;
use machine::arch;
use machine::console;
use machine::memory;

const PAGE: u64 = 4096;
/// The base of position-independent programs; Linux's two thirds of the address space.
const PIE_BASE: u64 = 0x5555_5555_4000;
/// The upper bound of stacks. The vDSO's page lies between the stack and this.
const STACK_TOP: u64 = 0x7fff_ffff_e000;
/// The size of the stack that is mapped at first, besides the arguments. It grows on demand.
const STACK_START: u64 = 128 << 10;
/// The number of pages over which ASLR spreads programs and heaps.
const RANDOM_PAGES: u64 = 1 << 16;
/// The number of pages over which ASLR spreads stacks.
const RANDOM_STACK_PAGES: u64 = 1 << 14;

/// Whether programs are placed at random. `ebb.aslr=off` on the command line turns it off.
static RANDOMIZE: AtomicBool = AtomicBool::new(true);

/// Turns address space randomisation on or off for all programs. Called before the first program
/// starts.
pub(super) fn set_randomize(on: bool) {
    RANDOMIZE.store(on, Ordering::Relaxed);
}

/// Returns whether a program that the current task executes is placed at random.
pub(super) fn randomizes() -> bool {
    /// A flag of `personality(2)`.
    const ADDR_NO_RANDOMIZE: u32 = 0x0004_0000;
    let task = crate::process::current();
    let declined = task.process().personality() & ADDR_NO_RANDOMIZE != 0;
    !declined && RANDOMIZE.load(Ordering::Relaxed)
}

fn random_pages(pages: u64) -> u64 {
    if !randomizes() {
        return 0;
    }
    let mut bytes = [0; 8];
    arch::random::fill(&mut bytes);
    u64::from_ne_bytes(bytes) % pages * PAGE
}

/// A program that can be loaded: its ELF file, and that of its interpreter if it names one.
pub(super) struct Program {
    pub(super) file: ElfFile,
    /// The interpreter that loads `file`, if `file` names one.
    interpreter: Option<ElfFile>,
    /// Whether the user who runs the program may also read it.
    pub(super) readable: bool,
}

/// The load biases of the two files.
#[derive(Copy, Clone)]
struct Place {
    program: u64,
    /// The load bias of the interpreter; 0 if there is no interpreter.
    interpreter: u64,
}

/// The initial state of a loaded program: address space, first instruction, and stack pointer.
pub(super) struct Loaded {
    pub(super) vm: Arc<AddressSpace>,
    pub(super) entry: u64,
    pub(super) stack: u64,
}

/// Opens the program that loads another. The errors are Linux's.
fn open_interpreter(
    context: &fs::Context,
    who: &Credentials,
    path: &[u8],
) -> Result<ElfFile, Errno> {
    if path.is_empty() {
        return Err(Errno::EACCES);
    }
    let file = executable::open(context, who, path)?;
    let is_short = file.metadata().size < elf::HEADER_BYTES as u64;
    // If it names an interpreter itself, that is ignored.
    ElfFile::open(file).map_err(|error| match error {
        Errno::ENOEXEC if is_short => Errno::EIO,
        Errno::ENOEXEC => Errno::ELIBBAD,
        other => other,
    })
}

impl Program {
    /// Parses the ELF file `file`, and its interpreter if it names one. Returns both. `context` and
    /// `who` open the interpreter.
    ///
    /// # Errors
    /// Fails with the errors of [`ElfFile::open`] and [`ElfFile::interpreter`], and with those of
    /// opening the interpreter.
    pub(super) fn open(
        context: &fs::Context,
        who: &Credentials,
        file: Arc<OpenFile>,
    ) -> Result<Self, Errno> {
        let readable = permission::check(who, &**file.node(), Wanted::READ).is_ok();
        let file = ElfFile::open(file)?;
        let interpreter = match file.interpreter()? {
            Some(path) => Some(open_interpreter(context, who, &path).inspect_err(|error| {
                let path = path::printable(&path);
                console!("exec: the program is loaded by {path}: {error}");
            })?),
            None => None,
        };
        Ok(Self {
            file,
            interpreter,
            readable,
        })
    }

    /// Builds the initial memory of the program in a new address space. `path` is the path that the
    /// program sees (`AT_EXECFN`). `args` and `env` are its arguments and environment. `who` has
    /// its credentials, and whether it must distrust its environment (`AT_SECURE`). `limits` bound
    /// the memory.
    ///
    /// # Errors
    /// Fails with `ENOMEM`, with `ENOEXEC` if a file cannot be mapped, and with `E2BIG` if the
    /// strings do not fit into the stack's limit.
    pub(super) fn load(
        &self,
        path: &[u8],
        args: &Strings,
        env: &Strings,
        who: (&Credentials, bool),
        limits: &limits::Limits,
    ) -> Result<Loaded, Errno> {
        let vm = AddressSpace::new()?;
        let current = crate::process::current();
        if let Some(declines) = current.with_vm(|before| Some(before?.declines_huge_pages())) {
            vm.decline_huge_pages(declines);
        }
        let limit = limits.current(limits::index::STACK);
        vm.set_limits(crate::vm::Limits {
            address_space: limits.current(limits::index::AS),
            data: limits.current(limits::index::DATA),
            stack: limit,
        });
        let layout = &self.file.layout;
        let bias = if self.file.header.fixed {
            0
        } else {
            let base = PIE_BASE + random_pages(RANDOM_PAGES);
            base.wrapping_sub(layout.start) & !(layout.alignment - 1)
        };
        self.file.map_at(&vm, bias)?;
        let interpreter = match &self.interpreter {
            Some(interpreter) => Some((interpreter.map_anywhere(&vm)?, interpreter)),
            None => None,
        };
        let end = bias.wrapping_add(layout.end).next_multiple_of(PAGE);
        vm.set_brk(end + random_pages(RANDOM_PAGES / 8));
        let placed = |[first, end]: [u64; 2]| bias.wrapping_add(first)..bias.wrapping_add(end);
        vm.set_program(placed(layout.code), placed(layout.data));
        let place = Place {
            program: bias,
            interpreter: interpreter.map_or(0, |(bias, _)| bias),
        };
        let stack = self.build_stack(&vm, place, path, [args, env], limit, who)?;
        let (bias, first) = interpreter.unwrap_or((bias, &self.file));
        Ok(Loaded {
            vm,
            entry: first.entry(bias),
            stack,
        })
    }

    /// Maps the stack and fills in the ABI's initial contents. Returns the stack pointer. Fails
    /// with `E2BIG` if the contents are larger than the `limit` of the stack, and with the errors
    /// of mapping the stack.
    fn build_stack(
        &self,
        vm: &Arc<AddressSpace>,
        place: Place,
        path: &[u8],
        [args, env]: [&Strings; 2],
        limit: u64,
        who: (&Credentials, bool),
    ) -> Result<u64, Errno> {
        let top = STACK_TOP - random_pages(RANDOM_STACK_PAGES);
        vdso::map(vm, top)?;
        let mut random = [0; 16];
        arch::random::fill(&mut random);
        let strings = StringArea::below(top, path, args, env);
        let aux = self.aux_vector(place, top, &strings, who);
        let words = 1 + args.count() + 1 + env.count() + 1 + aux.len() * 2;
        let pointers = (strings.start - (words * size_of::<u64>()) as u64) & !15;
        let needed = (top - pointers).next_multiple_of(PAGE);
        if needed > limit {
            return Err(Errno::E2BIG);
        }
        let mapped = (needed + STACK_START).min(limit / PAGE * PAGE);
        let mut prot = Prot::READ | Prot::WRITE;
        prot.set(Prot::EXEC, self.file.layout.executable_stack);
        let flags = MapFlags::FIXED | MapFlags::GROWSDOWN | MapFlags::STACK;
        vm.map(Some(top - mapped), mapped, prot, flags, Backing::Anonymous)?;

        let mut stack = Writer::new(vm, pointers)?;
        stack.word(args.count() as u64)?;
        for list in [args.addresses(strings.args), env.addresses(strings.env)] {
            for address in list {
                stack.word(address)?;
            }
            stack.word(0)?;
        }
        let aux_start = stack.at();
        for (key, value) in aux {
            stack.word(key)?;
            stack.word(value)?;
        }
        vm.set_aux_range(aux_start..stack.at());
        // Padding for the alignment of the pointers, less than 16 bytes.
        let gap = usize::try_from(strings.start - stack.at()).unwrap_or(0);
        stack.bytes(&[0; 16][..gap])?;
        stack.bytes(&random)?;
        stack.bytes(PLATFORM)?;
        for piece in args.pieces().chain(env.pieces()) {
            stack.bytes(piece)?;
        }
        stack.bytes(path)?;
        stack.bytes(&[0])?;
        stack.flush()?;
        vm.set_arg_range(strings.args..strings.env);
        vm.set_env_range(strings.env..strings.path);
        vm.set_stack_start(pointers);
        Ok(pointers)
    }

    fn aux_vector(
        &self,
        place: Place,
        vdso: u64,
        strings: &StringArea,
        (credentials, secure): (&Credentials, bool),
    ) -> [(u64, u64); 21] {
        let key = u64::from;
        let file = &self.file;
        [
            (key(auxvec::AT_SYSINFO_EHDR), vdso),
            (key(auxvec::AT_HWCAP), u64::from(arch::cpu::cpuid(1, 0).edx)),
            (key(auxvec::AT_HWCAP2), 0),
            (key(auxvec::AT_PAGESZ), PAGE),
            (key(auxvec::AT_CLKTCK), 100),
            (key(auxvec::AT_PHDR), file.headers(place.program)),
            (key(auxvec::AT_PHENT), elf::PROGRAM_HEADER_BYTES as u64),
            (key(auxvec::AT_PHNUM), file.header.count as u64),
            (key(auxvec::AT_BASE), place.interpreter),
            (key(auxvec::AT_FLAGS), 0),
            (key(auxvec::AT_ENTRY), file.entry(place.program)),
            (key(auxvec::AT_UID), u64::from(credentials.users.real)),
            (key(auxvec::AT_EUID), u64::from(credentials.users.effective)),
            (key(auxvec::AT_GID), u64::from(credentials.groups.real)),
            (
                key(auxvec::AT_EGID),
                u64::from(credentials.groups.effective),
            ),
            (key(auxvec::AT_SECURE), secure.into()),
            (key(auxvec::AT_RANDOM), strings.start),
            (key(auxvec::AT_PLATFORM), strings.start + 16),
            (key(auxvec::AT_EXECFN), strings.path),
            (key(auxvec::AT_MINSIGSTKSZ), signal::minimum_stack() as u64),
            (key(auxvec::AT_NULL), 0),
        ]
    }
}

const PLATFORM: &[u8] = b"x86_64\0";

/// Addresses of the data at the top of the stack.
struct StringArea {
    /// The random bytes, followed by the platform's name.
    start: u64,
    args: u64,
    env: u64,
    path: u64,
}

impl StringArea {
    fn below(top: u64, path: &[u8], args: &Strings, env: &Strings) -> Self {
        // The stack ends with a null word.
        let path = top - 8 - (path.len() as u64 + 1);
        let env = path - env.bytes() as u64;
        let args = env - args.bytes() as u64;
        let start = args - PLATFORM.len() as u64 - 16;
        Self {
            start,
            args,
            env,
            path,
        }
    }
}

/// Fills a new program's stack, upwards.
struct Writer<'a> {
    vm: &'a AddressSpace,
    /// The address at which `buffer` will be written.
    start: u64,
    buffer: Vec<u8>,
}

impl<'a> Writer<'a> {
    /// The number of bytes that are written together.
    const BUFFER: usize = 4 * memory::PAGE_SIZE;

    fn new(vm: &'a AddressSpace, start: u64) -> Result<Self, Errno> {
        let mut buffer = Vec::new();
        buffer
            .try_reserve_exact(Self::BUFFER)
            .map_err(|_| Errno::ENOMEM)?;
        Ok(Self { vm, start, buffer })
    }

    /// Returns the address of the next byte.
    fn at(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }

    fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), Errno> {
        // Ends: each turn but the last fills the buffer.
        while !bytes.is_empty() {
            let room = Self::BUFFER - self.buffer.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == Self::BUFFER {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn word(&mut self, value: u64) -> Result<(), Errno> {
        self.bytes(&value.to_ne_bytes())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.vm.write_bytes(self.start, &self.buffer, true)?;
        self.start = self.at();
        self.buffer.clear();
        Ok(())
    }
}
