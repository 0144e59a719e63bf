//! Configurations of a guest that are compared: `--variant 'NAME: OPTIONS'`.

use std::collections::BTreeSet;
use std::str::FromStr;

/// The maximum length of a variant's name in characters, since it is a column's heading.
const NAME_MAX: usize = 24;

/// Options of `ebb run` that may be given more than once.
const REPEATABLE: [&str; 9] = [
    "file", "volume", "out", "disk", "env", "env-file", "sysctl", "append", "qemu-arg",
];
/// Options whose value may begin with a hyphen.
const ANY_VALUE: [&str; 2] = ["append", "qemu-arg"];
/// Options that a comparison sets itself, or with which no guest runs.
const RESERVED: [&str; 8] = [
    "timeline",
    "record",
    "print-qemu",
    "dump-initramfs",
    "summary",
    "quiet",
    "verbose",
    "help",
];
/// The short names of options.
const SHORT: [(char, &str); 8] = [
    ('m', "memory"),
    ('c', "cpus"),
    ('q', "quiet"),
    ('v', "volume"),
    ('e', "env"),
    ('u', "user"),
    ('w', "workdir"),
    ('h', "help"),
];

/// Returns whether the option of `ebb run` with the long name `option` may be given more than once.
pub(crate) fn is_repeatable(option: &str) -> bool {
    REPEATABLE.contains(&option)
}

/// A configuration of `ebb run` with a name, a column of a comparison. Parsing `NAME: OPTIONS`
/// fails if the name is empty, over 24 characters or an option, if quotes do not match, or for the
/// reasons of [`Self::new`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Variant {
    /// The name, which is a column's heading.
    pub(crate) name: String,
    /// The arguments of `ebb run` before `--`.
    pub(crate) options: Vec<String>,
    /// The long names of the options in `options`.
    given: BTreeSet<String>,
}

impl Variant {
    /// Creates a variant with `options` as arguments. Does not check that the options exist, or the
    /// name. Fails if an option is not allowed in a variant, an option that is not repeatable is
    /// given twice, or there is a `--`.
    pub(crate) fn new(name: &str, options: &[&str]) -> Result<Self, String> {
        Self::with(name, options.iter().map(|&word| word.to_owned()).collect())
    }

    /// Creates a variant with these arguments.
    fn with(name: &str, options: Vec<String>) -> Result<Self, String> {
        let mut given = BTreeSet::new();
        let mut words = options.iter();
        while let Some(word) = words.next() {
            let Some(option) = option_name(word) else {
                if word == "--" {
                    return Err(
                        "it ends with `--`; a variant has options of `ebb run` alone, and \
                                the program stands after the comparison's own `--`"
                            .into(),
                    );
                }
                continue;
            };
            if RESERVED.contains(&option.as_str()) {
                return Err(format!("`{word}` is for `ebb run` alone"));
            }
            if !REPEATABLE.contains(&option.as_str()) && given.contains(&option) {
                return Err(format!("--{option} is given twice"));
            }
            if ANY_VALUE.contains(&option.as_str()) && !word.contains('=') {
                words.next();
            }
            given.insert(option);
        }
        Ok(Self {
            name: name.to_owned(),
            options,
            given,
        })
    }

    /// Returns whether the variant sets the option with this long name, also by its short name.
    pub(crate) fn gives(&self, option: &str) -> bool {
        self.given.contains(option)
    }

    /// Returns the value of the option with the long name `option`. Returns `None` if the variant
    /// does not set it, or sets it by its short name.
    pub(crate) fn value_of(&self, option: &str) -> Option<&str> {
        self.options.iter().enumerate().find_map(|(at, word)| {
            let rest = word.strip_prefix("--")?.strip_prefix(option)?;
            match rest {
                "" => self.options.get(at + 1).map(String::as_str),
                rest => rest.strip_prefix('='),
            }
        })
    }

    /// Returns whether the variant's guest has a stock kernel: the value of `--kernel` begins with
    /// `linux`.
    pub(crate) fn is_linux(&self) -> bool {
        self.options.iter().enumerate().any(|(at, word)| {
            let value = match word.strip_prefix("--kernel") {
                Some("") => self.options.get(at + 1).map(String::as_str),
                Some(rest) => rest.strip_prefix('='),
                None => None,
            };
            value.is_some_and(|value| value.starts_with("linux"))
        })
    }
}

/// Returns the long name of the option `word`, or `None` if it is not an option.
fn option_name(word: &str) -> Option<String> {
    if let Some(long) = word.strip_prefix("--") {
        let name = long.split_once('=').map_or(long, |(name, _)| name);
        return (!name.is_empty()).then(|| name.to_owned());
    }
    let letter = word.strip_prefix('-')?.chars().next()?;
    SHORT
        .iter()
        .find(|(short, _)| *short == letter)
        .map(|(_, long)| (*long).to_owned())
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, options) = text
            .split_once(':')
            .ok_or("a variant is written 'NAME: OPTIONS', as in 'order 0: --reporting-order 0'")?;
        let name = name.trim();
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err("its name has no character that can be printed".into());
        }
        if name.chars().count() > NAME_MAX {
            return Err(format!("its name has more than {NAME_MAX} characters"));
        }
        if name.starts_with('-') {
            return Err(format!(
                "`{name}` is no name but an option; write 'NAME: {text}'"
            ));
        }
        let options =
            shlex::split(options).ok_or("its quotes or backslashes do not come in pairs")?;
        Self::with(name, options)
    }
}

/// Returns an error message if two variants have the same name, ignoring the case of ASCII letters.
pub(crate) fn apart(variants: &[Variant]) -> Result<(), String> {
    for (index, variant) in variants.iter().enumerate() {
        let same = |other: &&Variant| other.name.eq_ignore_ascii_case(&variant.name);
        if let Some(other) = variants[..index].iter().find(same) {
            return Err(format!(
                "two columns are called `{}`: give each variant a name of its own",
                other.name
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_a_name_and_options() {
        let of = |text: &str| text.parse::<Variant>();
        let order = of("order 0: --reporting-order 0 --append '-a b' -m2G").unwrap();
        assert_eq!(order.name, "order 0");
        assert_eq!(
            order.options,
            ["--reporting-order", "0", "--append", "-a b", "-m2G"]
        );
        assert!(order.gives("memory") && order.gives("reporting-order") && !order.gives("cpus"));
        assert!(!order.is_linux());
        assert_eq!(order.value_of("reporting-order"), Some("0"));
        assert_eq!(order.value_of("reporting"), None);
        assert_eq!(of("a: --accel=tcg").unwrap().value_of("accel"), Some("tcg"));
        assert!(of("l: --kernel linux:/boot/a").unwrap().is_linux());
        assert!(of("l: --kernel=linux").unwrap().is_linux());
        assert!(of("plain:").unwrap().options.is_empty());
        assert!(of("twice: --env A=1 --env B=2").is_ok());
        for (text, told) in [
            ("--reporting-order 0", "NAME: OPTIONS"),
            (": -m 1G", "its name"),
            ("--append x:y", "no name but an option"),
            ("a: -m 1G --memory 2G", "--memory is given twice"),
            ("a: --icount --icount", "--icount is given twice"),
            ("a: --record x", "for `ebb run` alone"),
            ("a: -m 1G -- ./x", "after the comparison's own"),
            ("a: 'x", "quotes"),
            ("a name that goes on and on: -m 1G", "more than 24"),
            ("a\u{7}: -m 1G", "its name"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn names_tell_columns_apart() {
        let of = |name: &str| Variant::new(name, &[]).unwrap();
        assert!(apart(&[of("Ebb"), of("a"), of("b")]).is_ok());
        assert!(
            apart(&[of("Ebb"), of("a"), of("ebb")])
                .unwrap_err()
                .contains("`Ebb`")
        );
    }
}
