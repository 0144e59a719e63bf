//! Options of `ebb metrics`.

use clap::Args;
use std::net::SocketAddr;

const EXAMPLES: &str = "\
Examples:
  ebb metrics                               serve http://127.0.0.1:9732/metrics until Ctrl-C
  ebb metrics --listen [::1]:9100
  ebb metrics --once | grep resident

For Prometheus:
  scrape_configs: [{job_name: ebb, static_configs: [{targets: ['127.0.0.1:9732']}]}]";

/// Options of `ebb metrics`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MetricsOptions {
    /// Address and port to serve on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9732")]
    pub(crate) listen: SocketAddr,

    /// Let --listen be an address that other machines reach: they see the names of your programs
    #[arg(long)]
    pub(crate) allow_remote: bool,

    /// Print the metrics once and stop
    #[arg(long, conflicts_with = "listen")]
    pub(crate) once: bool,
}
