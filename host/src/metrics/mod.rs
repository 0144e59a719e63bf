//! `ebb metrics`: the guests' figures for Prometheus.

mod access;
mod http;
mod openmetrics;
mod options;
mod peer;
mod slots;

pub(crate) use openmetrics::table;
pub(crate) use options::MetricsOptions;

use crate::failure::Failure;
use crate::registry::{Fleet, Presence};
use crate::stdout;
use access::{AccessControl, Token};
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

/// Runs `ebb metrics`: prints the metrics once and returns the exit status 0, or prints the address
/// and serves them until the process is ended.
///
/// Fails if other machines could reach the address and that is not allowed, if the token cannot be
/// read, the address cannot be used, or stdout cannot be written.
pub(crate) fn run(options: &MetricsOptions) -> Result<u8, Failure> {
    if options.once {
        stdout::offer(&render(&mut Fleet::new()))?;
        return Ok(0);
    }
    let address = options.listen;
    if !address.ip().is_loopback() && !options.allow_remote {
        return Err(Failure::Usage(format!(
            "--listen {address} can be reached from other machines, who would see the names and \
             arguments of your programs; say --allow-remote if that is meant, and --token-file FILE \
             to answer only those who know a token"
        )));
    }
    let access = AccessControl {
        hosts: options.host.clone(),
        // Users of other machines are unknown here.
        any_user: options.any_user || (!address.ip().is_loopback() && options.token_file.is_none()),
        token: options.token_file.as_deref().map(Token::read).transpose()?,
        user: rustix::process::geteuid().as_raw(),
    };
    let failed = |source| Failure::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    // Printed on stdout, so that a script that asked for port 0 can read the port.
    stdout::offer(&format!("serving http://{address}/metrics\n"))?;
    // Requests ask the guests one at a time; the connections to the guests stay open.
    let fleet = Mutex::new(Fleet::new());
    http::serve(&listener, access, move || {
        render(&mut fleet.lock().unwrap_or_else(PoisonError::into_inner))
    });
    Ok(0)
}

/// Returns the metrics of all guests as OpenMetrics text.
fn render(fleet: &mut Fleet) -> String {
    let found = fleet.figures();
    let guests: Vec<_> = found
        .values()
        .filter_map(|presence| match presence {
            Presence::Here(figures) => Some(&**figures),
            Presence::Silent => None,
        })
        .collect();
    openmetrics::render(&guests, found.len() - guests.len())
}
