//! One terminal: its settings, what was typed, what is to be shown, and what is held back.

use super::buffer::{Buffer, CAPACITY, NoMemory};
use super::packet::Packet;
use super::screen::{LONGEST, Screen};
use super::termios::{Characters, Control, Input, Local, Locked, OLD_BYTES, Output, Termios, When};
use alloc::collections::VecDeque;

/// Shown bytes that wait for the far side at most.
pub const OUTPUT_ROOM: usize = 12 << 10;
/// What of them stays when output is flushed: the far side counts as having it already, as on Linux.
const TAKEN: usize = CAPACITY - 1;
/// Typed bytes at most for which there is no room in the buffer yet.
const BACKLOG: usize = 8 << 10;
/// Typed bytes at most that one call takes: one may have a whole line shown again.
const STEP: usize = 256;
/// Shown bytes that are put together before they join the others.
const STAGED: usize = 256;
/// Bytes of echo at most that are held back; more are not shown.
const HELD: usize = 4096;

/// The characters that send signals, and which of them were typed.
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
    /// Whether there are any.
    pub fn any(self) -> bool {
        self.interrupt || self.quit || self.suspend
    }
}

/// What `tcflow` asks for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Output is held back.
    Off,
    /// Output goes on.
    On,
}

/// A terminal. See the module.
#[derive(Debug)]
pub struct Discipline {
    pub(super) termios: Termios,
    /// Which of them are held as they are (`TIOCSLCKTRMIOS`).
    locked: Locked,
    pub(super) buffer: Buffer,
    pub(super) screen: Screen,
    /// Typed, and not in the buffer yet.
    backlog: VecDeque<u8>,
    /// Shown, and not taken by the far side yet.
    output: VecDeque<u8>,
    /// Echo that follows the output.
    held: VecDeque<u8>,
    /// STOP was typed.
    stopped: bool,
    /// `tcflow` stopped it.
    stopped_by_call: bool,
    /// Characters are being erased, between `\` and `/`.
    pub(super) erasing: bool,
    /// LNEXT was typed.
    pub(super) next_is_literal: bool,
    /// What the far side has not been told; `None`: it does not want to know.
    packet: Option<Packet>,
    /// Keys that nobody was told of yet.
    pub(super) keys: Keys,
    /// Bytes were looked at since somebody asked.
    typed: bool,
}

impl Discipline {
    /// A new terminal.
    ///
    /// # Errors
    /// No memory.
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

    /// Its settings.
    pub fn termios(&self) -> &Termios {
        &self.termios
    }

    /// Whether input is read by lines.
    fn is_canonical(&self) -> bool {
        self.termios.local.contains(Local::ICANON)
    }

    /// The same, and they are edited here.
    fn reads_lines(&self) -> bool {
        self.is_canonical() && !self.termios.local.contains(Local::EXTPROC)
    }

    // Input.

    /// Somebody types; gives how many bytes were taken. Some may wait for [`Self::catch_up`].
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

    /// Whether [`Self::receive`] would take a byte.
    pub fn has_input_room(&self) -> bool {
        self.backlog.len() < BACKLOG
    }

    /// Whether the buffer takes a byte. Where a line is typed that nobody can read yet it always does: what is
    /// too much goes in the last place, so that the line can be ended.
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

    /// Whether bytes were typed that could be looked at, and were not yet.
    pub fn is_behind(&self) -> bool {
        !self.backlog.is_empty() && self.has_room()
    }

    /// Looks at some of them.
    pub fn catch_up(&mut self) {
        self.drain_backlog();
    }

    /// Looks at typed bytes for which there was no room; gives how many.
    fn drain_backlog(&mut self) -> usize {
        let mut done = 0;
        while done < STEP && !self.backlog.is_empty() && self.make_room() {
            if let Some(c) = self.backlog.pop_front() {
                self.take(c);
            }
            done += 1;
        }
        if self.backlog.is_empty() {
            // What a burst took goes back.
            self.backlog = VecDeque::new();
        }
        self.release_held();
        done
    }

    /// The keys that were typed since this was asked.
    pub fn take_keys(&mut self) -> Keys {
        core::mem::take(&mut self.keys)
    }

    /// How often the program is to be told that it may read, since this was asked: once a line, or once
    /// for all bytes that were typed.
    pub fn take_arrivals(&mut self) -> u32 {
        let lines = self.buffer.take_ended();
        let bytes = core::mem::take(&mut self.typed);
        match self.reads_lines() {
            true => lines,
            false => u32::from(bytes && self.buffer.len() > 0),
        }
    }

    // The program reads.

    /// Reads a line, or what is there, into room for a byte at least; `None`: nothing is.
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

    /// Whether a read would give something, or, for `poll`, as much as a reader waits for.
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

    /// How many bytes a reader without lines waits for, and how long (in tenths of a second); `None`:
    /// lines are read.
    pub fn patience(&self) -> Option<[u8; 2]> {
        (!self.reads_lines()).then(|| self.least_and_time())
    }

    fn least_and_time(&self) -> [u8; 2] {
        [Characters::Min, Characters::Time].map(|which| self.termios.character(which))
    }

    /// Bytes that could be read (`FIONREAD`).
    pub fn readable_bytes(&self) -> usize {
        if self.reads_lines() {
            self.buffer.count_of_lines()
        } else {
            self.buffer.len()
        }
    }

    // The program writes.

    /// The program writes; gives how many bytes were taken: none while output is held back.
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
        // Each turn takes a byte at least.
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

    /// Whether [`Self::write`] would take a byte.
    pub fn is_writable(&self) -> bool {
        !self.is_held() && OUTPUT_ROOM - self.output.len() >= LONGEST
    }

    /// Whether output is held back.
    pub fn is_held(&self) -> bool {
        self.stopped || self.stopped_by_call
    }

    /// A byte of echo goes to the screen, processed as output is.
    pub(super) fn show(&mut self, c: u8) {
        if self.termios.output.contains(Output::OPOST) {
            let mut shown = [0; LONGEST];
            let len = self.screen.process(c, &self.termios, &mut shown);
            self.show_bytes(&shown[..len]);
        } else {
            self.show_bytes(&[c]);
        }
    }

    /// Bytes of echo go to the screen as they are, once all is taken that was typed together: a signal key
    /// takes back what is not shown yet. Nobody waits for that: where there is no room for much, they are
    /// not shown.
    pub(super) fn show_bytes(&mut self, bytes: &[u8]) {
        if self.held.len() + bytes.len() > HELD {
            self.release_held();
        }
        if self.held.len() + bytes.len() <= HELD && self.held.try_reserve(bytes.len()).is_ok() {
            self.held.extend(bytes);
        }
    }

    /// Whether echo would not be shown any more.
    pub(super) fn is_screen_full(&self) -> bool {
        self.held.len() + LONGEST > HELD && (self.is_held() || self.output.len() >= OUTPUT_ROOM)
    }

    /// Held echo goes out, as much as there is room for.
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

    /// Bytes for the far side; it takes them with [`Self::consume_output`].
    pub fn peek_output(&self, into: &mut [u8]) -> usize {
        let (first, second) = self.output.as_slices();
        let first = &first[..first.len().min(into.len())];
        let (begin, rest) = into.split_at_mut(first.len());
        let second = &second[..second.len().min(rest.len())];
        begin.copy_from_slice(first);
        rest[..second.len()].copy_from_slice(second);
        first.len() + second.len()
    }

    /// The far side has taken so many.
    pub fn consume_output(&mut self, count: usize) {
        self.output.drain(..count.min(self.output.len()));
        if self.output.is_empty() {
            self.output = VecDeque::new();
        }
        self.release_held();
    }

    /// Bytes that wait for the far side.
    pub fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// Bytes that wait for the far side's reader, as Linux counts them.
    pub fn far_readable_bytes(&self) -> usize {
        self.output.len().min(TAKEN)
    }

    /// The far side forgets what it has not read.
    pub fn flush_far(&mut self) {
        self.output.drain(..self.far_readable_bytes());
        self.release_held();
    }

    /// The far side takes back what it typed and nobody has looked at yet.
    pub fn flush_backlog(&mut self) {
        self.backlog = VecDeque::new();
    }

    /// A byte from outside appears at the far side (`TIOCSTI` there, a flow character).
    pub fn insert_output(&mut self, c: u8) {
        if self.output.len() < OUTPUT_ROOM && self.output.try_reserve(1).is_ok() {
            self.output.push_back(c);
        }
    }

    // Settings, flow and flushing.

    /// Returns which settings are held as they are.
    pub fn locked(&self) -> &Locked {
        &self.locked
    }

    /// Holds the settings that `locked` names as they are from now on, and no others.
    pub fn set_locked(&mut self, locked: Locked) {
        self.locked = locked;
    }

    /// Sets whether the line counts as local (`CLOCAL`), also if it is held.
    pub fn set_local_line(&mut self, local: bool) {
        self.termios.control.set(Control::CLOCAL, local);
    }

    /// Sets the terminal, but for the settings that are held.
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

    /// Forgets what was typed and not read.
    pub fn flush_input(&mut self) {
        self.buffer.clear();
        self.erasing = false;
        self.next_is_literal = false;
        self.tell(Packet::FLUSH_READ, Packet::empty());
        self.drain_backlog();
    }

    /// Forgets what was written and not shown.
    pub fn flush_output(&mut self) {
        self.output.truncate(TAKEN);
        self.tell(Packet::FLUSH_WRITE, Packet::empty());
    }

    /// What a signal key does to what waits.
    pub(super) fn flush_for_signal(&mut self) {
        self.held = VecDeque::new();
        self.flush_output();
        self.buffer.clear();
        self.erasing = false;
        self.next_is_literal = false;
        self.tell(Packet::FLUSH_READ, Packet::empty());
    }

    /// Output is held back or goes on by a call.
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

    /// STOP was typed.
    pub(super) fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            self.tell(Packet::STOP, Packet::START);
        }
    }

    /// START was typed, or anything that lets output go on.
    pub(super) fn start(&mut self) {
        if self.stopped && !self.stopped_by_call {
            self.stopped = false;
            self.tell(Packet::START, Packet::STOP);
            self.release_held();
        }
    }

    /// Whether STOP was typed, and any character may let output go on.
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

    /// Begins or ends packet mode.
    pub fn set_packet_mode(&mut self, on: bool) {
        if on {
            self.packet.get_or_insert(Packet::empty());
        } else {
            self.packet = None;
        }
    }

    /// Whether the far side is told what happens.
    pub fn is_in_packet_mode(&self) -> bool {
        self.packet.is_some()
    }

    /// Whether it has something to be told.
    pub fn has_packet(&self) -> bool {
        self.packet.is_some_and(|packet| !packet.is_empty())
    }

    /// What it is told, once.
    pub fn take_packet(&mut self) -> Option<Packet> {
        let packet = self.packet.as_mut().filter(|packet| !packet.is_empty())?;
        Some(core::mem::replace(packet, Packet::empty()))
    }

    /// The terminal is hung up: nothing waits any more, and it is set as a new one.
    pub fn hang_up(&mut self, termios: Termios) {
        self.flush_backlog();
        self.buffer.clear();
        self.held = VecDeque::new();
        (self.stopped, self.stopped_by_call) = (false, false);
        (self.erasing, self.next_is_literal) = (false, false);
        self.buffer.set_canonical(true);
        self.termios = termios;
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.buffer.len() <= CAPACITY);
        assert!(self.backlog.len() <= BACKLOG);
        assert!(self.output.len() <= OUTPUT_ROOM);
        assert!(self.held.len() <= HELD);
    }
}
