//! What a machine is made of, as users and the rest of ebb name it: kernel, board, accelerator, how
//! memory goes back.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
pub(crate) use ebb_wire::GiveBack;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Reads a [`GiveBack`] by its name.
pub(crate) fn give_back_parser() -> impl TypedValueParser<Value = GiveBack> {
    let values = [
        (
            GiveBack::Shared,
            "The host takes what is free by itself, as it becomes free",
        ),
        (
            GiveBack::Hinting,
            "Page hinting: what is freed is noted, and goes back at once",
        ),
        (
            GiveBack::Reporting,
            "Free page reporting: a scan, two seconds after memory was freed",
        ),
        (GiveBack::Off, "Not at all"),
    ];
    let values = values.map(|(mode, help)| PossibleValue::new(mode.name()).help(help));
    PossibleValuesParser::new(values).map(|name| GiveBack::from_name(&name).unwrap_or_default())
}

/// What the user asks to run guest instructions.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum AccelChoice {
    /// KVM if this kernel boots on it here, else TCG
    Auto,
    /// The CPU's own virtualisation
    Kvm,
    /// QEMU's translator: everywhere, slower
    Tcg,
}

/// The pages of the host that the user wants a guest's memory in.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum HostPages {
    /// Huge pages where this host has them for a guest of 128 MiB to 2.75 GiB, else base pages
    Auto,
    /// Huge pages, or fail
    Huge,
    /// Base pages of 4 KiB
    Base,
    /// Huge pages from the host's pool, reserved while the guest runs: nothing goes back
    Pool,
}

/// What runs the guest's instructions.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Accel {
    Kvm,
    Tcg,
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG",
        })
    }
}

/// The board that QEMU emulates.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Machine {
    /// Minimal board with virtio-mmio; starts fastest
    Microvm,
    /// PC board with PCI Express
    Q35,
}

/// The kernel that the user asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KernelChoice {
    /// The one in this binary, or a developer's.
    Ebb,
    /// The one in this file, or Debian's.
    Linux(Option<PathBuf>),
}

impl FromStr for KernelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "ebb" => Ok(Self::Ebb),
            None if text == "linux" => Ok(Self::Linux(None)),
            Some(("linux", "")) => Err("`linux:` lacks the path of a kernel".into()),
            Some(("linux", path)) => Ok(Self::Linux(Some(path.into()))),
            _ => Err(format!(
                "`{text}` is neither ebb, nor linux, nor linux:/path/boot/vmlinuz-RELEASE"
            )),
        }
    }
}

/// Which kernel a guest runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KernelKind {
    Ebb,
    Linux,
    /// Whatever another QEMU runs.
    Other,
}

impl KernelKind {
    /// As people write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ebb => "Ebb",
            Self::Linux => "Linux",
            Self::Other => "other",
        }
    }

    /// As records and file names have it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ebb => "ebb",
            Self::Linux => "linux",
            Self::Other => "other",
        }
    }
}

/// What a kernel must have in its own way; all else is the same for every guest.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    Ebb,
    Linux,
}

/// One `--sysctl`: a name below `vm.` and its value, fit for the kernel's command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sysctl {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl FromStr for Sysctl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!(
                "`{text}` lacks `=`; write it like vm.min_free_kbytes=4096"
            ));
        };
        let word = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        };
        let Some(knob) = name.strip_prefix("vm.") else {
            return Err(format!("`{name}` is not below `vm.`"));
        };
        if !word(knob) {
            return Err(format!("`{name}` is not the name of a knob"));
        }
        // The command line is split at blanks, so a value with one would be cut.
        if !word(value) {
            return Err(format!(
                "`{value}` is not a value that a kernel command line can carry"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_have_names() {
        assert_eq!("linux".parse(), Ok(KernelChoice::Linux(None)));
        assert_eq!(
            "linux:/boot/vmlinuz-6.1:x".parse(),
            Ok(KernelChoice::Linux(Some("/boot/vmlinuz-6.1:x".into())))
        );
        for bad in ["", "linux:", "Linux", "ebb:/x", "windows"] {
            assert!(bad.parse::<KernelChoice>().is_err(), "{bad}");
        }
    }

    #[test]
    fn sysctl_must_fit_the_command_line() {
        assert!("vm.min_free_kbytes=4096".parse::<Sysctl>().is_ok());
        for bad in [
            "vm.x",
            "kernel.pid_max=1",
            "vm.=1",
            "vm.x=",
            "vm.x=1 init=/bin/sh",
            "vm.a b=1",
        ] {
            assert!(bad.parse::<Sysctl>().is_err(), "{bad}");
        }
    }
}
