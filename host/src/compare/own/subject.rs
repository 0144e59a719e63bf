//! What runs in every column: one's own program, or an experiment.

use super::super::experiment::Experiment;
use super::super::experiments::cases;
use super::super::options::CompareOptions;
use super::super::scratch::Scratch;
use super::super::variant::Variant;
use std::ffi::OsString;

/// One program with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// What the table calls it.
    pub(crate) name: String,
    /// The program and its arguments.
    pub(crate) program: Vec<OsString>,
    /// Options of `ebb run` for it, each by its long name with its value; a variant that gives the same has its own way.
    options: Vec<(&'static str, Option<String>)>,
    /// What stands on a stock kernel's command line besides.
    linux_boot: &'static str,
    /// It must print events.
    pub(crate) is_experiment: bool,
    pub(crate) icount: bool,
}

impl Subject {
    /// One's own program.
    pub(crate) fn own(options: &CompareOptions) -> Self {
        let words = options.program.iter().map(|word| word.to_string_lossy());
        let mut given = Vec::new();
        if let Some(memory) = options.memory {
            given.push(("memory", Some(memory.to_string())));
        }
        // The same for all, and the same whatever the host has.
        let cpus = options.cpus.unwrap_or(1);
        given.push(("cpus", Some(cpus.to_string())));
        if options.icount {
            given.push(("icount", None));
        }
        Self {
            name: words.collect::<Vec<_>>().join(" "),
            program: options.program.clone(),
            options: given,
            linux_boot: "",
            is_experiment: false,
            icount: options.icount,
        }
    }

    /// An experiment in each of its shapes, one guest at a time and without turns.
    pub(crate) fn of_experiment(
        experiment: &'static Experiment,
        options: &CompareOptions,
        scratch: &Scratch,
    ) -> Vec<Self> {
        let mut cases = cases(experiment, options);
        // How memory goes back is the columns' matter.
        let way = cases.first().map(|case| case.shape.give_back);
        cases.retain(|case| Some(case.shape.give_back) == way);
        let subject = |case: &super::super::experiments::Case| {
            let shape = case.shape;
            let words = case.alone()?;
            let mut given = vec![
                ("memory", Some(shape.memory.to_string())),
                ("cpus", Some(shape.cpus.to_string())),
            ];
            if shape.icount {
                given.push(("icount", None));
            }
            if let Some(disk) = case.disk() {
                given.push(("disk", Some(disk.to_owned())));
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
                linux_boot: experiment.linux_boot,
                is_experiment: true,
                icount: shape.icount,
            })
        };
        cases.iter().filter_map(subject).collect()
    }

    /// The words for `ebb run` before `--`, of a column; `common` are given for all, by their long names.
    pub(crate) fn words(
        &self,
        column: &Variant,
        common: &[(&'static str, OsString)],
    ) -> Vec<OsString> {
        // Unless a column says otherwise, all have the same files: those that are packed.
        let mut words: Vec<OsString> = ["run", "--root", "none"].map(OsString::from).into();
        for (name, value) in &self.options {
            if !column.gives(name) {
                words.push(format!("--{name}").into());
                words.extend(value.as_ref().map(OsString::from));
            }
        }
        for (name, value) in common {
            if !column.gives(name) {
                words.extend([format!("--{name}").into(), value.clone()]);
            }
        }
        if !self.linux_boot.is_empty() && column.is_linux() {
            words.extend(["--append".into(), self.linux_boot.into()]);
        }
        words.extend(column.options.iter().map(OsString::from));
        words
    }
}
