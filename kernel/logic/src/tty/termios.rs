//! The settings of a terminal: `struct termios` and `struct termios2` of the kernel's ABI.

use bitflags::bitflags;

bitflags! {
    /// `c_iflag`: the processing of typed bytes.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct Input: u32 {
        /// A byte 0377 is doubled.
        const PARMRK = 0o10;
        /// The eighth bit is cleared.
        const ISTRIP = 0o40;
        /// Newline becomes carriage return.
        const INLCR = 0o100;
        /// Carriage return is ignored.
        const IGNCR = 0o200;
        /// Carriage return becomes newline.
        const ICRNL = 0o400;
        /// Capital letters become small letters, with `IEXTEN`.
        const IUCLC = 0o1000;
        /// The characters STOP and START stop and continue output.
        const IXON = 0o2000;
        /// Any character continues output.
        const IXANY = 0o4000;
        /// Input is UTF-8: a character is erased as a whole.
        const IUTF8 = 0o40000;
        /// Other bits are kept but have no effect.
        const _ = !0;
    }
}

bitflags! {
    /// `c_oflag`: the processing of written bytes.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct Output: u32 {
        /// Enables the other flags.
        const OPOST = 0o1;
        /// Small letters become capitals.
        const OLCUC = 0o2;
        /// Newline becomes carriage return and newline.
        const ONLCR = 0o4;
        /// Carriage return becomes newline.
        const OCRNL = 0o10;
        /// Carriage return in column 0 is not shown.
        const ONOCR = 0o20;
        /// Newline also returns the cursor to column 0.
        const ONLRET = 0o40;
        /// Tabs become blanks, with both bits set.
        const XTABS = 0o14000;
        /// Other bits are kept but have no effect.
        const _ = !0;
    }
}

bitflags! {
    /// `c_lflag`: how typed bytes form lines.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct Local: u32 {
        /// INTR, QUIT and SUSP send signals.
        const ISIG = 0o1;
        /// Input is read line by line.
        const ICANON = 0o2;
        /// Typed bytes are shown.
        const ECHO = 0o10;
        /// ERASE removes the character from the screen.
        const ECHOE = 0o20;
        /// KILL is shown with a newline.
        const ECHOK = 0o40;
        /// Newline is shown even without `ECHO`.
        const ECHONL = 0o100;
        /// Signal keys do not discard waiting input and output.
        const NOFLSH = 0o200;
        /// Output of jobs in the background stops these jobs.
        const TOSTOP = 0o400;
        /// Controls are shown as `^X`.
        const ECHOCTL = 0o1000;
        /// Erased characters are shown between `\` and `/`.
        const ECHOPRT = 0o2000;
        /// KILL removes each character from the screen.
        const ECHOKE = 0o4000;
        /// Enables WERASE, REPRINT, LNEXT, EOL2 and IUCLC.
        const IEXTEN = 0o100000;
        /// The far side edits lines.
        const EXTPROC = 0o200000;
        /// Other bits are kept but have no effect.
        const _ = !0;
    }
}

bitflags! {
    /// `c_cflag`: the settings of the line.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    pub struct Control: u32 {
        /// 38,400 baud.
        const B38400 = 0o17;
        /// Mask of the speed. Its highest bit alone means that the speed is in a separate field.
        const CBAUD = 0o10017;
        /// Mask of the number of bits of a byte.
        const CSIZE = 0o60;
        /// Eight bits in a byte.
        const CS8 = 0o60;
        /// The receiver is enabled.
        const CREAD = 0o200;
        /// Modem lines are ignored. Only kept.
        const CLOCAL = 0o4000;
        /// There are parity bits.
        const PARENB = 0o400;
        /// The last close hangs up.
        const HUPCL = 0o2000;
        /// Other bits are kept but have no effect.
        const _ = !0;
    }
}

/// Indexes into `c_cc`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are called as in termios(3)")]
pub enum Characters {
    Intr = 0,
    Quit = 1,
    Erase = 2,
    Kill = 3,
    Eof = 4,
    Time = 5,
    Min = 6,
    Start = 8,
    Stop = 9,
    Susp = 10,
    Eol = 11,
    Reprint = 12,
    Werase = 14,
    Lnext = 15,
    Eol2 = 16,
}

/// Number of characters in `c_cc`.
const CHARACTERS: usize = 19;
/// Bytes of `struct termios`.
pub const OLD_BYTES: usize = 36;
/// Bytes of `struct termios2`.
pub const NEW_BYTES: usize = 44;
/// Bytes of `struct termio`.
pub const TERMIO_BYTES: usize = 18;
/// Number of characters in `struct termio`: the first ones of `struct termios`.
const TERMIO_CHARACTERS: usize = 8;
/// The bytes of a `struct termios` whose set bits and bytes mark locked settings.
pub type Locked = [u8; OLD_BYTES];
/// The bytes of a `struct termios2`, which begins like a `struct termios`.
pub type Bytes = [u8; NEW_BYTES];
/// Default input and output speed in baud.
const USUAL_SPEED: u32 = 38_400;

/// When new settings take effect. The caller waits for output.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Immediately.
    Now,
    /// After all output is sent.
    Drained,
    /// After all output is sent; input that was typed but not read is discarded.
    Flush,
}

/// The settings of a terminal.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Termios {
    /// `c_iflag`.
    pub input: Input,
    /// `c_oflag`.
    pub output: Output,
    /// `c_cflag`.
    pub control: Control,
    /// `c_lflag`.
    pub local: Local,
    /// `c_line`. Only kept.
    line: u8,
    characters: [u8; CHARACTERS],
    /// Input and output speed in baud. Only kept.
    speeds: [u32; 2],
}

impl Termios {
    /// Returns the settings of a new terminal.
    pub fn usual() -> Self {
        let mut characters = [0; CHARACTERS];
        for (place, value) in [
            (Characters::Intr, 0o3),
            (Characters::Quit, 0o34),
            (Characters::Erase, 0o177),
            (Characters::Kill, 0o25),
            (Characters::Eof, 0o4),
            (Characters::Min, 1),
            (Characters::Start, 0o21),
            (Characters::Stop, 0o23),
            (Characters::Susp, 0o32),
            (Characters::Reprint, 0o22),
            (Characters::Werase, 0o27),
            (Characters::Lnext, 0o26),
        ] {
            characters[place as usize] = value;
        }
        /// VDISCARD, which has no effect.
        const DISCARD: usize = 13;
        characters[DISCARD] = 0o17;
        Self {
            input: Input::ICRNL | Input::IXON,
            output: Output::OPOST | Output::ONLCR,
            control: Control::B38400 | Control::CS8 | Control::CREAD,
            local: Local::ISIG
                | Local::ICANON
                | Local::ECHO
                | Local::ECHOE
                | Local::ECHOK
                | Local::ECHOCTL
                | Local::ECHOKE
                | Local::IEXTEN,
            line: 0,
            characters,
            speeds: [USUAL_SPEED; 2],
        }
    }

    /// Returns the character `which` of `c_cc`.
    pub fn character(&self, which: Characters) -> u8 {
        self.characters[which as usize]
    }

    /// Sets the character `which` of `c_cc` to `value`.
    pub fn set_character(&mut self, which: Characters, value: u8) {
        self.characters[which as usize] = value;
    }

    /// Returns whether `c` is the character `which` of `c_cc`. A character with the value 0 is
    /// disabled.
    pub(super) fn is(&self, c: u8, which: Characters) -> bool {
        c != 0 && self.character(which) == c
    }

    /// Returns the settings as a `struct termios2`, which begins like a `struct termios`.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = [0; NEW_BYTES];
        let words = [
            self.input.bits(),
            self.output.bits(),
            self.control.bits(),
            self.local.bits(),
        ];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes[16] = self.line;
        bytes[17..OLD_BYTES].copy_from_slice(&self.characters);
        for (place, speed) in bytes[OLD_BYTES..].chunks_exact_mut(4).zip(self.speeds) {
            place.copy_from_slice(&speed.to_ne_bytes());
        }
        bytes
    }

    /// Returns the settings as a `struct termio`: the low halves of the flags, and the first
    /// characters.
    pub fn to_termio(&self) -> [u8; TERMIO_BYTES] {
        let all = self.to_bytes();
        let mut bytes = [0; TERMIO_BYTES];
        for (place, word) in bytes[..8].chunks_exact_mut(2).zip(all.chunks_exact(4)) {
            place.copy_from_slice(&word[..2]);
        }
        bytes[8..9 + TERMIO_CHARACTERS].copy_from_slice(&all[16..17 + TERMIO_CHARACTERS]);
        bytes
    }

    /// Returns these settings with the fields of `termio`, a `struct termio`, replaced.
    pub fn with_termio(&self, termio: &[u8; TERMIO_BYTES]) -> Self {
        let mut all = self.to_bytes();
        for (word, half) in all.chunks_exact_mut(4).zip(termio[..8].chunks_exact(2)) {
            word[..2].copy_from_slice(half);
        }
        all[16..17 + TERMIO_CHARACTERS].copy_from_slice(&termio[8..9 + TERMIO_CHARACTERS]);
        Self::from_bytes(&all)
    }

    /// Parses `bytes`, a `struct termios2`, or a `struct termios` followed by zeros. As for
    /// pseudo-terminals on Linux, bytes then have 8 bits and no parity, and the receiver is
    /// enabled, regardless of `c_cflag`.
    pub fn from_bytes(bytes: &Bytes) -> Self {
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&bytes[at..at + 4]);
            u32::from_ne_bytes(word)
        };
        let control = Control::from_bits_retain(word(8));
        let mut characters = [0; CHARACTERS];
        characters.copy_from_slice(&bytes[17..OLD_BYTES]);
        /// Value of `c_cflag & CBAUD` if the speed is in a separate field.
        const BOTHER: u32 = 0o10000;
        let speeds = if (control & Control::CBAUD).bits() == BOTHER {
            [word(36), word(40)]
        } else {
            [speed(control); 2]
        };
        Self {
            input: Input::from_bits_retain(word(0)),
            output: Output::from_bits_retain(word(4)),
            // As for pseudo-terminals on Linux.
            control: (control - Control::CSIZE - Control::PARENB) | Control::CS8 | Control::CREAD,
            local: Local::from_bits_retain(word(12)),
            line: bytes[16],
            characters,
            speeds,
        }
    }

    /// Returns these settings, with locked ones taken from `old`. A flag is locked if its bit in
    /// `locked` is set. The line and each character are locked if their byte there is not 0. Speeds
    /// are never locked.
    pub(super) fn holding(&self, old: &Self, locked: &Locked) -> Self {
        /// The bytes of `c_iflag`, `c_oflag`, `c_cflag` and `c_lflag`.
        const FLAGS: usize = 16;
        let (mut bytes, old) = (self.to_bytes(), old.to_bytes());
        for (at, &byte) in locked.iter().enumerate() {
            let held = match byte {
                _ if at < FLAGS => byte,
                0 => 0,
                _ => !0,
            };
            bytes[at] = bytes[at] & !held | old[at] & held;
        }
        Self {
            speeds: self.speeds,
            ..Self::from_bytes(&bytes)
        }
    }

    /// Returns whether STOP and START are enabled and are the usual characters.
    pub(super) fn has_usual_flow(&self) -> bool {
        self.input.contains(Input::IXON)
            && self.character(Characters::Start) == 0o21
            && self.character(Characters::Stop) == 0o23
    }
}

/// Returns the speed in baud that `control`, the flags of `c_cflag`, contains.
fn speed(control: Control) -> u32 {
    const SLOW: [u32; 16] = [
        0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19_200, 38_400,
    ];
    const FAST: [u32; 16] = [
        0, 57_600, 115_200, 230_400, 460_800, 500_000, 576_000, 921_600, 1_000_000, 1_152_000,
        1_500_000, 2_000_000, 2_500_000, 3_000_000, 3_500_000, 4_000_000,
    ];
    let bits = (control & Control::CBAUD).bits();
    let table = if bits & 0o10000 == 0 { SLOW } else { FAST };
    table[(bits & 0o17) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back() {
        let mut usual = Termios::usual();
        usual.set_character(Characters::Eol2, 7);
        assert_eq!(Termios::from_bytes(&usual.to_bytes()), usual);
    }

    #[test]
    fn the_structure_is_linuxs() {
        let bytes = Termios::usual().to_bytes();
        assert_eq!(bytes[..4], 0x500u32.to_ne_bytes());
        assert_eq!(bytes[12..16], 0x8a3bu32.to_ne_bytes());
        assert_eq!(bytes[17..21], [3, 0o34, 0o177, 0o25]);
    }

    #[test]
    fn speeds_are_said_by_flags_or_by_themselves() {
        let mut bytes = Termios::usual().to_bytes();
        bytes[8..12].copy_from_slice(&0o10002u32.to_ne_bytes());
        assert_eq!(Termios::from_bytes(&bytes).speeds, [115_200; 2]);
        bytes[8..12].copy_from_slice(&0o10000u32.to_ne_bytes());
        bytes[36..40].copy_from_slice(&12_345u32.to_ne_bytes());
        assert_eq!(Termios::from_bytes(&bytes).speeds, [12_345, 38_400]);
    }
}
