//! Classic BPF for filters of system calls (`seccomp(2)`): checks programs and runs them on the
//! data of a call.
//!
//! A program has two registers, A and X, and 16 words of memory. It loads words of the call's data
//! and only jumps forward, so it always ends. [`Instruction::decode`] is the only place that
//! defines the valid instructions; both the check and the run use it.

use crate::errno::Errno;
use alloc::vec::Vec;

/// The most instructions of a program (`BPF_MAXINSNS`).
pub const MAX_INSTRUCTIONS: usize = 4096;
/// Number of 32-bit words that describe a system call to a program (`struct seccomp_data`).
pub const DATA_WORDS: usize = 16;
/// Size of `struct seccomp_data` in bytes.
pub const DATA_BYTES: u32 = 64;
/// Number of words of memory (`BPF_MEMWORDS`).
const MEMORY_WORDS: usize = 16;

/// An instruction as programs pass it (`struct sock_filter`). It may be invalid.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// The operation code.
    pub code: u16,
    /// Number of instructions to skip if a comparison holds.
    pub if_true: u8,
    /// Number of instructions to skip if a comparison does not hold.
    pub if_false: u8,
    /// A number, whose meaning depends on `code`.
    pub k: u32,
}

/// The source of the second operand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Operand {
    /// A number in the instruction.
    Constant(u32),
    X,
}

/// The operation that computes a new value of A from A and an operand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    /// Division by zero ends the program with the result 0.
    Divide,
    Or,
    And,
    Xor,
    /// Shifts use the lowest five bits of the operand.
    Left,
    Right,
}

/// The comparison of A with an operand.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Above,
    AtLeast,
    /// A and the operand have a common bit.
    AnyBit,
}

impl Comparison {
    const fn holds(self, a: u32, b: u32) -> bool {
        match self {
            Self::Equal => a == b,
            Self::Above => a > b,
            Self::AtLeast => a >= b,
            Self::AnyBit => a & b != 0,
        }
    }
}

/// A decoded, valid instruction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Operation {
    /// Loads a word of the call's data into A.
    Load(usize),
    SetA(u32),
    SetX(u32),
    /// Loads a word of the memory into A.
    RecallA(usize),
    RecallX(usize),
    KeepA(usize),
    KeepX(usize),
    Arithmetic(Arithmetic, Operand),
    Negate,
    /// Skips this number of instructions.
    Jump(u32),
    Branch(Comparison, Operand),
    ReturnA,
    Return(u32),
    AToX,
    XToA,
}

/// Bit of a code: the operand is X.
const BY_X: u16 = 0x08;

impl Instruction {
    /// Size of a `struct sock_filter` in bytes.
    pub const BYTES: usize = 8;

    /// Parses `bytes`, a `struct sock_filter`. The result may be an invalid instruction.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [c0, c1, if_true, if_false, k0, k1, k2, k3] = bytes;
        Self {
            code: u16::from_le_bytes([c0, c1]),
            if_true,
            if_false,
            k: u32::from_le_bytes([k0, k1, k2, k3]),
        }
    }

    /// Returns the instruction as the bytes of a `struct sock_filter`.
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        let ([c0, c1], [k0, k1, k2, k3]) = (self.code.to_le_bytes(), self.k.to_le_bytes());
        [c0, c1, self.if_true, self.if_false, k0, k1, k2, k3]
    }

    /// Returns the decoded instruction, or `None` if a filter must not contain it.
    fn decode(self) -> Option<Operation> {
        let k = self.k;
        let place = || usize::try_from(k).ok().filter(|&k| k < MEMORY_WORDS);
        Some(match self.code {
            0x20 if k < DATA_BYTES && k.is_multiple_of(4) => Operation::Load((k / 4) as usize),
            0x00 => Operation::SetA(k),
            0x01 => Operation::SetX(k),
            // The length of the data.
            0x80 => Operation::SetA(DATA_BYTES),
            0x81 => Operation::SetX(DATA_BYTES),
            0x60 => Operation::RecallA(place()?),
            0x61 => Operation::RecallX(place()?),
            0x02 => Operation::KeepA(place()?),
            0x03 => Operation::KeepX(place()?),
            0x84 => Operation::Negate,
            0x05 => Operation::Jump(k),
            0x06 => Operation::Return(k),
            0x16 => Operation::ReturnA,
            0x07 => Operation::AToX,
            0x87 => Operation::XToA,
            _ => return self.decode_operator(),
        })
    }

    /// Decodes an instruction with two operands. Returns `None` if a filter must not contain it.
    fn decode_operator(self) -> Option<Operation> {
        let operand = if self.code & BY_X == 0 {
            Operand::Constant(self.k)
        } else {
            Operand::X
        };
        let arithmetic = match self.code & !BY_X {
            0x04 => Arithmetic::Add,
            0x14 => Arithmetic::Subtract,
            0x24 => Arithmetic::Multiply,
            0x34 if operand != Operand::Constant(0) => Arithmetic::Divide,
            0x44 => Arithmetic::Or,
            0x54 => Arithmetic::And,
            0x64 | 0x74 if operand == Operand::Constant(self.k) && self.k >= u32::BITS => {
                return None;
            }
            0x64 => Arithmetic::Left,
            0x74 => Arithmetic::Right,
            0xa4 => Arithmetic::Xor,
            0x15 => return Some(Operation::Branch(Comparison::Equal, operand)),
            0x25 => return Some(Operation::Branch(Comparison::Above, operand)),
            0x35 => return Some(Operation::Branch(Comparison::AtLeast, operand)),
            0x45 => return Some(Operation::Branch(Comparison::AnyBit, operand)),
            _ => return None,
        };
        Some(Operation::Arithmetic(arithmetic, operand))
    }

    /// Returns how many instructions Linux translates this one into. Linux limits that number.
    fn translated(self) -> usize {
        match self.decode() {
            Some(Operation::Branch(comparison, operand)) => {
                // If either branch leads to the next instruction, one jump is enough. Not every
                // comparison has an opposite.
                let opposite = self.if_true == 0 && comparison != Comparison::AnyBit;
                let jumps = if self.if_false == 0 || opposite { 1 } else { 2 };
                // Linux's translated constants are signed.
                let large = matches!(operand, Operand::Constant(k) if k.cast_signed() < 0);
                jumps + usize::from(large)
            }
            Some(Operation::Arithmetic(Arithmetic::Divide, Operand::X)) => 5,
            Some(Operation::Return(_)) => 2,
            _ => 1,
        }
    }
}

/// A BPF program that [`Program::check`] has accepted. It ends for any data and returns a word.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    instructions: Vec<Instruction>,
}

impl Program {
    /// Checks `instructions` and returns them as a program.
    ///
    /// # Errors
    /// `EINVAL` if there are no instructions or more than [`MAX_INSTRUCTIONS`], or if one of them
    /// is invalid. `EINVAL` for a jump beyond the end, no return at the end, or a read of memory
    /// that may not have been written. `ENOMEM` if memory is short.
    pub fn check(instructions: Vec<Instruction>) -> Result<Self, Errno> {
        if !(1..=MAX_INSTRUCTIONS).contains(&instructions.len()) {
            return Err(Errno::EINVAL);
        }
        let last = instructions.last().and_then(|last| last.decode());
        if !matches!(last, Some(Operation::Return(_) | Operation::ReturnA)) {
            return Err(Errno::EINVAL);
        }
        check_ways(&instructions)?;
        Ok(Self { instructions })
    }

    /// Returns the program's instructions.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Returns the length that Linux counts for the program: the number of instructions into which
    /// Linux translates it, and three that Linux puts before them.
    pub fn translated(&self) -> usize {
        let each = self.instructions.iter();
        3 + each.map(|one| one.translated()).sum::<usize>()
    }

    /// Runs the program on `data`, which describes a system call. Returns the word that the program
    /// returns.
    pub fn run(&self, data: &[u32; DATA_WORDS]) -> u32 {
        let (mut a, mut x) = (0_u32, 0_u32);
        let mut memory = [0; MEMORY_WORDS];
        let mut at = 0;
        // Jumps only lead forward, so there is at most one iteration for each instruction.
        while let Some(instruction) = self.instructions.get(at) {
            at += 1;
            let value = |operand| match operand {
                Operand::Constant(k) => k,
                Operand::X => x,
            };
            match instruction.decode() {
                Some(Operation::Load(word)) => a = data[word % DATA_WORDS],
                Some(Operation::SetA(k)) => a = k,
                Some(Operation::SetX(k)) => x = k,
                Some(Operation::RecallA(place)) => a = memory[place % MEMORY_WORDS],
                Some(Operation::RecallX(place)) => x = memory[place % MEMORY_WORDS],
                Some(Operation::KeepA(place)) => memory[place % MEMORY_WORDS] = a,
                Some(Operation::KeepX(place)) => memory[place % MEMORY_WORDS] = x,
                Some(Operation::Arithmetic(how, operand)) => {
                    match calculate(how, a, value(operand)) {
                        Some(result) => a = result,
                        None => return 0,
                    }
                }
                Some(Operation::Negate) => a = a.wrapping_neg(),
                Some(Operation::Jump(skipped)) => at = at.saturating_add(skipped as usize),
                Some(Operation::Branch(comparison, operand)) => {
                    let skipped = if comparison.holds(a, value(operand)) {
                        instruction.if_true
                    } else {
                        instruction.if_false
                    };
                    at += usize::from(skipped);
                }
                Some(Operation::ReturnA) => return a,
                Some(Operation::Return(k)) => return k,
                Some(Operation::AToX) => x = a,
                Some(Operation::XToA) => a = x,
                None => break,
            }
        }
        // The check makes this unreachable. 0 kills, so no call is let through.
        0
    }
}

/// Applies the operation `how` to `a`, the value of register A, and to `b`. Returns the new value
/// of A, or `None` on a division by zero.
fn calculate(how: Arithmetic, a: u32, b: u32) -> Option<u32> {
    Some(match how {
        Arithmetic::Add => a.wrapping_add(b),
        Arithmetic::Subtract => a.wrapping_sub(b),
        Arithmetic::Multiply => a.wrapping_mul(b),
        Arithmetic::Divide => return a.checked_div(b),
        Arithmetic::Or => a | b,
        Arithmetic::And => a & b,
        Arithmetic::Xor => a ^ b,
        Arithmetic::Left => a.wrapping_shl(b),
        Arithmetic::Right => a.wrapping_shr(b),
    })
}

/// Checks each of `instructions`, the targets of jumps, and that memory is read only after every
/// path to the instruction has written it.
///
/// Each path is represented by the set of words that it has written. The sets at jumps are noted at
/// their targets. At an unreachable instruction all words count as written, as on Linux.
///
/// # Errors
/// `EINVAL` if a check fails. `ENOMEM` if memory is short.
fn check_ways(instructions: &[Instruction]) -> Result<(), Errno> {
    let len = instructions.len();
    let mut noted = Vec::new();
    noted.try_reserve_exact(len).map_err(|_| Errno::ENOMEM)?;
    noted.resize(len, u16::MAX);
    let mut kept = 0_u16;
    for (at, instruction) in instructions.iter().enumerate() {
        kept &= noted[at];
        let mut lead = |skipped: usize, kept: u16| -> Result<(), Errno> {
            let target = at.checked_add(1).and_then(|next| next.checked_add(skipped));
            let target = target.and_then(|target| noted.get_mut(target));
            *target.ok_or(Errno::EINVAL)? &= kept;
            Ok(())
        };
        match instruction.decode().ok_or(Errno::EINVAL)? {
            Operation::KeepA(place) | Operation::KeepX(place) => kept |= 1 << place,
            Operation::RecallA(place) | Operation::RecallX(place) if kept >> place & 1 == 0 => {
                return Err(Errno::EINVAL);
            }
            Operation::Jump(skipped) => {
                lead(skipped as usize, kept)?;
                kept = u16::MAX;
            }
            Operation::Branch(..) => {
                lead(instruction.if_true.into(), kept)?;
                lead(instruction.if_false.into(), kept)?;
                kept = u16::MAX;
            }
            _ => {}
        }
    }
    Ok(())
}
