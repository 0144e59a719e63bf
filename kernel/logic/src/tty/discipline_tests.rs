use super::*;
use std::string::String;
use std::vec;
use std::vec::Vec;

fn usual() -> Discipline {
    Discipline::new(Termios::usual()).expect("memory")
}

fn with(change: impl FnOnce(&mut Termios)) -> Discipline {
    let mut termios = Termios::usual();
    change(&mut termios);
    Discipline::new(termios).expect("memory")
}

fn typed(d: &mut Discipline, text: &[u8]) {
    assert_eq!(d.receive(text), text.len());
    d.check();
    catch_up(d);
}

fn catch_up(d: &mut Discipline) {
    while d.is_behind() {
        d.catch_up();
        d.check();
    }
}

/// Returns the bytes that the screen of `d` got since the last call.
fn screen(d: &mut Discipline) -> String {
    let mut bytes = vec![0; OUTPUT_ROOM];
    let count = d.peek_output(&mut bytes);
    d.consume_output(count);
    bytes[..count]
        .iter()
        .flat_map(|&c| core::ascii::escape_default(c))
        .map(char::from)
        .collect()
}

fn read(d: &mut Discipline, most: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; most];
    let count = d.read(&mut bytes)?;
    catch_up(d);
    bytes.truncate(count);
    Some(bytes)
}

fn line(d: &mut Discipline) -> Option<Vec<u8>> {
    read(d, 8192)
}

#[test]
fn lines_are_read_one_by_one() {
    let mut d = usual();
    typed(&mut d, b"one\rtwo\nthr");
    assert_eq!(d.readable_bytes(), 8);
    assert!(d.is_readable(true));
    assert_eq!(read(&mut d, 2).as_deref(), Some(&b"on"[..]));
    assert_eq!(line(&mut d).as_deref(), Some(&b"e\n"[..]));
    assert_eq!(line(&mut d).as_deref(), Some(&b"two\n"[..]));
    assert_eq!(line(&mut d), None);
    typed(&mut d, b"ee\x04");
    assert_eq!(line(&mut d).as_deref(), Some(&b"three"[..]));
    assert_eq!(screen(&mut d), "one\\r\\ntwo\\r\\nthree");
}

#[test]
fn end_of_file_is_an_empty_line() {
    let mut d = usual();
    typed(&mut d, b"\x04");
    assert_eq!(d.readable_bytes(), 0);
    assert_eq!(line(&mut d).as_deref(), Some(&b""[..]));
    assert_eq!(line(&mut d), None);
}

#[test]
fn an_end_of_file_goes_with_the_bytes_before_it() {
    let mut d = usual();
    typed(&mut d, b"abc\x04d\n");
    assert_eq!(read(&mut d, 3).as_deref(), Some(&b"abc"[..]));
    assert_eq!(line(&mut d).as_deref(), Some(&b"d\n"[..]));
}

#[test]
fn characters_words_and_lines_are_erased() {
    for (text, want, shown) in [
        (&b"abc\x7f\n"[..], &b"ab\n"[..], "abc\\x08 \\x08\\r\\n"),
        (b"\x7f\x7fa\n", b"a\n", "a\\r\\n"),
        (b"a\x01\x7f\n", b"a\n", "a^A\\x08 \\x08\\x08 \\x08\\r\\n"),
        (
            b"ab cd \x17e\n",
            b"ab e\n",
            "ab cd \\x08 \\x08\\x08 \\x08\\x08 \\x08e\\r\\n",
        ),
        (b"ab\x15c\n", b"c\n", "ab\\x08 \\x08\\x08 \\x08c\\r\\n"),
        (
            b"a\tb\x7f\x7fc\n",
            b"ac\n",
            "a\\tb\\x08 \\x08\\x08\\x08\\x08\\x08\\x08\\x08\\x08c\\r\\n",
        ),
        (b"a\x16\x7f\n", b"a\x7f\n", "a^\\x08^?\\r\\n"),
        (b"ab\x12c\n", b"abc\n", "ab^R\\r\\nabc\\r\\n"),
    ] {
        let mut d = usual();
        typed(&mut d, text);
        assert_eq!(line(&mut d).as_deref(), Some(want), "{text:?}");
        assert_eq!(screen(&mut d), shown, "{text:?}");
    }
}

#[test]
fn characters_of_utf8_are_erased_whole() {
    let mut d = with(|t| t.input |= Input::IUTF8);
    typed(&mut d, "aäö\x7fb\n".as_bytes());
    assert_eq!(line(&mut d).as_deref(), Some("aäb\n".as_bytes()));
    let mut d = usual();
    typed(&mut d, "ä\x7f\n".as_bytes());
    assert_eq!(line(&mut d).as_deref(), Some(&b"\xc3\n"[..]));
    // Continuation bytes without a first byte stay.
    let mut d = with(|t| t.input |= Input::IUTF8);
    typed(&mut d, b"\x80\x80\x7f\n");
    assert_eq!(line(&mut d).as_deref(), Some(&b"\x80\x80\n"[..]));
}

#[test]
fn erasing_looks_as_it_is_set() {
    let off = Local::ECHOE | Local::ECHOK | Local::ECHOKE;
    let mut d = with(|t| t.local -= off);
    typed(&mut d, b"abc\x7f\x15d\n");
    assert_eq!(screen(&mut d), "abc^?^Ud\\r\\n");
    let mut d = with(|t| t.local.remove(Local::ECHOKE));
    typed(&mut d, b"abc\x15d\n");
    assert_eq!(screen(&mut d), "abc^U\\r\\nd\\r\\n");
    let mut d = with(|t| t.local |= Local::ECHOPRT);
    typed(&mut d, b"abc\x7f\x7fd\n");
    assert_eq!(screen(&mut d), "abc\\\\cb/d\\r\\n");
    let mut d = with(|t| t.local.remove(Local::ECHO));
    typed(&mut d, b"abc\x7f\n");
    assert_eq!(screen(&mut d), "");
    let mut d = with(|t| {
        t.local.remove(Local::ECHO);
        t.local |= Local::ECHONL;
    });
    typed(&mut d, b"abc\n");
    assert_eq!(screen(&mut d), "\\r\\n");
    let mut d = with(|t| t.local.remove(Local::ECHOCTL));
    typed(&mut d, b"\x01\n");
    assert_eq!(screen(&mut d), "\\x01\\r\\n");
}

#[test]
fn further_ends_of_lines() {
    let mut d = with(|t| {
        t.set_character(Characters::Eol, b';');
        t.set_character(Characters::Eol2, b',');
    });
    typed(&mut d, b"a;b,c\n");
    for want in [&b"a;"[..], b"b,", b"c\n"] {
        assert_eq!(line(&mut d).as_deref(), Some(want));
    }
    assert_eq!(screen(&mut d), "a;b,c\\r\\n");
}

#[test]
fn signal_keys_flush() {
    let mut d = usual();
    typed(&mut d, b"line\nabc\x03");
    assert_eq!(screen(&mut d), "^C");
    let keys = d.take_keys();
    assert!(keys.interrupt && !keys.quit && !keys.suspend);
    assert!(!d.take_keys().any());
    assert_eq!(line(&mut d), None);
    typed(&mut d, b"x\x1c\x1a\n");
    let keys = d.take_keys();
    assert!(!keys.interrupt && keys.quit && keys.suspend);
    assert_eq!(line(&mut d).as_deref(), Some(&b"\n"[..]));
    let mut d = with(|t| t.local |= Local::NOFLSH);
    typed(&mut d, b"abc\x03\n");
    assert!(d.take_keys().interrupt);
    assert_eq!(line(&mut d).as_deref(), Some(&b"abc\n"[..]));
    let mut d = with(|t| t.local.remove(Local::ISIG));
    typed(&mut d, b"\x03\n");
    assert!(!d.take_keys().any());
    assert_eq!(line(&mut d).as_deref(), Some(&b"\x03\n"[..]));
}

#[test]
fn input_is_translated() {
    let cases: [(Input, &[u8], &[u8]); 6] = [
        (Input::ICRNL, b"a\rb\n", b"a\n"),
        (Input::IGNCR, b"a\rb\n", b"ab\n"),
        (Input::INLCR, b"a\nb\x04", b"a\rb"),
        (Input::ISTRIP, b"\xe1\n", b"a\n"),
        (Input::IUCLC, b"AbC\n", b"abc\n"),
        (Input::PARMRK, b"a\xff\n", b"a\xff\xff\n"),
    ];
    for (flags, text, want) in cases {
        let mut d = with(|t| t.input = flags);
        typed(&mut d, text);
        assert_eq!(line(&mut d).as_deref(), Some(want), "{flags:?}");
    }
}

#[test]
fn output_is_held_back_and_goes_on() {
    let mut d = usual();
    typed(&mut d, b"\x13");
    assert!(!d.is_writable());
    assert_eq!(d.write(b"abc"), 0);
    typed(&mut d, b"xy");
    assert_eq!(screen(&mut d), "");
    typed(&mut d, b"\x11");
    assert_eq!(screen(&mut d), "xy");
    assert_eq!(d.write(b"abc\n"), 4);
    assert_eq!(screen(&mut d), "abc\\r\\n");
    let mut d = with(|t| t.input |= Input::IXANY);
    typed(&mut d, b"\x13");
    typed(&mut d, b"z");
    assert!(d.is_writable());
    // START does not continue output that a call has stopped.
    d.set_flow(Flow::Off);
    typed(&mut d, b"\x11q");
    assert!(!d.is_writable());
    d.set_flow(Flow::On);
    assert!(d.is_writable());
    assert_eq!(screen(&mut d), "zq");
    // Without IXON, output is not stopped.
    typed(&mut d, b"\x13");
    let mut raw = *d.termios();
    raw.input.remove(Input::IXON);
    d.set_termios(raw, When::Now);
    assert!(d.is_writable());
}

#[test]
fn held_settings_stay() {
    let mut d = with(|_| ());
    let mut locked = [0; OLD_BYTES];
    // `ICRNL` of `c_iflag`, `ECHO` of `c_lflag`, and QUIT.
    locked[1] = 1;
    locked[12] = 0o10;
    locked[17 + Characters::Quit as usize] = 1;
    d.set_locked(locked);
    let (before, mut new) = (*d.termios(), *d.termios());
    new.input.remove(Input::ICRNL | Input::IXON);
    new.local.remove(Local::ECHO | Local::ICANON);
    new.set_character(Characters::Quit, 1);
    new.set_character(Characters::Intr, 2);
    d.set_termios(new, When::Now);
    let after = *d.termios();
    assert_eq!(after.input, before.input - Input::IXON);
    assert_eq!(after.local, before.local - Local::ICANON);
    let characters = [Characters::Quit, Characters::Intr].map(|which| after.character(which));
    assert_eq!(characters, [before.character(Characters::Quit), 2]);
    d.set_locked([0; OLD_BYTES]);
    d.set_termios(new, When::Now);
    assert_eq!(*d.termios(), new);
}

#[test]
fn the_longest_line_can_be_ended() {
    let mut d = with(|t| t.local.remove(Local::ECHO));
    typed(&mut d, &[b'a'; 5000]);
    typed(&mut d, b"\n");
    let got = line(&mut d).expect("a line");
    assert_eq!(got.len(), 4096);
    assert_eq!(got.last(), Some(&b'\n'));
    assert_eq!(line(&mut d), None);
}

#[test]
fn input_beyond_the_buffers_waits() {
    let mut d = with(|t| t.local -= Local::ECHO | Local::ICANON);
    let mut taken = 0;
    loop {
        let count = d.receive(&[b'a'; 100_000]);
        taken += count;
        if count == 0 {
            break;
        }
        catch_up(&mut d);
    }
    assert_eq!(taken, 4095 + 8192);
    assert!(!d.has_input_room());
    assert_eq!(d.readable_bytes(), 4095);
    assert_eq!(line(&mut d).map(|got| got.len()), Some(4095));
    assert!(d.has_input_room());
    assert_eq!(d.readable_bytes(), 4095);
    d.check();
}

#[test]
fn lines_and_bytes_change_places() {
    let mut d = usual();
    typed(&mut d, b"abc");
    let mut raw = *d.termios();
    raw.local.remove(Local::ICANON);
    d.set_termios(raw, When::Now);
    assert_eq!(read(&mut d, 2).as_deref(), Some(&b"ab"[..]));
    typed(&mut d, b"d\n");
    d.set_termios(Termios::usual(), When::Now);
    assert_eq!(line(&mut d).as_deref(), Some(&b"cd\n"[..]));
    typed(&mut d, b"forgotten\n");
    d.set_termios(Termios::usual(), When::Flush);
    assert_eq!(line(&mut d), None);
}

#[test]
fn readers_of_bytes_wait_for_as_many_as_they_like() {
    let mut d = with(|t| {
        t.local.remove(Local::ICANON);
        t.set_character(Characters::Min, 3);
    });
    assert_eq!(d.patience(), Some([3, 0]));
    typed(&mut d, b"ab");
    assert!(!d.is_readable(true) && d.is_readable(false));
    typed(&mut d, b"c");
    assert!(d.is_readable(true));
    assert_eq!(usual().patience(), None);
}

#[test]
fn packets_say_what_happened() {
    let mut d = usual();
    typed(&mut d, b"\x13");
    assert_eq!(d.take_packet(), None);
    d.set_packet_mode(true);
    typed(&mut d, b"\x11");
    assert_eq!(d.take_packet(), Some(Packet::START));
    typed(&mut d, b"\x13\x11");
    assert_eq!(d.take_packet(), Some(Packet::START));
    typed(&mut d, b"\x03");
    assert_eq!(
        d.take_packet(),
        Some(Packet::FLUSH_READ | Packet::FLUSH_WRITE)
    );
    let mut other = Termios::usual();
    other.set_character(Characters::Stop, 1);
    d.set_termios(other, When::Now);
    assert_eq!(d.take_packet(), Some(Packet::NO_STOP));
    d.set_termios(Termios::usual(), When::Now);
    assert_eq!(d.take_packet(), Some(Packet::DO_STOP));
    assert!(!d.has_packet());
}

#[test]
fn a_far_side_that_does_not_watch_stops_the_writer() {
    let mut d = usual();
    let mut written = 0;
    loop {
        match d.write(&[b'x'; 1000]) {
            0 => break,
            count => written += count,
        }
        d.check();
    }
    assert!(written > OUTPUT_ROOM - 16 && !d.is_writable());
    // Echo that does not fit waits behind the output, up to a bound.
    for _ in 0..100 {
        typed(&mut d, &[b'e'; 100]);
        d.flush_input();
    }
    d.consume_output(OUTPUT_ROOM);
    d.check();
    assert!(d.output_bytes() > 0);
}

#[test]
fn a_long_text_is_shown_as_its_bytes_are_one_by_one() {
    let (mut together, mut apart) = (usual(), usual());
    let text = "a line\twith a tab\n".repeat(700);
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let taken = together.write(rest);
        together.check();
        assert!(taken > 0);
        for c in &rest[..taken] {
            assert_eq!(apart.write(&[*c]), 1);
        }
        rest = &rest[taken..];
        // The output that stays makes the ring wrap around.
        let [one, other] = [&mut together, &mut apart].map(|d| {
            let mut seen = vec![0; OUTPUT_ROOM / 3];
            let count = d.peek_output(&mut seen);
            d.consume_output(count);
            seen.truncate(count);
            seen
        });
        assert!(!one.is_empty());
        assert_eq!(one, other);
    }
    assert_eq!(screen(&mut together), screen(&mut apart));
}

#[test]
fn what_waits_is_looked_at_in_bounded_steps() {
    let mut d = with(|termios| termios.local = Local::empty());
    let mut left = 4095 + 4096;
    while left > 0 {
        left -= d.receive(&vec![b'x'; left.min(200)]);
        while d.is_behind() {
            d.catch_up();
        }
    }
    assert!(!d.is_behind());
    let before = d.readable_bytes();
    let mut bytes = vec![0; 4096];
    let count = d.read(&mut bytes).expect("bytes");
    // The read processed one step of the waiting bytes, no more.
    assert_eq!(d.readable_bytes(), before - count + 256);
    let mut steps = 0;
    while d.is_behind() {
        d.catch_up();
        steps += 1;
    }
    assert_eq!((steps, d.readable_bytes()), (15, 4095));
}

#[test]
fn a_line_is_shown_again_only_while_there_is_room() {
    let mut d = usual();
    for _ in 0..15 {
        typed(&mut d, &[b'x'; 250]);
    }
    // Each byte would show 3,750 bytes.
    typed(&mut d, &[0o22; 250]);
    assert!(d.is_screen_full());
    d.check();
}
