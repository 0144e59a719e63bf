//! The routes of the loopback interface (`struct rtmsg`), as on a Linux system without other
//! interfaces.

use super::address::{AF_INET, AF_INET6, Ip};
use super::attribute::attribute;
use super::packet::LOOPBACK;
use alloc::vec::Vec;

/// The table of local addresses.
const RT_TABLE_LOCAL: u8 = 255;
/// The kernel created the route.
const RTPROT_KERNEL: u8 = 2;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
const RTN_BROADCAST: u8 = 3;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_CACHEINFO: u16 = 12;
const RTA_TABLE: u16 = 15;
const RTA_PREF: u16 = 20;

/// Returns the `struct rtmsg` of a route, followed by the table attribute. The arguments are its
/// address family, the length of its prefix in bits, its scope (`RT_SCOPE_*`) and its type
/// (`RTN_*`).
fn head(family: u16, length: u8, scope: u8, kind: u8) -> Vec<u8> {
    // Families have small numbers.
    let family = u8::try_from(family).unwrap_or(0);
    let table = RT_TABLE_LOCAL;
    let mut body = [family, length, 0, 0, table, RTPROT_KERNEL, scope, kind].to_vec();
    body.extend_from_slice(&[0; 4]);
    attribute(&mut body, RTA_TABLE, &u32::from(table).to_le_bytes());
    body
}

/// Returns the routes of `family`, or of both families if `family` is neither IPv4 nor IPv6. Each
/// route is a `struct rtmsg` followed by its attributes.
pub(super) fn all(family: u16) -> Vec<Vec<u8>> {
    let mut routes = Vec::new();
    if family != AF_INET6 {
        for (ip, length, scope, kind) in [
            ([127, 0, 0, 0], 8, RT_SCOPE_HOST, RTN_LOCAL),
            ([127, 0, 0, 1], 32, RT_SCOPE_HOST, RTN_LOCAL),
            ([127, 255, 255, 255], 32, RT_SCOPE_LINK, RTN_BROADCAST),
        ] {
            let mut body = head(AF_INET, length, scope, kind);
            attribute(&mut body, RTA_DST, &ip);
            attribute(&mut body, RTA_PREFSRC, &[127, 0, 0, 1]);
            attribute(&mut body, RTA_OIF, &LOOPBACK.to_le_bytes());
            routes.push(body);
        }
    }
    if family != AF_INET {
        let mut body = head(AF_INET6, 128, RT_SCOPE_UNIVERSE, RTN_LOCAL);
        attribute(&mut body, RTA_DST, &Ip::LOCAL6.0);
        attribute(&mut body, RTA_PRIORITY, &[0; 4]);
        attribute(&mut body, RTA_OIF, &LOOPBACK.to_le_bytes());
        attribute(&mut body, RTA_CACHEINFO, &[0; 32]);
        attribute(&mut body, RTA_PREF, &[0]);
        routes.push(body);
    }
    routes
}
