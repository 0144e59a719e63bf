//! The options of `ebb compare`.

use super::give_back_mode::GiveBackMode;
use super::variant::Variant;
use crate::machine::AccelChoice;
use crate::text::{Size, parse_duration};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  ebb compare                                    the usual experiments; says how long they take
  ebb compare page-fault memhog --html report.html
  ebb compare page-fault/4k --icount             instruction-exact, on one CPU
  ebb compare -m 512M -- ./mine --fast           any program: time, memory, page faults, status
  ebb compare -- python3 job.py                  the host's programs and this folder, on both kernels
  ebb compare --variant 'order 0: --reporting-order 0' -- ./mine
  ebb compare --linux none --variant 'off: --give-back off' memhog --csv figures.csv
  ebb compare messaging --rounds 5 --json messaging.json
  ebb compare --from messaging.json --html messaging.html
  ebb compare --from messaging.json --against another.json    do their ratios agree?
  ebb compare --html mine.html -- ./mine         a page with the figures and memory curves of every guest

Each experiment runs in guests of both kernels in turn, in the same QEMU with the same machine,
memory, CPUs and balloon; what still differs is printed. Figures are medians of the rounds, ratios
of figures that stand next to each other in time. Where guests can, both are up and take turns of a
part of a second; rounds are added until their ratios are settled, or there are 36
(72 if a round takes less than half a second).

One's own program has no input, one guest runs at a time, and its own metrics join the table where it prints the events
of docs/compare.md. With variants experiments run likewise, one guest at a time.

Exit status: 0 if all runs ended well (what a guest does not support counts as such and is shown);
1 if one failed, or if ratios do not agree with those of --against; 125 if ebb itself failed; 128 + N if signal N cut the comparison short, and the
report then says so.";

/// Options of `ebb compare`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompareOptions {
    /// Experiments to run, as `--list` names them; `NAME` means all `NAME/…`
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiments: Vec<String>,

    /// Add a column: a guest with these options of `ebb run`, compared with the first column; can
    /// be repeated
    #[arg(long = "variant", value_name = "NAME: OPTIONS")]
    pub(crate) variants: Vec<Variant>,

    /// Stock kernel to compare with: `auto` fetches Debian's once, `none` runs Ebb only; else the
    /// path of an image or of a built source tree
    #[arg(long, value_name = "auto|none|VMLINUZ", default_value = "auto")]
    pub(crate) linux: LinuxChoice,

    /// Modes of giving memory back, separated by commas; `balloon` is for Linux only, `hinting` for
    /// Ebb only [default: reporting, off and, unless instructions are counted, shared; all for
    /// `give-back`]
    #[arg(long, value_name = "WAYS", value_delimiter = ',', value_parser = mode_parser())]
    pub(crate) give_back: Vec<GiveBackMode>,

    /// Count instructions as the guest's time (1 ns each), on one CPU, so that figures repeat
    /// exactly. `page-fault`, `memhog` and `messaging` then do more work, so that guests report
    /// memory meanwhile, and take about 40 minutes together
    #[arg(long)]
    pub(crate) icount: bool,

    /// Rounds of each experiment [default: 3 for most, 2 where instructions are counted; where
    /// guests take turns 18 to 72]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,

    /// Memory of each guest [default: what the experiment needs]
    #[arg(short, long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,

    /// CPUs of each guest [default: what the experiment is about; 1 for your own program]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) cpus: Option<u32>,

    /// Write every sample, version and command line as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write a report with plots as one HTML file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Write every figure of every run as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,

    /// Write the memory curve of every run as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) timeline_csv: Option<PathBuf>,

    /// List the experiments and stop
    #[arg(long)]
    pub(crate) list: bool,

    /// Run nothing; make the report from these JSON files
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["experiments", "linux", "give_back", "icount", "rounds", "memory", "cpus", "list", "variants", "program"]
    )]
    pub(crate) from: Vec<PathBuf>,

    /// Compare every ratio with that of another comparison, in these JSON files. Ratios agree
    /// within 10 %, counted instructions within 1 %
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pub(crate) against: Vec<PathBuf>,

    /// Write what `--against` finds as Markdown
    #[arg(
        long,
        value_name = "FILE",
        requires = "against",
        hide_short_help = true
    )]
    pub(crate) against_markdown: Option<PathBuf>,

    /// How the guests' instructions run
    #[arg(long, default_value = "auto", hide_short_help = true)]
    pub(crate) accel: AccelChoice,

    /// QEMU program
    #[arg(
        long,
        value_name = "PATH",
        default_value = "qemu-system-x86_64",
        hide_short_help = true
    )]
    pub(crate) qemu: PathBuf,

    /// Write Markdown, and the plots as SVG into `plots/` beside it
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) markdown: Option<PathBuf>,

    /// Program of experiments to run instead of the embedded one (for developers of experiments)
    #[arg(
        long,
        value_name = "PATH",
        env = "EBB_WORKLOADS",
        hide_short_help = true
    )]
    pub(crate) workloads: Option<PathBuf>,

    /// Kill a run of your own program, or of a variant, after this time: seconds, or with a unit
    /// (500ms, 2s, 5m, 1h)
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1h",
        value_parser = parse_duration,
        allow_hyphen_values = true,
        hide_short_help = true
    )]
    pub(crate) timeout: Duration,

    /// Files that the guests of your own program see, as `ebb run --root` takes them [default: host
    /// for a script or a program with libraries; none for a static program, with --icount, and if a
    /// variant has --icount, --host-pages or --disk]
    #[arg(long, value_name = "host|DIR|IMAGE|none", requires = "program")]
    pub(crate) root: Option<OsString>,

    /// Copy a file or directory into the guests of your own program, as `ebb run --file`
    #[arg(long = "file", value_name = "SRC[:/DEST]", requires = "program")]
    pub(crate) files: Vec<OsString>,

    /// Share a folder of the host with the guests of your own program, as `ebb run --volume`
    #[arg(
        short = 'v',
        long = "volume",
        value_name = "SRC:DST[:ro|:max=SIZE]",
        requires = "program"
    )]
    pub(crate) volumes: Vec<OsString>,

    /// Your own program and its arguments, measured instead of experiments
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["experiments", "list"])]
    pub(crate) program: Vec<OsString>,
}

/// The user's choice of a stock kernel to compare with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LinuxChoice {
    /// Debian's kernel, from the cache or the network.
    Auto,
    /// No Linux guest.
    None,
    /// The kernel image, or source tree, at this path.
    Image(PathBuf),
}

impl From<OsString> for LinuxChoice {
    fn from(text: OsString) -> Self {
        match text.to_str() {
            Some("auto") => Self::Auto,
            Some("none") => Self::None,
            _ => Self::Image(text.into()),
        }
    }
}

/// Returns clap's parser of a [`GiveBackMode`] by its name.
fn mode_parser() -> impl TypedValueParser<Value = GiveBackMode> {
    let names = GiveBackMode::all().into_iter().map(GiveBackMode::name);
    PossibleValuesParser::new(names)
        .map(|name| GiveBackMode::from_name(&name).unwrap_or(GiveBackMode::REPORTING))
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;
    use crate::compare::CompareOptions;
    use clap::Parser;
    use std::time::Duration;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        options: CompareOptions,
    }

    #[test]
    fn a_time_limit_is_written_as_for_a_run() {
        let of = |words: &[&str]| {
            let words = ["compare"].iter().chain(words).chain(&["--", "sh"]);
            Alone::try_parse_from(words).map(|alone| alone.options.timeout)
        };
        assert_eq!(of(&[]).ok(), Some(Duration::from_secs(3600)));
        for (text, milliseconds) in [
            ("90", 90_000),
            ("500ms", 500),
            ("1.5s", 1500),
            ("2h", 7_200_000),
        ] {
            let limit = of(&["--timeout", text]).ok();
            assert_eq!(limit, Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["0", "366d", "5x", "-1"] {
            let error = of(&["--timeout", text]).expect_err(text).to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn a_negative_time_limit_is_named() {
        for words in [
            ["ebb", "run", "--timeout", "-1", "--", "./x"],
            ["ebb", "run", "--grace", "-1", "--", "./x"],
            ["ebb", "compare", "--timeout", "-1", "--", "./x"],
        ] {
            let error = Cli::try_parse_from(words)
                .map(|_| ())
                .unwrap_err()
                .to_string();
            assert!(error.contains("`-1` is less than no time"), "{error}");
            assert!(error.contains(words[2]), "{error}");
        }
    }
}
