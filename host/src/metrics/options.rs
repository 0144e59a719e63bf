//! Options of `ebb metrics`.

use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  ebb metrics                               serve http://127.0.0.1:9732/metrics until Ctrl-C
  ebb metrics --listen [::1]:9100
  ebb metrics --once | grep resident
  ebb metrics --token-file token            for Prometheus, which runs as another user

For Prometheus, with a token that both may read (head -c 32 /dev/urandom | base64 > token;
chgrp prometheus token; chmod 640 token):
  scrape_configs:
  - job_name: ebb
    authorization: {credentials_file: /path/token}
    static_configs: [{targets: ['127.0.0.1:9732']}]

Only your own programs and root's are answered, unless --token-file, --any-user or --allow-remote
lets others in; and only requests for localhost, the address itself, or a --host.";

/// Options of `ebb metrics`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MetricsOptions {
    /// Address and port to serve on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9732")]
    pub(crate) listen: SocketAddr,

    /// Allow a --listen address that other machines can reach. Without --token-file every client
    /// sees the names of your programs
    #[arg(long)]
    pub(crate) allow_remote: bool,

    /// Also answer other users' requests that have the token in this file: `Authorization: Bearer
    /// TOKEN`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["any_user", "once"])]
    pub(crate) token_file: Option<PathBuf>,

    /// Answer all users of this machine: they see the names and arguments of your programs
    #[arg(long, conflicts_with = "once")]
    pub(crate) any_user: bool,

    /// Also answer requests with this host name, such as this machine's name in DNS; can be
    /// repeated
    #[arg(long, value_name = "NAME", conflicts_with = "once")]
    pub(crate) host: Vec<String>,

    /// Print the metrics once and stop
    #[arg(long, conflicts_with = "listen")]
    pub(crate) once: bool,
}
