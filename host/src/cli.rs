//! What the command line looks like.

use crate::ask::ReclaimOptions;
use crate::blk::BlkOptions;
use crate::compare::CompareOptions;
use crate::metrics::MetricsOptions;
use crate::run::RunOptions;
use crate::set::SetOptions;
use crate::top::TopOptions;
use clap::{Parser, Subcommand};

/// Runs ordinary Linux programs in small VMs and gives the memory they free back to the host.
#[derive(Parser, Debug)]
#[command(name = "ebb", version, about, max_term_width = 100)]
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
    /// Serve the figures of the guests for Prometheus
    Metrics(MetricsOptions),
    /// Serve disks to guests, with buffers that the host can have back
    Blk(BlkOptions),
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
