//! The definition of the command line.

use crate::ask::{PauseOptions, ReclaimOptions, ResumeOptions};
use crate::blk::BlkOptions;
use crate::compare::CompareOptions;
use crate::embedded;
use crate::metrics::MetricsOptions;
use crate::pages::PagesOptions;
use crate::run::RunOptions;
use crate::set::SetOptions;
use crate::top::TopOptions;
use crate::workloads::WorkloadsOptions;
use clap::{Parser, Subcommand};

/// The help text of `ebb`. clap cannot group subcommands, so the list is written out here.
const HELP: &str = "\
{about-with-newline}
{usage-heading} {usage}

Run a program:
  run       Run a program in a guest of its own

See and change guests that run:
  top       Show the guests of this host, live
  pause     Stop the CPUs of guests; free memory goes back (with Ebb's kernel)
  resume    Let paused guests run again
  reclaim   Ask a guest for memory now
  set       Change how a guest gives memory back
  metrics   Serve figures of all guests for Prometheus

Measure:
  compare   Run the same programs on Ebb and on stock Linux, side by side
  workloads Run the program of an experiment on this host

Disks:
  blk       Serve disks to guests; their buffers shrink if the host is short of memory

  help      Print the help of a command: ebb help run

Options:
{options}

Examples:
  ebb run -- python3 job.py          a program of this host, in a guest that sees this folder
  ebb run --summary -- make          the same, with a picture of its memory at the end
  ebb run --kernel linux -- ./job    on Debian's own kernel
  ebb top                            all guests, live
  ebb compare page-fault memhog      two experiments on both kernels
";

/// Runs ordinary Linux programs in small VMs and gives the memory they free back to the host.
#[derive(Parser, Debug)]
#[command(name = "ebb", version = embedded::version(), about, max_term_width = 100, help_template = HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a program in a guest of its own
    Run(Box<RunOptions>),
    /// Run the same programs on Ebb and on stock Linux, side by side
    Compare(Box<CompareOptions>),
    /// Run the program of an experiment on this host
    Workloads(WorkloadsOptions),
    /// Show the guests of this host, live
    Top(TopOptions),
    /// Change how a guest gives memory back
    Set(SetOptions),
    /// Ask a guest for memory now
    Reclaim(ReclaimOptions),
    /// Stop the CPUs of guests; free memory goes back (with Ebb's kernel)
    Pause(PauseOptions),
    /// Let paused guests run again
    Resume(ResumeOptions),
    /// Serve figures of all guests for Prometheus
    Metrics(MetricsOptions),
    /// Serve disks to guests; their buffers shrink if the host is short of memory
    Blk(BlkOptions),
    /// Write manual pages and completions, for `make install`
    #[command(hide = true)]
    Pages(PagesOptions),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Size;
    use clap::CommandFactory;

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_lists_each_command_with_its_own_summary() {
        let help = Cli::command().render_help().to_string();
        assert!(help.lines().count() <= 40, "it fits a screen");
        for command in Cli::command()
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
        {
            let about = command.get_about().expect("each has one").to_string();
            let line = format!("  {:<9} {about}", command.get_name());
            assert!(
                help.lines().any(|l| l == line),
                "{line:?} is not in:\n{help}"
            );
        }
    }

    #[test]
    fn each_command_has_a_page_and_each_shell_its_words() {
        let folder = std::env::temp_dir().join(format!("ebb-pages-{}", std::process::id()));
        let options = PagesOptions {
            folder: folder.clone(),
            book: false,
        };
        crate::pages::write(Cli::command(), &options).expect("a folder of ours");
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("it was written");
        let page = read("man/man1/ebb-run.1");
        assert!(
            page.contains("give\\-back") && page.contains("Exit status"),
            "{page}"
        );
        for shell in [
            "bash-completion/completions/ebb",
            "fish/vendor_completions.d/ebb.fish",
            "zsh/vendor-completions/_ebb",
        ] {
            assert!(read(shell).contains("give-back"), "{shell}");
        }
        // A hidden command has no manual page.
        assert!(!folder.join("man/man1/ebb-pages.1").exists());
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn program_takes_the_rest() {
        let cli =
            Cli::try_parse_from(["ebb", "run", "-m", "2G", "--", "sh", "-c", "ls -m"]).unwrap();
        let Command::Run(run) = cli.command else {
            panic!("another command");
        };
        assert_eq!(run.program, ["sh", "-c", "ls -m"]);
        assert_eq!(run.memory, Size::mebibytes(2048));
    }
}
