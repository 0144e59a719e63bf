//! The errors of this crate, with the values involved.

use crate::features::Features;
use core::fmt;
use thiserror::Error;
use virtio_drivers::transport::{DeviceStatus, DeviceType};

/// A queue of the device. Each is displayed by its name in the standard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueueName {
    /// `inflateq`: pages that go into the balloon.
    Inflate,
    /// `deflateq`: pages that leave the balloon.
    Deflate,
    /// `statsq`: memory statistics.
    Stats,
    /// `reporting_vq`: free page reports.
    Reporting,
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inflate => "inflateq",
            Self::Deflate => "deflateq",
            Self::Stats => "statsq",
            Self::Reporting => "reporting_vq",
        })
    }
}

/// A violation of the protocol on one queue by the device. The driver uses the queue no more. The
/// memory that the device then held stays out of use until the device has been reset.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum DeviceFault {
    /// The device returned a different buffer from the one that it holds.
    #[error("{queue}: the device returned buffer {got}, but holds only {held}")]
    WrongBuffer {
        /// The queue.
        queue: QueueName,
        /// The buffer (first descriptor index) that the device holds.
        held: u16,
        /// The buffer that the device claims to return.
        got: u16,
    },
    /// The device returned a buffer although it holds none.
    #[error("{queue}: the device returned buffer {got}, but holds none")]
    Unsolicited {
        /// The queue.
        queue: QueueName,
        /// The buffer that the device claims to return.
        got: u16,
    },
}

/// The device did not confirm a reset within 100,000 reads of its status.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("the device did not confirm a reset: its status is still {status:?}")]
pub struct ResetTimeout {
    /// The status that the last read returned.
    pub status: DeviceStatus,
}

/// The transport could not read or write a field of the configuration space.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("configuration field at byte {offset}: {error}")]
pub struct ConfigError {
    /// Byte offset of the field in the configuration space.
    pub offset: usize,
    /// The transport's error.
    pub error: virtio_drivers::Error,
}

/// The reason why [`Balloon::new`](crate::Balloon::new) could not start the driver.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SetupError {
    /// The device is not a memory balloon.
    #[error("device type {device_type:?} is not a memory balloon")]
    NotABalloon {
        /// The device type that the transport reports.
        device_type: DeviceType,
    },
    /// The device did not confirm the reset.
    #[error(transparent)]
    Reset(#[from] ResetTimeout),
    /// The device did not accept the driver's choice of features (`FEATURES_OK` stayed clear).
    #[error("the device refused the features {accepted:?} of its offer {offered:?}")]
    FeaturesRefused {
        /// The features that the device offered.
        offered: Features,
        /// The features that the driver accepted.
        accepted: Features,
    },
    /// A queue could not be set up.
    #[error("{queue} (queue {index}): {error}")]
    Queue {
        /// The queue.
        queue: QueueName,
        /// The queue's index on the device.
        index: u16,
        /// The error of `virtio-drivers`.
        error: virtio_drivers::Error,
    },
    /// The `Hal` had no page for the request buffers.
    #[error("no memory for the request buffers")]
    NoDmaMemory,
    /// The transport could not access the configuration space.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// The reason why an operation on the running driver failed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum BalloonError {
    /// The device broke the protocol on a queue.
    #[error(transparent)]
    Fault(#[from] DeviceFault),
    /// The transport could not access the configuration space.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A request could not be put into its queue.
    #[error("{queue}: {error}")]
    Queue {
        /// The queue.
        queue: QueueName,
        /// The error of `virtio-drivers`.
        error: virtio_drivers::Error,
    },
    /// The guest asked for pages that the device still wants in the balloon, and `DEFLATE_ON_OOM`
    /// was not negotiated.
    #[error(
        "the balloon holds {actual} pages of {target} wanted, and deflate-on-OOM was not negotiated"
    )]
    DeflateNotAllowed {
        /// Pages in the balloon.
        actual: u32,
        /// Pages that the device wants in the balloon.
        target: u32,
    },
    /// The device has been reset by [`Balloon::reset`](crate::Balloon::reset).
    #[error("the device has been reset")]
    DeviceReset,
}
