use super::changes::{Change, KEEP};
use super::others::{IpcOwned, LooksAs};
use super::{Capabilities, Credentials, Ids, SecureBits};
use crate::errno::Errno;

fn user(uid: u32) -> Credentials {
    Credentials::of_user(uid, uid, [].to_vec())
}

/// Returns credentials with the real user 7 and the effective and saved user 8.
fn between() -> Credentials {
    let mut who = user(7);
    (who.users.effective, who.users.saved) = (8, 8);
    who
}

#[test]
fn users_change_as_they_may() {
    let ids = |real, effective, saved| {
        Ok(Ids {
            real,
            effective,
            saved,
            file: effective,
        })
    };
    let refused = Err(Errno::EPERM);
    let table = [
        (between(), Change::One(7), ids(7, 7, 8)),
        (between(), Change::One(8), ids(7, 8, 8)),
        (between(), Change::One(9), refused),
        (between(), Change::One(KEEP), Err(Errno::EINVAL)),
        (between(), Change::Two(8, 7), ids(8, 7, 7)),
        (between(), Change::Two(KEEP, 7), ids(7, 7, 8)),
        (between(), Change::Two(KEEP, 8), ids(7, 8, 8)),
        (between(), Change::Two(9, KEEP), refused),
        (between(), Change::Two(KEEP, KEEP), ids(7, 8, 8)),
        (between(), Change::Three([8, 7, KEEP]), ids(8, 7, 8)),
        (between(), Change::Three([KEEP, KEEP, 9]), refused),
        (Credentials::root(), Change::One(5), ids(5, 5, 5)),
        (Credentials::root(), Change::Two(5, KEEP), ids(5, 0, 0)),
        (Credentials::root(), Change::Three([1, 2, 3]), ids(1, 2, 3)),
    ];
    for (who, change, expected) in table {
        let found = who.with_users(change).map(|new| new.users);
        assert_eq!(found, expected, "{:?} {change:?}", who.users);
    }
}

#[test]
fn capabilities_come_and_go_with_root() {
    let root = Credentials::root();
    let set = |who: &Credentials, three| who.with_users(Change::Three(three)).unwrap();
    let gone = set(&root, [7, 7, 7]);
    assert_eq!(
        (gone.permitted, gone.effective),
        (Capabilities::NONE, Capabilities::NONE)
    );
    let asleep = set(&root, [0, 7, 0]);
    assert_eq!(
        (asleep.permitted, asleep.effective),
        (Capabilities::ALL, Capabilities::NONE)
    );
    assert_eq!(set(&asleep, [KEEP, 0, KEEP]).effective, Capabilities::ALL);
    let keeps = Credentials {
        secure_bits: SecureBits::KEEP_CAPS,
        ..root.clone()
    };
    let kept = set(&keeps, [7, 7, 7]);
    assert_eq!(
        (kept.permitted, kept.effective),
        (Capabilities::ALL, Capabilities::NONE)
    );
    let looks = root.with_file_user(7).unwrap();
    assert!(!looks.can(Capabilities::DAC_OVERRIDE) && looks.can(Capabilities::KILL));
    assert_eq!(
        looks.with_file_user(0).unwrap().effective,
        Capabilities::ALL
    );
    assert!(user(7).with_file_user(8).is_none() && user(7).with_file_user(7).is_some());
}

#[test]
fn capabilities_are_set_within_what_is_permitted() {
    let (all, none, kill) = (Capabilities::ALL, Capabilities::NONE, Capabilities::KILL);
    let root = Credentials::root();
    let fewer = root.with_capabilities(kill, kill, none).unwrap();
    assert_eq!((fewer.effective, fewer.permitted), (kill, kill));
    assert_eq!(fewer.with_capabilities(all, all, none), Err(Errno::EPERM));
    assert_eq!(fewer.with_capabilities(kill, none, none), Err(Errno::EPERM));
    assert_eq!(fewer.with_capabilities(none, none, all), Err(Errno::EPERM));
    assert!(fewer.with_capabilities(none, none, kill).is_ok());
}

#[test]
fn a_program_gets_what_its_user_has() {
    let (root, secure) = Credentials::root().for_program(None);
    assert_eq!((root, secure), (Credentials::root(), false));
    let (plain, secure) = user(7).for_program(None);
    assert_eq!((plain, secure), (user(7), false));
    let (both, secure) = between().for_program(None);
    assert!(secure && both.users.file == 8 && both.users.real == 7);
    let mut held = user(7);
    held.permitted = Capabilities::ALL;
    held.effective = Capabilities::ALL;
    assert_eq!(held.for_program(None).0.permitted, Capabilities::NONE);
    held.inheritable = Capabilities::KILL;
    held.ambient = Capabilities::KILL;
    let (kept, secure) = held.for_program(None);
    assert_eq!((kept.effective, secure), (Capabilities::KILL, false));
}

#[test]
fn a_program_gets_nothing_new_where_that_is_asked_for() {
    let held = Credentials {
        no_new_privileges: true,
        ..between()
    };
    let (reset, secure) = held.for_program(None);
    assert_eq!((reset.users, secure), (Ids::all(7), true));
    let mut root = Credentials::root();
    root.no_new_privileges = true;
    assert_eq!(root.for_program(None).0.permitted, Capabilities::ALL);
    root.permitted = Capabilities::KILL;
    root.effective = Capabilities::NONE;
    let (few, _) = root.for_program(None);
    assert_eq!(
        (few.permitted, few.effective),
        (Capabilities::KILL, Capabilities::KILL)
    );
    root.no_new_privileges = false;
    assert_eq!(root.for_program(None).0.permitted, Capabilities::ALL);
}

#[test]
fn a_program_gets_nothing_that_its_tracer_may_not_use() {
    let (strong, weak) = (Credentials::root(), user(7));
    let mut root = Credentials::root();
    root.permitted = Capabilities::KILL;
    root.effective = Capabilities::NONE;
    let permitted = |tracer| root.for_program(tracer).0.permitted;
    assert_eq!(permitted(Some(&strong)), Capabilities::ALL);
    assert_eq!(permitted(Some(&weak)), Capabilities::KILL);
    let (same, secure) = between().for_program(Some(&strong));
    assert_eq!((same.users.effective, secure), (8, true));
    let (reset, secure) = between().for_program(Some(&weak));
    assert_eq!((reset.users, secure), (Ids::all(7), true));
    let mut chooses = between();
    chooses.permitted = Capabilities::SETUID;
    chooses.effective = Capabilities::SETUID;
    assert_eq!(chooses.for_program(Some(&weak)).0.users.effective, 8);
    let plain = user(9);
    assert_eq!(plain.for_program(Some(&weak)), (plain.clone(), false));
}

#[test]
fn others_are_reached_by_their_user() {
    assert!(user(7).may_signal(&user(7)) && !user(7).may_signal(&user(8)));
    assert!(between().may_signal(&user(8)) && Credentials::root().may_signal(&user(8)));
    assert!(!user(7).may_schedule(&user(8)) && !user(7).may_limit(&between()));
    let look = |who: &Credentials, dumpable, how| who.may_look_into(&user(7), dumpable, how);
    assert!(look(&user(7), true, LooksAs::Real) && !look(&user(7), false, LooksAs::Real));
    assert!(!look(&user(8), true, LooksAs::OfFiles));
    assert!(look(&Credentials::root(), false, LooksAs::OfFiles));
    let ipc = IpcOwned {
        owner: [7, 7],
        maker: [8, 8],
        mode: 0o640,
    };
    assert_eq!(user(8).may_use_ipc(&ipc, 6), Ok(()));
    assert_eq!(user(9).may_use_ipc(&ipc, 4), Err(Errno::EACCES));
    assert_eq!(user(9).may_change_ipc(&ipc), Err(Errno::EPERM));
    let mut member = user(9);
    member.supplementary = [7].into();
    assert_eq!(member.may_use_ipc(&ipc, 4), Ok(()));
    let mut by_file_group = user(9);
    by_file_group.groups.file = 7;
    assert_eq!(by_file_group.may_use_ipc(&ipc, 4), Ok(()));
    assert_eq!(member.may_use_ipc(&ipc, 2), Err(Errno::EACCES));
}

fn root_with(bits: SecureBits) -> Credentials {
    let bits = u64::from(bits.bits());
    Credentials::root().with_secure_bits(bits).unwrap()
}

#[test]
fn locks_keep_their_bits_and_themselves() {
    let locked = root_with(SecureBits::NO_ROOT | SecureBits::NO_ROOT_LOCKED);
    assert_eq!(locked.with_secure_bits(0b01), Err(Errno::EPERM));
    assert_eq!(locked.with_secure_bits(0b10), Err(Errno::EPERM));
    assert!(locked.with_secure_bits(0b111).is_ok(), "another bit");
    assert_eq!(locked.with_secure_bits(1 << 8 | 0b11), Err(Errno::EPERM));
    let keeping = root_with(SecureBits::KEEP_CAPS_LOCKED);
    assert_eq!(keeping.with_kept_capabilities(true), Err(Errno::EPERM));
    let user = Credentials::of_user(7, 7, std::vec::Vec::new());
    assert_eq!(user.with_secure_bits(0), Err(Errno::EPERM));
}

#[test]
fn capabilities_follow_them() {
    let fixed = root_with(SecureBits::NO_SETUID_FIXUP);
    let user = fixed.with_users(Change::One(5)).unwrap();
    assert_eq!(user.effective, Capabilities::ALL);
    assert_eq!(user.as_real().effective, Capabilities::ALL);
    let (program, _) = root_with(SecureBits::NO_ROOT).for_program(None);
    assert_eq!(program.permitted, Capabilities::NONE);
    let keeping = root_with(SecureBits::KEEP_CAPS);
    let user = keeping.with_users(Change::One(5)).unwrap();
    assert_eq!(user.permitted, Capabilities::ALL);
    let (program, _) = user.for_program(None);
    assert_eq!(program.secure_bits, SecureBits::empty());
}

#[test]
fn nothing_becomes_ambient_where_that_is_forbidden() {
    let mut own = root_with(SecureBits::empty());
    assert_eq!(own.with_ambient(Capabilities::CHOWN), Err(Errno::EPERM));
    own.inheritable = Capabilities::CHOWN;
    let raised = own.with_ambient(Capabilities::CHOWN).unwrap();
    assert_eq!(raised.ambient, Capabilities::CHOWN);
    own.secure_bits = SecureBits::NO_AMBIENT_RAISE;
    assert_eq!(own.with_ambient(Capabilities::CHOWN), Err(Errno::EPERM));
}
