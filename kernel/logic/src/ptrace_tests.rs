use crate::errno::Errno;
use crate::ptrace::{Event, Options, call_code, control, sets_flags, status};
use crate::signal_set::Signal;

#[test]
fn options_are_refused_as_on_linux() {
    assert_eq!(Options::asked(0x3000ff).map(|o| o.bits()), Ok(0x3000ff));
    for bad in [1 << 8, 1 << 22, 1 << 32, u64::MAX] {
        assert_eq!(Options::asked(bad), Err(Errno::EINVAL));
    }
    assert_eq!(Options::seized(0), Ok(Options::empty()));
    assert_eq!(Options::seized(1 << 8), Err(Errno::EIO));
    assert_eq!(Options::seized(1 << 40), Err(Errno::EIO));
    assert_eq!(Options::seized(1 << 21), Ok(Options::SUSPEND_SECCOMP));
}

#[test]
fn clones_are_told_apart() {
    assert_eq!(Event::of_clone(true, 17), Event::Vfork);
    assert_eq!(Event::of_clone(false, 17), Event::Fork);
    assert_eq!(Event::of_clone(false, 0), Event::Clone);
    assert_eq!(Event::of_clone(true, 0).option(), Options::VFORK);
}

#[test]
fn statuses_have_linux_bits() {
    assert_eq!(status(Event::Exec.code(Signal::SIGTRAP)), 0x4057f);
    assert_eq!(status(Event::Stop.code(Signal::SIGTSTP)), 0x80147f);
    assert_eq!(status(call_code(Options::SYSGOOD)), 0x857f);
    assert_eq!(status(call_code(Options::EXEC)), 0x57f);
}

#[test]
fn breakpoints_are_checked() {
    let at = [0x1000, 0x1004, 0x1001, 0];
    // Stores to four bytes, at the first address.
    assert_eq!(control(&at, 0xd_0001), Ok(0xd_0001));
    // Unused breakpoints may have any condition and length.
    assert_eq!(control(&at, 0xd_d20d_0001 & !0x300), Ok(0xd20d_0001));
    // Invalid: four bytes at an odd address, a port, two bytes of code, eight at a multiple of
    // four.
    for bad in [0xd00_0010, 0x2_0001, 0x4_0001, 0x90_0004] {
        assert_eq!(control(&at, bad), Err(Errno::EINVAL), "{bad:x}");
    }
    assert_eq!(control(&at, 0x1), Ok(0x1));
}

#[test]
fn popf_is_found_behind_prefixes() {
    assert!(sets_flags(&[0x9d]));
    assert!(sets_flags(&[0x66, 0x48, 0xcf]));
    assert!(!sets_flags(&[0x90, 0x9d]));
    assert!(!sets_flags(&[0x66; 15]));
    assert!(!sets_flags(&[]));
}
