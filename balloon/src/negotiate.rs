//! The start of the device, from reset to negotiated features (virtio 1.2, 3.1.1).

use crate::config::Options;
use crate::error::{ResetTimeout, SetupError};
use crate::features::Features;
use crate::page::PAGE_SIZE;
use core::hint::spin_loop;
use virtio_drivers::transport::{DeviceStatus, DeviceType, Transport};

/// The number of reads of the device's status after which a reset counts as failed. Emulated
/// devices finish the reset before the write returns. On other devices 100,000 register reads take
/// some 100 ms.
pub(crate) const RESET_POLLS: u32 = 100_000;

/// Two sets of feature bits: those that the device offered, as far as this driver knows them, and
/// those of them that the driver accepted.
pub(crate) struct Negotiated {
    pub(crate) offered: Features,
    pub(crate) accepted: Features,
}

/// Resets the device and waits until its status is zero. Fails if it is not zero after
/// [`RESET_POLLS`] further reads.
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

/// Resets the device and negotiates features with it, up to `FEATURES_OK`. The caller then sets up
/// the queues and sets `DRIVER_OK`. Tells a legacy device the page size. Returns the features that
/// the device offered and those that the driver accepted.
///
/// Fails if the device is no balloon, does not confirm the reset, or refuses the features. The
/// caller must then mark the device as failed.
pub(crate) fn negotiate(
    transport: &mut impl Transport,
    options: &Options,
) -> Result<Negotiated, SetupError> {
    let device_type = transport.device_type();
    // `MemoryBallooning` is number 5, the balloon. `MemoryBalloon` is number 13, which was never
    // specified, but which the transports return for device 5.
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
    // Legacy devices do not have this bit.
    if !transport.requires_legacy_layout()
        && !transport.get_status().contains(DeviceStatus::FEATURES_OK)
    {
        return Err(SetupError::FeaturesRefused { offered, accepted });
    }
    #[expect(clippy::cast_possible_truncation, reason = "4096")]
    transport.set_guest_page_size(PAGE_SIZE as u32);
    Ok(Negotiated { offered, accepted })
}
