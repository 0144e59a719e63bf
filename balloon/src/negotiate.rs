//! Bringing the device from reset to agreed features (virtio 1.2, 3.1.1).

use crate::config::Options;
use crate::error::{ResetTimeout, SetupError};
use crate::features::Features;
use crate::page::PAGE_SIZE;
use core::hint::spin_loop;
use virtio_drivers::transport::{DeviceStatus, DeviceType, Transport};

/// How often the status is read before a reset counts as failed. Devices that emulators model reset
/// before the write returns; 100,000 reads of a device register are some 100 ms elsewhere.
pub(crate) const RESET_POLLS: u32 = 100_000;

/// What the device offered and the driver accepted.
pub(crate) struct Negotiated {
    pub(crate) offered: Features,
    pub(crate) accepted: Features,
}

/// Resets the device and waits until it says that it has.
pub(crate) fn reset(transport: &mut impl Transport) -> Result<(), ResetTimeout> {
    transport.set_status(DeviceStatus::empty());
    let mut status = transport.get_status();
    for _ in 0..RESET_POLLS {
        if status.is_empty() {
            return Ok(());
        }
        spin_loop();
        status = transport.get_status();
    }
    Err(ResetTimeout { status })
}

/// Resets the device and agrees on features with it. The queues come next, then `DRIVER_OK`.
pub(crate) fn negotiate(
    transport: &mut impl Transport,
    options: &Options,
) -> Result<Negotiated, SetupError> {
    let device_type = transport.device_type();
    // 5 is the balloon; 13 stands for an interface that was never specified, but is what the
    // transports call device 5.
    if !matches!(
        device_type,
        DeviceType::MemoryBallooning | DeviceType::MemoryBalloon
    ) {
        return Err(SetupError::NotABalloon { device_type });
    }
    reset(transport)?;
    let found = DeviceStatus::ACKNOWLEDGE | DeviceStatus::DRIVER;
    transport.set_status(found);
    let offered = Features::from_bits_truncate(transport.read_device_features());
    let accepted = options.choose(offered);
    transport.write_driver_features(accepted.bits());
    transport.set_status(found | DeviceStatus::FEATURES_OK);
    // A legacy device does not know this bit.
    if !transport.requires_legacy_layout()
        && !transport.get_status().contains(DeviceStatus::FEATURES_OK)
    {
        return Err(SetupError::FeaturesRefused { offered, accepted });
    }
    #[expect(clippy::cast_possible_truncation, reason = "4096")]
    transport.set_guest_page_size(PAGE_SIZE as u32);
    Ok(Negotiated { offered, accepted })
}
