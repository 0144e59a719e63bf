//! The columns: a kernel, and how the host takes memory from its guest.

use super::super::elastic::Kind;
use super::super::variant::Variant;
use crate::text::Size;
use std::ffi::OsStr;

/// The method by which memory leaves the guest of a column.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Method {
    /// The host reads the allocator's bitmap and takes free memory.
    Shared,
    /// `ebb reclaim` asks the guest for free memory.
    Reclaim,
    /// The host inflates a balloon.
    Balloon,
    /// The host unplugs blocks of a virtio-mem device.
    Plug,
    /// The guest gives memory back by itself.
    Itself,
    /// No memory leaves.
    Nothing,
}

impl Method {
    /// Returns whether memory leaves without an action of the experiment at that moment.
    fn is_by_itself(self) -> bool {
        matches!(self, Self::Shared | Self::Itself | Self::Nothing)
    }
}

/// A column of the table: options of `ebb run`, and the method by which memory leaves the guest.
#[derive(Debug)]
pub(super) struct Column {
    /// The options of `ebb run`.
    pub(super) variant: Variant,
    pub(super) by: Method,
    /// Whether the column is one of the comparison's own, not a variant that the user defined.
    pub(super) is_ours: bool,
    /// The index of the column with the same kernel in which no memory leaves.
    none: Option<usize>,
}

impl Column {
    /// Creates one of the comparison's own columns. Fails if the options are not valid.
    fn ours(
        name: &str,
        kernel: Option<&str>,
        options: &[&str],
        by: Method,
    ) -> Result<Self, String> {
        let mut words = Vec::new();
        if let Some(kernel) = kernel {
            words.extend(["--kernel", kernel]);
        }
        words.extend(options);
        Ok(Self {
            variant: Variant::new(name, &words)?,
            by,
            is_ours: true,
            none: None,
        })
    }

    /// Creates the column of a variant that the user defined. Its options decide how memory leaves.
    fn theirs(variant: &Variant) -> Self {
        let mode = variant.value_of("give-back");
        let by = match (mode, variant.is_linux()) {
            (None | Some("shared"), false) => Method::Shared,
            (Some("off"), false) => Method::Reclaim,
            (Some("off") | None, true) => Method::Balloon,
            (Some(_), _) => Method::Itself,
        };
        Self {
            variant: variant.clone(),
            by,
            is_ours: false,
            none: None,
        }
    }

    /// Returns why `kind` cannot be run in this column, as text for the user, or `None` if it can.
    pub(super) fn cannot(&self, kind: Kind) -> Option<&'static str> {
        if self.variant.gives("icount") {
            return Some("--icount has no time of the host's");
        }
        if self.variant.gives("memory") {
            return Some("the experiment sets -m, which the amounts depend on");
        }
        if self.variant.gives("root") || self.variant.gives("bare") {
            return Some("the experiment packs its files by itself");
        }
        match (kind, self.by) {
            (Kind::Memory, Method::Nothing) => Some("nothing takes its memory"),
            (Kind::Build | Kind::Builds, by) if !by.is_by_itself() => {
                Some("its guest returns no memory by itself, and a build requests none")
            }
            _ => None,
        }
    }

    /// Returns the index, in the list of all columns, of the column with the same kernel in which
    /// no memory leaves. Returns `None` if there is no such column.
    pub(super) fn none_of(&self) -> Option<usize> {
        self.none
    }
}

/// Returns the comparison's own columns in which one of `kinds` can be run, and then a column for
/// each of the user's `variants`. `linux` is the kernel for the Linux columns; without it there are
/// none. Fills in the indexes that [`Column::none_of`] returns.
///
/// # Errors
/// If the path of the kernel is not UTF-8 or the options of a column are not valid.
pub(super) fn all(
    linux: Option<&OsStr>,
    variants: &[Variant],
    kinds: &[(Kind, Size)],
) -> Result<Vec<Column>, String> {
    let mut columns = vec![
        Column::ours("Ebb", None, &[], Method::Shared)?,
        Column::ours("Ebb, reclaim", None, &[], Method::Reclaim)?,
        Column::ours("Ebb, balloon", None, &[], Method::Balloon)?,
        Column::ours("Ebb, off", None, &[], Method::Nothing)?,
    ];
    if let Some(linux) = linux {
        let linux = Some(linux.to_str().ok_or("the kernel's path is not UTF-8")?);
        columns.push(Column::ours("Linux, balloon", linux, &[], Method::Balloon)?);
        let q35 = ["--machine", "q35"];
        columns.push(Column::ours(
            "Linux, virtio-mem",
            linux,
            &q35,
            Method::Plug,
        )?);
        columns.push(Column::ours(
            "Linux, reporting",
            linux,
            &[],
            Method::Itself,
        )?);
        columns.push(Column::ours("Linux, off", linux, &[], Method::Nothing)?);
    }
    columns.retain(|column| kinds.iter().any(|(kind, _)| column.cannot(*kind).is_none()));
    columns.extend(variants.iter().map(Column::theirs));
    let none = |is_linux: bool| {
        columns
            .iter()
            .position(|one| one.by == Method::Nothing && one.variant.is_linux() == is_linux)
    };
    let nones = [none(false), none(true)];
    for column in &mut columns {
        column.none = nones[usize::from(column.variant.is_linux())];
    }
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_variant_cannot_do_is_said() {
        let of = |text: &str| Column::theirs(&text.parse().expect("a variant"));
        assert_eq!(of("a:").by, Method::Shared);
        assert_eq!(of("a: --give-back off").by, Method::Reclaim);
        assert_eq!(of("a: --give-back=hinting").by, Method::Itself);
        assert_eq!(of("a: --kernel linux").by, Method::Balloon);
        assert_eq!(
            of("a: --kernel linux --give-back reporting").by,
            Method::Itself
        );
        assert_eq!(of("a:").cannot(Kind::Memory), None);
        for (text, kind, why) in [
            ("a: -m 1G", Kind::Memory, "-m"),
            ("a: --icount", Kind::Ftq, "--icount"),
            ("a: --give-back off", Kind::Builds, "by itself"),
            ("a: --kernel linux", Kind::Build, "by itself"),
        ] {
            let said = of(text).cannot(kind).expect("it cannot");
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn columns_are_those_that_an_experiment_needs() {
        let names = |kind, linux: Option<&str>| -> Vec<String> {
            let kinds = [(kind, Size::mebibytes(512))];
            let columns = all(linux.map(OsStr::new), &[], &kinds).expect("columns");
            columns.into_iter().map(|one| one.variant.name).collect()
        };
        assert_eq!(
            names(Kind::Memory, None),
            ["Ebb", "Ebb, reclaim", "Ebb, balloon"]
        );
        assert_eq!(
            names(Kind::Builds, Some("linux")),
            ["Ebb", "Ebb, off", "Linux, reporting", "Linux, off"]
        );
    }
}
