//! The definition of the command line.

use crate::ask::{PauseOptions, ReclaimOptions, ResumeOptions};
use crate::blk::BlkOptions;
use crate::compare::CompareOptions;
use crate::metrics::MetricsOptions;
use crate::pages::PagesOptions;
use crate::run::RunOptions;
use crate::set::SetOptions;
use crate::top::TopOptions;
use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  ebb run -- python3 job.py          a program of this host, in a guest that sees this folder
  ebb run --summary -- make          the same, and at the end where memory went
  ebb run --kernel linux -- ./job    on Debian's own kernel, to compare
  ebb top                            all guests, live
  ebb compare page-fault memhog      both kernels at the same work, side by side";

/// Runs ordinary Linux programs in small VMs and gives the memory they free back to the host.
#[derive(Parser, Debug)]
#[command(name = "ebb", version, about, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a program in a guest of its own
    Run(Box<RunOptions>),
    /// Run experiments in guests of this kernel and of stock Linux, side by side
    Compare(Box<CompareOptions>),
    /// Show the guests that run on this host
    Top(TopOptions),
    /// Change how a guest that runs gives memory back
    Set(SetOptions),
    /// Ask a guest that runs for memory, now
    Reclaim(ReclaimOptions),
    /// Pause guests: their virtual CPUs stop, and what is free in them goes back
    Pause(PauseOptions),
    /// Let paused guests go on
    Resume(ResumeOptions),
    /// Serve the figures of the guests for Prometheus
    Metrics(MetricsOptions),
    /// Serve disks to guests, with buffers that the host can have back
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
    fn each_command_has_a_page_and_each_shell_its_words() {
        let folder = std::env::temp_dir().join(format!("ebb-pages-{}", std::process::id()));
        let options = PagesOptions {
            folder: folder.clone(),
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
