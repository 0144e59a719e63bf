//! The page that the host reads.

use ebb_mm::shared::GuestHeader;

/// Found by the host through its symbol.
#[used]
#[unsafe(export_name = "ebb_guest_header")]
pub static HEADER: GuestHeader = GuestHeader::new();
