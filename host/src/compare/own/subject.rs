//! The subjects of a comparison of columns: the user's own program, or experiments.

use super::super::experiment::{BootWords, Experiment};
use super::super::experiments::cases;
use super::super::guest::Guest;
use super::super::options::CompareOptions;
use super::super::scratch::Scratch;
use super::super::variant::{Variant, is_repeatable};
use crate::archive::needs_host_files;
use std::ffi::OsString;

/// A program with its arguments, or an experiment, which runs in every column.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// The name in the table.
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) program: Vec<OsString>,
    /// Options of `ebb run` for this subject, by their long names with their values. A variant's
    /// own options replace them.
    options: Vec<(&'static str, Option<OsString>)>,
    /// More words on the guests' kernel command lines.
    boot_words: BootWords,
    /// Whether it is an experiment, whose program must print events.
    pub(crate) is_experiment: bool,
    /// Whether instructions are counted.
    pub(crate) icount: bool,
}

/// Returns whether all columns can see the host's files. Guests whose instructions are counted and
/// guests with memory of the huge page pool cannot.
fn may_see_host(options: &CompareOptions) -> bool {
    let has = |name: &str| options.variants.iter().any(|variant| variant.gives(name));
    !options.icount && !has("icount") && !has("host-pages") && !has("disk")
}

impl Subject {
    /// Returns the subject of the user's own program, with the memory, CPUs and counting that the
    /// user chose. Guests have one CPU if the user chose none.
    pub(crate) fn own(options: &CompareOptions) -> Self {
        let words = options.program.iter().map(|word| word.to_string_lossy());
        let mut given: Vec<(&'static str, Option<OsString>)> = Vec::new();
        if let Some(memory) = options.memory {
            given.push(("memory", Some(memory.to_string().into())));
        }
        // All columns have the same number of CPUs, independent of the host's.
        let cpus = options.cpus.unwrap_or(1);
        given.push(("cpus", Some(cpus.to_string().into())));
        if options.icount {
            given.push(("icount", None));
        }
        if let Some(root) = &options.root {
            given.push(("root", Some(root.clone())));
        } else if may_see_host(options) && needs_host_files(&options.program) {
            given.push(("root", Some("host".into())));
        }
        let of_files = |value: &OsString| ("file", Some(value.clone()));
        given.extend(options.files.iter().map(of_files));
        let of_volumes = |value: &OsString| ("volume", Some(value.clone()));
        given.extend(options.volumes.iter().map(of_volumes));
        Self {
            name: words.collect::<Vec<_>>().join(" "),
            program: options.program.clone(),
            options: given,
            boot_words: BootWords::Usual,
            is_experiment: false,
            icount: options.icount,
        }
    }

    /// Returns a subject for each shape of an experiment's guests. Guests run one at a time and
    /// without turns. Returns an empty list for
    /// [`ExperimentProgram::Boots`](super::super::experiment::ExperimentProgram::Boots).
    pub(crate) fn of_experiment(
        experiment: &'static Experiment,
        options: &CompareOptions,
        scratch: &Scratch,
    ) -> Vec<Self> {
        let mut cases = cases(experiment, options);
        // The columns decide how memory is given back, so only one way is needed here.
        let mode = cases.first().map(|case| case.shape.give_back);
        cases.retain(|case| Some(case.shape.give_back) == mode);
        let subject = |case: &super::super::experiments::Case| {
            let shape = case.shape;
            let words = case.alone()?;
            let mut given: Vec<(&'static str, Option<OsString>)> = vec![
                ("memory", Some(shape.memory.to_string().into())),
                ("cpus", Some(shape.cpus.to_string().into())),
            ];
            if shape.icount {
                given.push(("icount", None));
            }
            if let Some(disk) = case.disk() {
                given.push(("disk", Some(disk.to_owned().into())));
            }
            let plural = if shape.cpus == 1 { "" } else { "s" };
            let program = [scratch.workloads.clone().into(), "--json".into()];
            Some(Self {
                name: format!(
                    "{}, {}, {} CPU{plural}",
                    experiment.name, shape.memory, shape.cpus
                ),
                program: program
                    .into_iter()
                    .chain(words.into_iter().map(OsString::from))
                    .collect(),
                options: given,
                boot_words: experiment.boot_words,
                is_experiment: true,
                icount: shape.icount,
            })
        };
        cases.iter().filter_map(subject).collect()
    }

    /// Returns the arguments of `ebb run` before `--` for `column`. `common` are options for all
    /// columns, by their long names, with values. An option that `column` sets replaces the
    /// subject's and the common one.
    pub(crate) fn words(
        &self,
        column: &Variant,
        common: &[(&'static str, OsString)],
    ) -> Vec<OsString> {
        // Unless an option says otherwise, all guests have the same files, which are packed.
        let mut words: Vec<OsString> = ["run", "--root", "none"].map(OsString::from).into();
        for (name, value) in &self.options {
            if !column.gives(name) || is_repeatable(name) && *name != "disk" {
                words.push(format!("--{name}").into());
                words.extend(value.clone());
            }
        }
        for (name, value) in common {
            if !column.gives(name) {
                words.extend([format!("--{name}").into(), value.clone()]);
            }
        }
        let guest = if column.is_linux() {
            Guest::Linux
        } else {
            Guest::Ebb
        };
        if let Some(boot) = self.boot_words.of(guest) {
            words.extend(["--append".into(), boot.into()]);
        }
        words.extend(column.options.iter().map(OsString::from));
        words
    }
}
