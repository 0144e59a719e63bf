//! The parts of a guest's machine as users and the rest of ebb name them: kernel, board,
//! accelerator, and the way that free memory returns to the host.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
pub(crate) use ebb_wire::GiveBack;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Returns a clap parser that reads a [`GiveBack`] mode by its name, with a help text for each
/// mode. Another word is an error of usage.
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

/// The user's choice of accelerator, the part that runs guest instructions.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum AccelChoice {
    /// KVM if the guest kernel boots with it on this host, else TCG
    Auto,
    /// The CPU's own virtualisation
    Kvm,
    /// QEMU's translator: works on every host, but slower
    Tcg,
}

/// The user's choice of host pages for the guest's memory.
#[derive(ValueEnum, Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum HostPages {
    /// Huge pages for guests from 128 MiB to below 2.75 GiB if the host has them, else base pages
    Auto,
    /// Huge pages, or fail
    Huge,
    /// Base pages of 4 KiB
    Base,
    /// Huge pages reserved in the host's pool; no memory goes back
    Pool,
}

/// The accelerator that runs the guest's instructions: KVM or QEMU's translator TCG.
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

/// The kernel that the user asks for with `--kernel`: `ebb`, `linux` or `linux:PATH`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum KernelChoice {
    /// The kernel of Ebb: the embedded one, or a developer's image.
    Ebb,
    /// A Linux kernel: the one in this file, or Debian's if there is no path.
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

/// The kind of kernel that a guest runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum KernelKind {
    /// Ebb's own kernel.
    Ebb,
    /// A stock Linux kernel.
    Linux,
    /// The unknown kernel of a QEMU that `ebb` did not start.
    Other,
}

impl KernelKind {
    /// Returns the name of the kernel for people: `Ebb`, `Linux` or `other`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ebb => "Ebb",
            Self::Linux => "Linux",
            Self::Other => "other",
        }
    }

    /// Returns the name of the kernel in records and file names: `ebb`, `linux` or `other`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ebb => "ebb",
            Self::Linux => "linux",
            Self::Other => "other",
        }
    }
}

/// The kernel for which QEMU's command line is made, because some parts of it differ between Ebb
/// and Linux.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    Ebb,
    Linux,
}

/// One `--sysctl NAME=VALUE` option: a name that begins with `vm.` and its value. Both consist of
/// letters, digits, `_`, `-` and `.`, which a kernel command line can carry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sysctl {
    /// The full name, such as `vm.min_free_kbytes`.
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
        // The kernel splits its command line at blanks, so a value with a blank would be cut.
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
