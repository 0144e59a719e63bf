//! One terminal: its settings, its input, its output, and stopped output.

use super::buffer::{Buffer, CAPACITY, NoMemory};
use super::packet::Packet;
use super::screen::{LONGEST, Screen};
use super::termios::{Characters, Control, Input, Local, Locked, OLD_BYTES, Output, Termios, When};
use alloc::collections::VecDeque;

/// The most bytes of output that wait for the far side (the master of a pseudo-terminal, or the
/// host).
pub const OUTPUT_ROOM: usize = 12 << 10;
/// The most waiting bytes that stay when output is flushed: as on Linux, they count as already
/// taken by the far side.
const TAKEN: usize = CAPACITY - 1;
/// The most typed bytes that wait for room in the buffer.
const BACKLOG: usize = 8 << 10;
/// The most typed bytes that one call processes. A single byte may cause a whole line to be shown
/// again.
const STEP: usize = 256;
/// Number of processed bytes that are collected before they are added to the output.
const STAGED: usize = 256;
/// The most bytes of echo that wait for the output. Further echo is not shown.
const HELD: usize = 4096;

/// The keys that send signals, and which of them were typed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// INTR: `SIGINT`.
    pub interrupt: bool,
    /// QUIT: `SIGQUIT`.
    pub quit: bool,
    /// SUSP: `SIGTSTP`.
    pub suspend: bool,
}

impl Keys {
    /// Returns whether any of the keys was typed.
    pub fn any(self) -> bool {
        self.interrupt || self.quit || self.suspend
    }
}

/// The request of `tcflow`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Stop output.
    Off,
    /// Continue output.
    On,
}

/// A terminal. A program reads and writes on one side of it. On the far side, a program at the
/// master of a pseudo-terminal or the host types and watches.
#[derive(Debug)]
pub struct Discipline {
    pub(super) termios: Termios,
    /// The settings that are locked (`TIOCSLCKTRMIOS`).
    locked: Locked,
    pub(super) buffer: Buffer,
    pub(super) screen: Screen,
    /// Typed bytes that are not in the buffer yet.
    backlog: VecDeque<u8>,
    /// Shown bytes that the far side has not taken yet.
    output: VecDeque<u8>,
    /// Echo that waits for the output.
    held: VecDeque<u8>,
    /// Whether output is stopped: STOP was typed, or a call stopped it.
    stopped: bool,
    /// Whether `tcflow` has stopped output.
    stopped_by_call: bool,
    /// Whether characters are being erased, shown between `\` and `/`.
    pub(super) erasing: bool,
    /// Whether the last byte was LNEXT.
    pub(super) next_is_literal: bool,
    /// Events that the far side has not read yet. `None` without packet mode.
    packet: Option<Packet>,
    /// Signal keys that were not reported yet.
    pub(super) keys: Keys,
    /// Whether bytes were typed since the last [`Self::take_arrivals`].
    typed: bool,
}

impl Discipline {
    /// Returns a new terminal with the settings `termios`.
    ///
    /// # Errors
    /// [`NoMemory`] if memory is short.
    pub fn new(termios: Termios) -> Result<Self, NoMemory> {
        Ok(Self {
            termios,
            locked: [0; OLD_BYTES],
            buffer: Buffer::new()?,
            screen: Screen::default(),
            backlog: VecDeque::new(),
            output: VecDeque::new(),
            held: VecDeque::new(),
            stopped: false,
            stopped_by_call: false,
            erasing: false,
            next_is_literal: false,
            packet: None,
            keys: Keys::default(),
            typed: false,
        })
    }

    /// Returns the terminal's settings.
    pub fn termios(&self) -> &Termios {
        &self.termios
    }

    /// Returns whether input is read by lines.
    fn is_canonical(&self) -> bool {
        self.termios.local.contains(Local::ICANON)
    }

    /// Returns whether input is read by lines and the discipline edits them.
    fn reads_lines(&self) -> bool {
        self.is_canonical() && !self.termios.local.contains(Local::EXTPROC)
    }

    // Input.

    /// Processes `bytes`, which the far side (the master of a pseudo-terminal, or the host) typed.
    /// Returns the number of bytes that were accepted. Some of them may wait for
    /// [`Self::catch_up`].
    pub fn receive(&mut self, bytes: &[u8]) -> usize {
        self.typed = true;
        let most = STEP - self.drain_backlog();
        let mut done = 0;
        if self.backlog.is_empty() {
            while done < bytes.len().min(most) && self.make_room() {
                self.take(bytes[done]);
                done += 1;
            }
        }
        let rest = &bytes[done..];
        let fit = rest.len().min(BACKLOG - self.backlog.len());
        if fit > 0 && self.backlog.try_reserve(fit).is_ok() {
            self.backlog.extend(&rest[..fit]);
            done += fit;
        }
        self.release_held();
        done
    }

    /// Returns whether there is room for another typed byte, so that [`Self::receive`] accepts it.
    pub fn has_input_room(&self) -> bool {
        self.backlog.len() < BACKLOG
    }

    /// Returns whether the buffer accepts a byte. In canonical mode it always does while the line
    /// being typed is the only one. Excess bytes then replace the last byte, so that the line can
    /// be ended.
    fn make_room(&mut self) -> bool {
        let has_room = self.has_room();
        if has_room && self.usable() == 0 {
            self.buffer.pop();
        }
        has_room
    }

    fn has_room(&self) -> bool {
        self.usable() > 1 || self.is_canonical() && !self.buffer.has_line()
    }

    fn usable(&self) -> usize {
        let doubled = self.termios.input.contains(Input::PARMRK);
        let free = CAPACITY - self.buffer.len();
        if doubled { free.div_ceil(3) } else { free }
    }

    /// Returns whether typed bytes wait that [`Self::catch_up`] could process.
    pub fn is_behind(&self) -> bool {
        !self.backlog.is_empty() && self.has_room()
    }

    /// Processes typed bytes that wait, at most 256 in one call, as far as the input buffer has
    /// room.
    pub fn catch_up(&mut self) {
        self.drain_backlog();
    }

    /// Processes typed bytes that waited for room. Returns their number.
    fn drain_backlog(&mut self) -> usize {
        let mut done = 0;
        while done < STEP && !self.backlog.is_empty() && self.make_room() {
            if let Some(c) = self.backlog.pop_front() {
                self.take(c);
            }
            done += 1;
        }
        if self.backlog.is_empty() {
            // Frees the memory that a burst took.
            self.backlog = VecDeque::new();
        }
        self.release_held();
        done
    }

    /// Returns the signal keys that were typed since the last call, and forgets them.
    pub fn take_keys(&mut self) -> Keys {
        core::mem::take(&mut self.keys)
    }

    /// Returns the number of notifications of input that the reading program must get since the
    /// last call. That is one for each line, or one for all typed bytes if input is not read by
    /// lines.
    pub fn take_arrivals(&mut self) -> u32 {
        let lines = self.buffer.take_ended();
        let bytes = core::mem::take(&mut self.typed);
        match self.reads_lines() {
            true => lines,
            false => u32::from(bytes && self.buffer.len() > 0),
        }
    }

    // The program reads.

    /// Reads a line, or the available bytes, into `into`. Returns the number of bytes, which is 0
    /// for the end of a file. Returns `None` if nothing is available or `into` is empty.
    pub fn read(&mut self, into: &mut [u8]) -> Option<usize> {
        if into.is_empty() {
            return None;
        }
        let got = if self.reads_lines() {
            self.buffer.read_line(into)
        } else {
            let count = self.buffer.read_bytes(into);
            (count > 0).then_some(count)
        };
        self.drain_backlog();
        got
    }

    /// Returns whether input is available: a line or the end of a file if input is read by lines,
    /// else a byte. If `polled` and input is not read by lines, the minimum number of bytes that a
    /// reader waits for (`VMIN`) must be available, unless `VTIME` limits its wait.
    pub fn is_readable(&self, polled: bool) -> bool {
        if self.reads_lines() {
            return self.buffer.has_line();
        }
        let [least, time] = self.least_and_time();
        let wanted = if polled && time == 0 && least > 0 {
            usize::from(least)
        } else {
            1
        };
        self.buffer.len() >= wanted
    }

    /// Returns the number of bytes that a reader waits for (`VMIN`), and the time for which it
    /// waits, in tenths of a second (`VTIME`). Returns `None` if input is read by lines.
    pub fn patience(&self) -> Option<[u8; 2]> {
        (!self.reads_lines()).then(|| self.least_and_time())
    }

    fn least_and_time(&self) -> [u8; 2] {
        [Characters::Min, Characters::Time].map(|which| self.termios.character(which))
    }

    /// Returns the number of bytes that could be read (`FIONREAD`).
    pub fn readable_bytes(&self) -> usize {
        if self.reads_lines() {
            self.buffer.count_of_lines()
        } else {
            self.buffer.len()
        }
    }

    // The program writes.

    /// Writes `bytes`, which are output of the program. Returns the number of bytes that were
    /// accepted. It is 0 while output is stopped or echo waits for room.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        self.release_held();
        if self.is_held() || !self.held.is_empty() {
            return 0;
        }
        let processed = self.termios.output.contains(Output::OPOST);
        let room = OUTPUT_ROOM - self.output.len();
        if !processed {
            let fit = bytes.len().min(room);
            if self.output.try_reserve(fit).is_err() {
                return 0;
            }
            self.output.extend(&bytes[..fit]);
            return fit;
        }
        let mut done = 0;
        // Each iteration consumes at least one byte.
        while done < bytes.len() {
            let room = (OUTPUT_ROOM - self.output.len()).min(STAGED);
            if room < LONGEST || self.output.try_reserve(room).is_err() {
                break;
            }
            let mut staged = [0; STAGED];
            let mut len = 0;
            while let Some(&c) = bytes.get(done)
                && let Some(shown) = staged[len..room].first_chunk_mut()
            {
                len += self.screen.process(c, &self.termios, shown);
                done += 1;
            }
            self.output.extend(&staged[..len]);
        }
        done
    }

    /// Returns whether output is not stopped and has room for any byte as it is shown, so that
    /// [`Self::write`] accepts a byte.
    pub fn is_writable(&self) -> bool {
        !self.is_held() && OUTPUT_ROOM - self.output.len() >= LONGEST
    }

    /// Returns whether output is stopped, by the character STOP or by a call (`tcflow`).
    pub fn is_held(&self) -> bool {
        self.stopped || self.stopped_by_call
    }

    /// Shows the byte `c` of echo, processed like output.
    pub(super) fn show(&mut self, c: u8) {
        if self.termios.output.contains(Output::OPOST) {
            let mut shown = [0; LONGEST];
            let len = self.screen.process(c, &self.termios, &mut shown);
            self.show_bytes(&shown[..len]);
        } else {
            self.show_bytes(&[c]);
        }
    }

    /// Adds `bytes` to the echo without processing. They are shown after all bytes typed together
    /// were processed, because a signal key discards echo that is not shown yet. The echo never
    /// waits: if there is not enough room, `bytes` are dropped.
    pub(super) fn show_bytes(&mut self, bytes: &[u8]) {
        if self.held.len() + bytes.len() > HELD {
            self.release_held();
        }
        if self.held.len() + bytes.len() <= HELD && self.held.try_reserve(bytes.len()).is_ok() {
            self.held.extend(bytes);
        }
    }

    /// Returns whether further echo would be dropped.
    pub(super) fn is_screen_full(&self) -> bool {
        self.held.len() + LONGEST > HELD && (self.is_held() || self.output.len() >= OUTPUT_ROOM)
    }

    /// Moves echo to the output as far as there is room.
    fn release_held(&mut self) {
        if self.is_held() {
            return;
        }
        while self.output.len() < OUTPUT_ROOM && self.output.try_reserve(1).is_ok() {
            let Some(c) = self.held.pop_front() else {
                self.held = VecDeque::new();
                return;
            };
            self.output.push_back(c);
        }
    }

    // The far side watches.

    /// Copies output for the far side (the master of a pseudo-terminal, or the host) into `into`
    /// and returns the number of bytes. The output stays until [`Self::consume_output`].
    pub fn peek_output(&self, into: &mut [u8]) -> usize {
        let (first, second) = self.output.as_slices();
        let first = &first[..first.len().min(into.len())];
        let (begin, rest) = into.split_at_mut(first.len());
        let second = &second[..second.len().min(rest.len())];
        begin.copy_from_slice(first);
        rest[..second.len()].copy_from_slice(second);
        first.len() + second.len()
    }

    /// Removes the first `count` bytes of output, which the far side has taken after
    /// [`Self::peek_output`].
    pub fn consume_output(&mut self, count: usize) {
        self.output.drain(..count.min(self.output.len()));
        if self.output.is_empty() {
            self.output = VecDeque::new();
        }
        self.release_held();
    }

    /// Returns the number of bytes of output that wait for the far side.
    pub fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// Returns the number of bytes that the master of a pseudo-terminal could read (`FIONREAD`). As
    /// on Linux, it is at most one less than the size of the input buffer.
    pub fn far_readable_bytes(&self) -> usize {
        self.output.len().min(TAKEN)
    }

    /// Discards the output that the master of a pseudo-terminal could read
    /// ([`Self::far_readable_bytes`]).
    pub fn flush_far(&mut self) {
        self.output.drain(..self.far_readable_bytes());
        self.release_held();
    }

    /// Discards the bytes that were typed at the far side and not processed yet.
    pub fn flush_backlog(&mut self) {
        self.backlog = VecDeque::new();
    }

    /// Adds the byte `c` to the output unprocessed: a flow character, or the byte of a `TIOCSTI` at
    /// the master of a pseudo-terminal. Drops `c` if there is no room.
    pub fn insert_output(&mut self, c: u8) {
        if self.output.len() < OUTPUT_ROOM && self.output.try_reserve(1).is_ok() {
            self.output.push_back(c);
        }
    }

    // Settings, flow and flushing.

    /// Returns the locked settings.
    pub fn locked(&self) -> &Locked {
        &self.locked
    }

    /// Locks the settings that are marked in `locked`, and unlocks all others.
    pub fn set_locked(&mut self, locked: Locked) {
        self.locked = locked;
    }

    /// Sets the setting `CLOCAL` to `local`, even if that setting is locked.
    pub fn set_local_line(&mut self, local: bool) {
        self.termios.control.set(Control::CLOCAL, local);
    }

    /// Changes the settings to `new`, except for locked ones. [`When::Flush`] also calls
    /// [`Self::flush_input`]. The caller must have waited for the output if `when` requires that.
    pub fn set_termios(&mut self, new: Termios, when: When) {
        let new = new.holding(&self.termios, &self.locked);
        if when == When::Flush {
            self.flush_input();
        }
        let old = core::mem::replace(&mut self.termios, new);
        let changed = old.local ^ new.local;
        if changed.intersects(Local::ICANON | Local::EXTPROC) {
            self.buffer.set_canonical(self.is_canonical());
            self.erasing = false;
            self.next_is_literal = false;
        }
        if old.input.contains(Input::IXON)
            && !new.input.contains(Input::IXON)
            && !self.stopped_by_call
        {
            self.start();
        }
        let (before, now) = (old.has_usual_flow(), new.has_usual_flow());
        if before != now {
            let [set, cleared] = if now {
                [Packet::DO_STOP, Packet::NO_STOP]
            } else {
                [Packet::NO_STOP, Packet::DO_STOP]
            };
            self.tell(set, cleared);
        }
        if changed.contains(Local::EXTPROC) {
            self.tell(Packet::SETTINGS, Packet::empty());
        }
        self.drain_backlog();
    }

    /// Discards the input in the buffer, which was processed but not read. Typed bytes that still
    /// wait for room are not discarded: some of them move into the buffer.
    pub fn flush_input(&mut self) {
        self.buffer.clear();
        self.erasing = false;
        self.next_is_literal = false;
        self.tell(Packet::FLUSH_READ, Packet::empty());
        self.drain_backlog();
    }

    /// Discards output that was written but not shown. The bytes that count as taken by the far
    /// side stay.
    pub fn flush_output(&mut self) {
        self.output.truncate(TAKEN);
        self.tell(Packet::FLUSH_WRITE, Packet::empty());
    }

    /// Discards the input in the buffer, the echo that is not shown yet, and output as
    /// [`Self::flush_output`] does, because a signal key was typed. Typed bytes that still wait for
    /// room stay.
    pub(super) fn flush_for_signal(&mut self) {
        self.held = VecDeque::new();
        self.flush_output();
        self.buffer.clear();
        self.erasing = false;
        self.next_is_literal = false;
        self.tell(Packet::FLUSH_READ, Packet::empty());
    }

    /// Stops or continues output, as `flow` says (`tcflow`).
    pub fn set_flow(&mut self, flow: Flow) {
        let off = flow == Flow::Off;
        if self.stopped_by_call == off {
            return;
        }
        let was_held = self.is_held();
        self.stopped_by_call = off;
        if off {
            self.stopped = true;
            if !was_held {
                self.tell(Packet::STOP, Packet::START);
            }
        } else {
            self.start();
        }
    }

    /// Stops output because STOP was typed.
    pub(super) fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            self.tell(Packet::STOP, Packet::START);
        }
    }

    /// Continues output. Does nothing if a call has stopped it (`tcflow`).
    pub(super) fn start(&mut self) {
        if self.stopped && !self.stopped_by_call {
            self.stopped = false;
            self.tell(Packet::START, Packet::STOP);
            self.release_held();
        }
    }

    /// Returns whether output is stopped and any character continues it.
    pub(super) fn starts_with_any(&self) -> bool {
        let wanted = Input::IXON | Input::IXANY;
        self.stopped && !self.stopped_by_call && self.termios.input.contains(wanted)
    }

    // Packet mode.

    fn tell(&mut self, set: Packet, cleared: Packet) {
        if let Some(packet) = &mut self.packet {
            *packet = packet.difference(cleared).union(set);
        }
    }

    /// Begins packet mode (`TIOCPKT`) if `on`, else ends it and forgets its events.
    pub fn set_packet_mode(&mut self, on: bool) {
        if on {
            self.packet.get_or_insert(Packet::empty());
        } else {
            self.packet = None;
        }
    }

    /// Returns whether packet mode (`TIOCPKT`) is on.
    pub fn is_in_packet_mode(&self) -> bool {
        self.packet.is_some()
    }

    /// Returns whether the master of a pseudo-terminal has events of packet mode to read.
    pub fn has_packet(&self) -> bool {
        self.packet.is_some_and(|packet| !packet.is_empty())
    }

    /// Returns the events of packet mode that the master of a pseudo-terminal has not read, and
    /// clears them. Returns `None` if there are no events or packet mode is off.
    pub fn take_packet(&mut self) -> Option<Packet> {
        let packet = self.packet.as_mut().filter(|packet| !packet.is_empty())?;
        Some(core::mem::replace(packet, Packet::empty()))
    }

    /// Hangs the terminal up. Discards waiting input and echo, continues stopped output, and
    /// replaces the settings with `termios`, even locked ones. Output that waits for the far side
    /// stays.
    pub fn hang_up(&mut self, termios: Termios) {
        self.flush_backlog();
        self.buffer.clear();
        self.held = VecDeque::new();
        (self.stopped, self.stopped_by_call) = (false, false);
        (self.erasing, self.next_is_literal) = (false, false);
        self.buffer.set_canonical(true);
        self.termios = termios;
    }

    /// Checks that no queue of bytes exceeds its limit, for tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.buffer.len() <= CAPACITY);
        assert!(self.backlog.len() <= BACKLOG);
        assert!(self.output.len() <= OUTPUT_ROOM);
        assert!(self.held.len() <= HELD);
    }
}
