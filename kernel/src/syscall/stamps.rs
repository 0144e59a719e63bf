//! The times of messages in control messages (`SO_TIMESTAMP` and its like).

use crate::fs::socket::{Settings, Stamps};
use logic::socket::control::{SOL_SOCKET, Writer};
use machine::arch::clock::{self, Nanos};

/// The numbers of the control messages, which are those of the options that request them.
const TIMESTAMP: u32 = 29;
const TIMESTAMP_NANOS: u32 = 35;
const TIMESTAMPING: u32 = 37;
const NEW_TIMESTAMP: u32 = 63;
const NEW_TIMESTAMP_NANOS: u32 = 64;
const NEW_TIMESTAMPING: u32 = 65;
/// `SOF_TIMESTAMPING_SOFTWARE`: report times that the kernel took.
const TELLS: u32 = 1 << 4;

const SECOND: u64 = 1_000_000_000;

/// Returns the words of a time since 1970: the seconds, and the rest in units of `unit`
/// nanoseconds.
fn words(time: Nanos, unit: u64) -> [u8; 16] {
    let value = u128::from(time.0 / SECOND) | u128::from(time.0 % SECOND / unit) << 64;
    value.to_le_bytes()
}

/// Adds control messages with the time of a received message, if the receiver requested it. `stamp`
/// is the time of sending, or `None` if the receiver had not requested times then. Without it,
/// `SO_TIMESTAMP` and its variants report the present time, and `SO_TIMESTAMPING` reports nothing.
pub(super) fn tell(settings: &Settings, stamp: Option<Nanos>, writer: &mut Writer) {
    const MICROSECOND: u64 = 1000;
    let now = || clock::now().saturating_add(clock::realtime_offset());
    if let Some(stamps) = settings.stamps() {
        let (kind, unit) = match stamps {
            Stamps::Micros => (TIMESTAMP, MICROSECOND),
            Stamps::Nanos => (TIMESTAMP_NANOS, 1),
            Stamps::NewMicros => (NEW_TIMESTAMP, MICROSECOND),
            Stamps::NewNanos => (NEW_TIMESTAMP_NANOS, 1),
        };
        writer.add(SOL_SOCKET, kind, &words(stamp.unwrap_or_else(now), unit));
    }
    for (new, kind) in [(false, TIMESTAMPING), (true, NEW_TIMESTAMPING)] {
        if let Some(stamp) = stamp
            && settings.stamping_of(new) & TELLS != 0
        {
            // The kernel's time, an unused one, and that of the hardware.
            let times = [words(stamp, 1), [0; 16], [0; 16]].concat();
            writer.add(SOL_SOCKET, kind, &times);
        }
    }
}
