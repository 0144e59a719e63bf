//! Path syntax: pure logic, no file system behind it.

/// The longest path that a call accepts, with its terminating NUL (`PATH_MAX`).
pub const PATH_MAX: usize = 4096;
/// The longest name of a directory entry (`NAME_MAX`).
pub const NAME_MAX: usize = 255;

/// One step of a path.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Component<'a> {
    /// `.`: the same directory.
    Current,
    /// `..`: the parent directory.
    Parent,
    /// A name to look up. It is never empty, never `.` or `..`, and contains no `/`.
    Name(&'a [u8]),
}

impl<'a> Component<'a> {
    fn of(text: &'a [u8]) -> Self {
        match text {
            b"." => Self::Current,
            b".." => Self::Parent,
            name => Self::Name(name),
        }
    }
}

/// Returns the printable beginning of `path`: all bytes before the first that is not UTF-8. Returns
/// `?` for an empty path.
pub fn printable(path: &[u8]) -> &str {
    path.utf8_chunks().next().map_or("?", |chunk| chunk.valid())
}

/// Returns whether `path` starts at the root.
pub fn is_absolute(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
}

/// Returns whether `path` ends in `/`, so that its last component must be a directory.
pub fn names_directory(path: &[u8]) -> bool {
    path.last() == Some(&b'/')
}

/// Returns the first component of `path` and the rest after it, or `None` if only slashes are left.
pub fn split_first(path: &[u8]) -> Option<(Component<'_>, &[u8])> {
    let start = path.iter().position(|&b| b != b'/')?;
    let path = &path[start..];
    let end = path.iter().position(|&b| b == b'/').unwrap_or(path.len());
    Some((Component::of(&path[..end]), &path[end..]))
}

/// Returns whether `rest`, the end of a path, has no more components.
pub fn is_finished(rest: &[u8]) -> bool {
    rest.iter().all(|&b| b == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    fn all(mut path: &[u8]) -> Vec<Component<'_>> {
        let mut found = Vec::new();
        while let Some((component, rest)) = split_first(path) {
            found.push(component);
            path = rest;
        }
        assert!(is_finished(path));
        found
    }

    #[test]
    fn components_are_split_at_slashes() {
        use Component::{Current, Name, Parent};
        assert_eq!(all(b""), []);
        assert_eq!(all(b"///"), []);
        assert_eq!(
            all(b"/a//b/./../c/"),
            [Name(b"a"), Name(b"b"), Current, Parent, Name(b"c")]
        );
        assert_eq!(all(b"..."), [Name(b"...")]);
        assert!(is_absolute(b"/a") && !is_absolute(b"a") && !is_absolute(b""));
        assert!(names_directory(b"a/") && !names_directory(b"a") && !names_directory(b""));
    }

    proptest::proptest! {
        #[test]
        fn no_component_is_empty_or_holds_a_slash(path: Vec<u8>) {
            for component in all(&path) {
                if let Component::Name(name) = component {
                    assert!(!name.is_empty() && !name.contains(&b'/'));
                }
            }
        }
    }

    #[test]
    fn of_a_name_what_is_text_is_printed() {
        assert_eq!(printable(b"/bin/sh"), "/bin/sh");
        assert_eq!(printable(b"/a\xff/b"), "/a");
        assert_eq!(printable(b"\xff"), "");
        assert_eq!(printable(b""), "?");
    }
}
