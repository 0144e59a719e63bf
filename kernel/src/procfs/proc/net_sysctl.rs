//! The knobs of the network in `/proc/sys/net`.

use super::sysctl::{keep, number};
use crate::fs::knob::Store;
use crate::fs::socket::{
    DEFAULT_BUFFER, DEFAULT_HOPS, EPHEMERAL, KEEP_ALIVE, MAX_BACKLOG, MAX_MESSAGES, MOST_GROUPS,
    PING_GROUPS,
};
use crate::fs::synthetic::Entry;
use crate::fs::text::Text;
use core::fmt::{Result as Written, Write};
use core::sync::atomic::Ordering;
use logic::errno::Errno;

/// A file with a constant value: without packets, a change would have no effect.
macro_rules! fixed {
    ($path:literal, $value:literal) => {
        Entry::file($path, |text| text.push(concat!($value, "\n").as_bytes()))
    };
}

/// The largest numbers of seconds and of probes of the knobs about idle connections.
const MOST_SECONDS: i32 = 32767;
const MOST_PROBES: i32 = 127;

/// The files of `/proc/sys/net`: knobs that can be changed, limits of this kernel, and constants.
pub(super) const ENTRIES: &[Entry] = &[
    Entry::knob(
        "sys/net/ipv4/tcp_keepalive_time",
        |text| number(text, KEEP_ALIVE.idle.load(Ordering::Relaxed)),
        Store::natural(1, MOST_SECONDS, |value| keep(&KEEP_ALIVE.idle, value)),
    ),
    Entry::knob(
        "sys/net/ipv4/tcp_keepalive_intvl",
        |text| number(text, KEEP_ALIVE.interval.load(Ordering::Relaxed)),
        Store::natural(1, MOST_SECONDS, |value| keep(&KEEP_ALIVE.interval, value)),
    ),
    Entry::knob(
        "sys/net/ipv4/tcp_keepalive_probes",
        |text| number(text, KEEP_ALIVE.probes.load(Ordering::Relaxed)),
        Store::natural(1, MOST_PROBES, |value| keep(&KEEP_ALIVE.probes, value)),
    ),
    Entry::knob(
        "sys/net/ipv4/ping_group_range",
        ping_groups,
        Store::Text(set_ping_groups),
    ),
    Entry::file("sys/net/core/somaxconn", |text| {
        writeln!(text, "{MAX_BACKLOG}")
    }),
    Entry::file("sys/net/core/rmem_default", buffer),
    Entry::file("sys/net/core/rmem_max", buffer),
    Entry::file("sys/net/core/wmem_default", buffer),
    Entry::file("sys/net/core/wmem_max", buffer),
    Entry::file("sys/net/ipv4/ip_default_ttl", |text| {
        writeln!(text, "{DEFAULT_HOPS}")
    }),
    Entry::file("sys/net/ipv4/ip_local_port_range", |text| {
        writeln!(text, "{}\t{}", EPHEMERAL.start(), EPHEMERAL.end())
    }),
    Entry::file("sys/net/ipv4/igmp_max_memberships", |text| {
        writeln!(text, "{MOST_GROUPS}")
    }),
    Entry::file("sys/net/unix/max_dgram_qlen", |text| {
        writeln!(text, "{MAX_MESSAGES}")
    }),
    fixed!("sys/net/core/netdev_max_backlog", "1000"),
    fixed!("sys/net/core/netdev_budget", "300"),
    fixed!("sys/net/core/dev_weight", "64"),
    fixed!("sys/net/core/optmem_max", "20480"),
    fixed!("sys/net/core/busy_poll", "0"),
    fixed!("sys/net/core/busy_read", "0"),
    fixed!("sys/net/core/default_qdisc", "pfifo_fast"),
    fixed!("sys/net/core/message_burst", "10"),
    fixed!("sys/net/core/message_cost", "5"),
    fixed!("sys/net/core/rps_sock_flow_entries", "0"),
    fixed!("sys/net/core/txrehash", "1"),
    fixed!("sys/net/core/bpf_jit_enable", "1"),
    fixed!("sys/net/core/warnings", "0"),
    fixed!("sys/net/ipv4/tcp_fin_timeout", "60"),
    fixed!("sys/net/ipv4/tcp_syn_retries", "6"),
    fixed!("sys/net/ipv4/tcp_synack_retries", "5"),
    fixed!("sys/net/ipv4/tcp_retries1", "3"),
    fixed!("sys/net/ipv4/tcp_retries2", "15"),
    fixed!("sys/net/ipv4/tcp_orphan_retries", "0"),
    fixed!("sys/net/ipv4/tcp_syncookies", "1"),
    fixed!("sys/net/ipv4/tcp_max_syn_backlog", "4096"),
    fixed!("sys/net/ipv4/tcp_max_orphans", "4096"),
    fixed!("sys/net/ipv4/tcp_max_tw_buckets", "4096"),
    fixed!("sys/net/ipv4/tcp_tw_reuse", "2"),
    fixed!("sys/net/ipv4/tcp_timestamps", "1"),
    fixed!("sys/net/ipv4/tcp_sack", "1"),
    fixed!("sys/net/ipv4/tcp_dsack", "1"),
    fixed!("sys/net/ipv4/tcp_fack", "0"),
    fixed!("sys/net/ipv4/tcp_window_scaling", "1"),
    fixed!("sys/net/ipv4/tcp_ecn", "2"),
    fixed!("sys/net/ipv4/tcp_ecn_fallback", "1"),
    fixed!("sys/net/ipv4/tcp_fastopen", "1"),
    fixed!("sys/net/ipv4/tcp_slow_start_after_idle", "1"),
    fixed!("sys/net/ipv4/tcp_mtu_probing", "0"),
    fixed!("sys/net/ipv4/tcp_base_mss", "1024"),
    fixed!("sys/net/ipv4/tcp_min_snd_mss", "48"),
    fixed!("sys/net/ipv4/tcp_moderate_rcvbuf", "1"),
    fixed!("sys/net/ipv4/tcp_no_metrics_save", "0"),
    fixed!("sys/net/ipv4/tcp_abort_on_overflow", "0"),
    fixed!("sys/net/ipv4/tcp_adv_win_scale", "1"),
    fixed!("sys/net/ipv4/tcp_app_win", "31"),
    fixed!("sys/net/ipv4/tcp_autocorking", "1"),
    fixed!("sys/net/ipv4/tcp_early_retrans", "3"),
    fixed!("sys/net/ipv4/tcp_frto", "2"),
    fixed!("sys/net/ipv4/tcp_reordering", "3"),
    fixed!("sys/net/ipv4/tcp_rfc1337", "0"),
    fixed!("sys/net/ipv4/tcp_stdurg", "0"),
    fixed!("sys/net/ipv4/tcp_thin_linear_timeouts", "0"),
    fixed!("sys/net/ipv4/tcp_migrate_req", "0"),
    fixed!("sys/net/ipv4/tcp_notsent_lowat", "4294967295"),
    fixed!("sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456"),
    fixed!("sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304"),
    fixed!("sys/net/ipv4/udp_rmem_min", "4096"),
    fixed!("sys/net/ipv4/udp_wmem_min", "4096"),
    fixed!("sys/net/ipv4/ip_forward", "0"),
    fixed!("sys/net/ipv4/ip_nonlocal_bind", "0"),
    fixed!("sys/net/ipv4/ip_no_pmtu_disc", "0"),
    fixed!("sys/net/ipv4/ip_dynaddr", "0"),
    fixed!("sys/net/ipv4/ip_early_demux", "1"),
    fixed!("sys/net/ipv4/ip_local_reserved_ports", ""),
    fixed!("sys/net/ipv4/icmp_echo_ignore_all", "0"),
    fixed!("sys/net/ipv4/icmp_echo_ignore_broadcasts", "1"),
    fixed!("sys/net/ipv4/icmp_ratelimit", "1000"),
    fixed!("sys/net/ipv4/icmp_ratemask", "6168"),
    fixed!("sys/net/ipv4/igmp_max_msf", "10"),
    fixed!(
        "sys/net/ipv4/tcp_available_congestion_control",
        "reno cubic"
    ),
    fixed!("sys/net/ipv4/tcp_allowed_congestion_control", "reno cubic"),
    fixed!("sys/net/ipv4/tcp_congestion_control", "cubic"),
    fixed!("sys/net/ipv4/conf/all/forwarding", "0"),
    fixed!("sys/net/ipv4/conf/all/rp_filter", "0"),
    fixed!("sys/net/ipv4/conf/all/accept_redirects", "1"),
    fixed!("sys/net/ipv4/conf/all/accept_source_route", "0"),
    fixed!("sys/net/ipv4/conf/all/send_redirects", "1"),
    fixed!("sys/net/ipv4/conf/all/log_martians", "0"),
    fixed!("sys/net/ipv4/conf/all/arp_ignore", "0"),
    fixed!("sys/net/ipv4/conf/all/arp_announce", "0"),
    fixed!("sys/net/ipv4/conf/all/disable_policy", "0"),
    fixed!("sys/net/ipv6/conf/all/disable_ipv6", "0"),
    fixed!("sys/net/ipv6/conf/all/forwarding", "0"),
    fixed!("sys/net/ipv6/conf/all/accept_ra", "1"),
    fixed!("sys/net/ipv6/conf/all/accept_redirects", "1"),
    fixed!("sys/net/ipv6/conf/all/hop_limit", "64"),
    fixed!("sys/net/ipv6/conf/all/mtu", "1280"),
    fixed!("sys/net/ipv6/conf/all/use_tempaddr", "0"),
    fixed!("sys/net/ipv4/conf/default/forwarding", "0"),
    fixed!("sys/net/ipv4/conf/default/rp_filter", "0"),
    fixed!("sys/net/ipv4/conf/default/accept_redirects", "1"),
    fixed!("sys/net/ipv4/conf/default/accept_source_route", "0"),
    fixed!("sys/net/ipv4/conf/default/send_redirects", "1"),
    fixed!("sys/net/ipv4/conf/default/log_martians", "0"),
    fixed!("sys/net/ipv4/conf/default/arp_ignore", "0"),
    fixed!("sys/net/ipv4/conf/default/arp_announce", "0"),
    fixed!("sys/net/ipv4/conf/default/disable_policy", "0"),
    fixed!("sys/net/ipv6/conf/default/disable_ipv6", "0"),
    fixed!("sys/net/ipv6/conf/default/forwarding", "0"),
    fixed!("sys/net/ipv6/conf/default/accept_ra", "1"),
    fixed!("sys/net/ipv6/conf/default/accept_redirects", "1"),
    fixed!("sys/net/ipv6/conf/default/hop_limit", "64"),
    fixed!("sys/net/ipv6/conf/default/mtu", "1280"),
    fixed!("sys/net/ipv6/conf/default/use_tempaddr", "0"),
    fixed!("sys/net/ipv4/conf/lo/forwarding", "0"),
    fixed!("sys/net/ipv4/conf/lo/rp_filter", "0"),
    fixed!("sys/net/ipv4/conf/lo/accept_redirects", "1"),
    fixed!("sys/net/ipv4/conf/lo/accept_source_route", "0"),
    fixed!("sys/net/ipv4/conf/lo/send_redirects", "1"),
    fixed!("sys/net/ipv4/conf/lo/log_martians", "0"),
    fixed!("sys/net/ipv4/conf/lo/arp_ignore", "0"),
    fixed!("sys/net/ipv4/conf/lo/arp_announce", "0"),
    fixed!("sys/net/ipv4/conf/lo/disable_policy", "1"),
    fixed!("sys/net/ipv6/conf/lo/disable_ipv6", "0"),
    fixed!("sys/net/ipv6/conf/lo/forwarding", "0"),
    fixed!("sys/net/ipv6/conf/lo/accept_ra", "1"),
    fixed!("sys/net/ipv6/conf/lo/accept_redirects", "1"),
    fixed!("sys/net/ipv6/conf/lo/hop_limit", "64"),
    fixed!("sys/net/ipv6/conf/lo/mtu", "65536"),
    fixed!("sys/net/ipv6/conf/lo/use_tempaddr", "-1"),
    fixed!("sys/net/ipv6/bindv6only", "0"),
    fixed!("sys/net/ipv6/ip_nonlocal_bind", "0"),
    fixed!("sys/net/ipv6/auto_flowlabels", "1"),
];

fn ping_groups(text: &mut Text) -> Written {
    let [first, last] = &PING_GROUPS;
    let (first, last) = (first.load(Ordering::Relaxed), last.load(Ordering::Relaxed));
    writeln!(text, "{first}\t{last}")
}

/// Sets the first and the last group that may send echo requests. If the first is above the last,
/// no group may. Fails with `EINVAL` if `value` does not start with two numbers below 2^31.
fn set_ping_groups(value: &str) -> Result<(), Errno> {
    let mut numbers = value.split_ascii_whitespace().map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).ok_or(Errno::EINVAL);
    let (first, last) = (next()?, next()?);
    if i32::try_from(first).is_err() || i32::try_from(last).is_err() {
        return Err(Errno::EINVAL);
    }
    let range = if first > last { [1, 0] } else { [first, last] };
    for (place, group) in PING_GROUPS.iter().zip(range) {
        place.store(group, Ordering::Relaxed);
    }
    Ok(())
}

/// Shows the default size of a socket's buffer, which is also the largest that a program may
/// request.
fn buffer(text: &mut Text) -> Written {
    writeln!(text, "{DEFAULT_BUFFER}")
}
