use super::access::{SET_GID, SET_UID, STICKY};
use super::{Capabilities, Credentials, Owned, Wanted};
use crate::errno::Errno;
use std::vec;

fn user(uid: u32, gid: u32, more: &[u32]) -> Credentials {
    Credentials::of_user(uid, gid, more.to_vec())
}

fn file(permissions: u32, uid: u32, gid: u32) -> Owned {
    Owned {
        directory: false,
        regular: true,
        permissions,
        uid,
        gid,
    }
}

fn directory(permissions: u32, uid: u32, gid: u32) -> Owned {
    Owned {
        directory: true,
        regular: false,
        ..file(permissions, uid, gid)
    }
}

#[test]
fn bits_are_those_of_the_first_class_that_fits() {
    // Permission bits, owner, group, wanted access, whether it is granted to user 7 of groups 70
    // and 71.
    let table = [
        (0o700, 7, 0, 7, true),
        (0o077, 7, 70, 4, false),
        (0o070, 0, 70, 7, true),
        (0o707, 0, 70, 4, false),
        (0o070, 0, 71, 6, true),
        (0o007, 0, 0, 7, true),
        (0o770, 0, 0, 1, false),
        (0o004, 0, 0, 6, false),
        (0o000, 7, 70, 0, true),
    ];
    let who = user(7, 70, &[71, 5]);
    for (bits, uid, gid, wanted, granted) in table {
        let found = who.may(Wanted(wanted), &file(bits, uid, gid));
        let expected = if granted { Ok(()) } else { Err(Errno::EACCES) };
        assert_eq!(found, expected, "{bits:o} of {uid}:{gid}, {wanted}");
    }
}

#[test]
fn root_executes_only_what_some_user_may() {
    let root = Credentials::root();
    assert_eq!(root.may(Wanted(6), &file(0, 7, 7)), Ok(()));
    assert_eq!(
        root.may(Wanted::EXECUTE, &file(0o666, 7, 7)),
        Err(Errno::EACCES)
    );
    assert_eq!(root.may(Wanted::EXECUTE, &file(0o001, 7, 7)), Ok(()));
    assert_eq!(root.may(Wanted(7), &directory(0, 7, 7)), Ok(()));
    let mut reader = user(7, 7, &[]);
    reader.effective = Capabilities::DAC_READ_SEARCH;
    assert_eq!(reader.may(Wanted::READ, &file(0, 0, 0)), Ok(()));
    assert_eq!(
        reader.may(Wanted::WRITE, &file(0, 0, 0)),
        Err(Errno::EACCES)
    );
    assert_eq!(reader.may(Wanted(5), &directory(0, 0, 0)), Ok(()));
    assert_eq!(
        reader.may(Wanted::CHANGE, &directory(0, 0, 0)),
        Err(Errno::EACCES)
    );
    assert!(reader.passes_directories() && !user(1, 1, &[]).passes_directories());
}

#[test]
fn sticky_directories_keep_names() {
    let who = user(7, 7, &[]);
    let table = [
        (directory(0o777, 0, 0), 8, Ok(())),
        (directory(0o1777, 0, 0), 8, Err(Errno::EPERM)),
        (directory(0o1777, 0, 0), 7, Ok(())),
        (directory(0o1777, 7, 0), 8, Ok(())),
        (directory(0o755, 0, 0), 7, Err(Errno::EACCES)),
    ];
    for (above, owner, expected) in table {
        let found = who.may_remove(&above, &file(0o644, owner, 0));
        assert_eq!(found, expected, "{above:?} {owner}");
    }
}

#[test]
fn links_are_protected() {
    let who = user(7, 7, &[]);
    for (what, expected) in [
        (file(0o666, 0, 0), Ok(())),
        (file(0o644, 0, 0), Err(Errno::EPERM)),
        (file(0o600, 7, 0), Ok(())),
        (file(0o4666, 0, 0), Err(Errno::EPERM)),
        (file(0o2676, 0, 0), Err(Errno::EPERM)),
        (file(0o2666, 0, 0), Ok(())),
    ] {
        assert_eq!(who.may_link(&what), expected, "{what:?}");
    }
    let shared = directory(STICKY | 0o777, 0, 0);
    assert_eq!(who.may_follow(&shared, 8), Err(Errno::EACCES));
    assert_eq!(who.may_follow(&shared, 7), Ok(()));
    assert_eq!(who.may_follow(&shared, 0), Ok(()));
    assert_eq!(who.may_follow(&directory(0o777, 0, 0), 8), Ok(()));
    assert_eq!(
        Credentials::root().may_follow(&shared, 8),
        Err(Errno::EACCES)
    );
}

#[test]
fn set_ids_go_with_what_changes() {
    let who = user(7, 70, &[71]);
    assert_eq!(who.new_permissions(&file(0, 7, 71), 0o6755), Ok(0o6755));
    assert_eq!(who.new_permissions(&file(0, 7, 9), 0o6755), Ok(0o4755));
    assert_eq!(
        who.new_permissions(&file(0, 8, 70), 0o755),
        Err(Errno::EPERM)
    );
    let own = file(0o6755, 7, 70);
    assert_eq!(who.new_owner(&own, None, Some(71)), Ok(0o755));
    assert_eq!(who.new_owner(&own, Some(7), None), Ok(0o755));
    assert_eq!(who.new_owner(&own, Some(8), None), Err(Errno::EPERM));
    assert_eq!(who.new_owner(&own, None, Some(9)), Err(Errno::EPERM));
    assert_eq!(
        who.new_owner(&file(0, 8, 70), None, Some(70)),
        Err(Errno::EPERM)
    );
    // Only the owner may remove set-id bits.
    assert_eq!(
        who.new_owner(&file(0o6755, 8, 70), None, None),
        Err(Errno::EPERM)
    );
    assert_eq!(who.new_owner(&file(0o755, 8, 70), None, None), Ok(0o755));
    assert_eq!(
        who.new_owner(&directory(0o2755, 7, 70), None, None),
        Ok(0o2755)
    );
    assert_eq!(
        Credentials::root().new_owner(&file(0o6644, 7, 70), Some(8), Some(9)),
        Ok(SET_GID | 0o644)
    );
    assert_eq!(who.after_write(&file(SET_UID | 0o700, 7, 70)), Some(0o700));
    assert_eq!(who.after_write(&file(0o700, 7, 70)), None);
    assert_eq!(Credentials::root().after_write(&file(0o6777, 7, 70)), None);
}

#[test]
fn new_files_may_take_the_group_of_their_directory() {
    let who = user(7, 70, &[]);
    let above = directory(0o2777, 0, 90);
    let made = who.new_file(&above, 0o755, true);
    assert_eq!((made.permissions, made.uid, made.gid), (0o2755, 7, 90));
    let made = who.new_file(&above, 0o2775, false);
    assert_eq!((made.permissions, made.gid), (0o775, 90));
    let made = who.new_file(&directory(0o777, 0, 90), 0o2775, false);
    assert_eq!((made.permissions, made.gid), (0o2775, 70));
    assert_eq!(vec![made.uid], [7]);
}
