//! The columns: a kernel, and the way in which the host takes memory from it.

use super::super::elastic::Kind;
use super::super::variant::Variant;
use crate::text::Size;
use std::ffi::OsStr;

/// How memory leaves a guest.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// The host reads the allocator's words and takes what is free.
    Shared,
    /// `ebb reclaim` asks for what is free.
    Reclaim,
    /// The host inflates a balloon.
    Balloon,
    /// The host unplugs blocks of a virtio-mem device.
    Plug,
    /// The guest gives it back by itself.
    Itself,
    /// It does not leave.
    Nothing,
}

impl By {
    /// Whether memory leaves without anything that the host does at that moment.
    fn is_by_itself(self) -> bool {
        matches!(self, Self::Shared | Self::Itself | Self::Nothing)
    }
}

/// One column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) variant: Variant,
    pub(super) by: By,
    /// It is one of the comparison's own, not a variant of the user's.
    pub(super) is_ours: bool,
    /// The column with the same kernel that gives nothing back.
    none: Option<usize>,
}

impl Column {
    fn ours(name: &str, kernel: Option<&str>, options: &[&str], by: By) -> Result<Self, String> {
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

    /// A variant of the user's. How memory leaves it follows from its options.
    fn theirs(variant: &Variant) -> Self {
        let mode = variant.value_of("give-back");
        let by = match (mode, variant.is_linux()) {
            (None | Some("shared"), false) => By::Shared,
            (Some("off"), false) => By::Reclaim,
            (Some("off") | None, true) => By::Balloon,
            (Some(_), _) => By::Itself,
        };
        Self {
            variant: variant.clone(),
            by,
            is_ours: false,
            none: None,
        }
    }

    /// Why `kind` cannot be done here; `None` if it can.
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
            (Kind::Memory, By::Nothing) => Some("nothing takes its memory"),
            (Kind::Build | Kind::Builds, by) if !by.is_by_itself() => {
                Some("memory does not leave it by itself, and a build does not wait")
            }
            _ => None,
        }
    }

    /// The column with the same kernel that gives nothing back.
    pub(super) fn none_of(&self) -> Option<usize> {
        self.none
    }
}

/// All columns in which one of `kinds` can be done, and the user's variants.
///
/// # Errors
/// If two have the same name.
pub(super) fn all(
    linux: Option<&OsStr>,
    variants: &[Variant],
    kinds: &[(Kind, Size)],
) -> Result<Vec<Column>, String> {
    let mut columns = vec![
        Column::ours("Ebb", None, &[], By::Shared)?,
        Column::ours("Ebb, reclaim", None, &[], By::Reclaim)?,
        Column::ours("Ebb, balloon", None, &[], By::Balloon)?,
        Column::ours("Ebb, off", None, &[], By::Nothing)?,
    ];
    if let Some(linux) = linux {
        let linux = Some(linux.to_str().ok_or("the kernel's path is not UTF-8")?);
        columns.push(Column::ours("Linux, balloon", linux, &[], By::Balloon)?);
        let q35 = ["--machine", "q35"];
        columns.push(Column::ours("Linux, virtio-mem", linux, &q35, By::Plug)?);
        columns.push(Column::ours("Linux, reporting", linux, &[], By::Itself)?);
        columns.push(Column::ours("Linux, off", linux, &[], By::Nothing)?);
    }
    columns.retain(|column| kinds.iter().any(|(kind, _)| column.cannot(*kind).is_none()));
    columns.extend(variants.iter().map(Column::theirs));
    let none = |is_linux: bool| {
        columns
            .iter()
            .position(|one| one.by == By::Nothing && one.variant.is_linux() == is_linux)
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
        assert_eq!(of("a:").by, By::Shared);
        assert_eq!(of("a: --give-back off").by, By::Reclaim);
        assert_eq!(of("a: --give-back=hinting").by, By::Itself);
        assert_eq!(of("a: --kernel linux").by, By::Balloon);
        assert_eq!(of("a: --kernel linux --give-back reporting").by, By::Itself);
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
