//! What can go wrong, with the values that were involved.

use crate::features::Features;
use core::fmt;
use thiserror::Error;
use virtio_drivers::transport::{DeviceStatus, DeviceType};

/// A queue of the device, by its name in the standard.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueueName {
    /// `inflateq`: pages for the balloon.
    Inflate,
    /// `deflateq`: pages from the balloon.
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

/// The device broke the protocol on a queue. The queue is not used again, and what the device held
/// then stays out of use until the device has been reset.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum DeviceFault {
    /// The device returned another buffer than the one it holds.
    #[error("{queue}: the device returned buffer {got}, but holds only {held}")]
    WrongBuffer {
        /// The queue.
        queue: QueueName,
        /// The buffer the device holds.
        held: u16,
        /// The buffer it says it returns.
        got: u16,
    },
    /// The device returned a buffer although it holds none.
    #[error("{queue}: the device returned buffer {got}, but holds none")]
    Unsolicited {
        /// The queue.
        queue: QueueName,
        /// The buffer it says it returns.
        got: u16,
    },
}

/// The device did not confirm a reset within 100,000 reads of its status.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("the device did not confirm a reset: its status is still {status:?}")]
pub struct ResetTimeout {
    /// The status it showed last.
    pub status: DeviceStatus,
}

/// A field of the configuration space could not be read or written.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("configuration field at byte {offset}: {error}")]
pub struct ConfigError {
    /// Byte offset of the field.
    pub offset: usize,
    /// What the transport said.
    pub error: virtio_drivers::Error,
}

/// The driver could not be started.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SetupError {
    /// The device is something else.
    #[error("device type {device_type:?} is not a memory balloon")]
    NotABalloon {
        /// What the transport found.
        device_type: DeviceType,
    },
    /// The device did not reset.
    #[error(transparent)]
    Reset(#[from] ResetTimeout),
    /// The device did not confirm the features.
    #[error("the device refused the features {accepted:?} of its offer {offered:?}")]
    FeaturesRefused {
        /// What it offered.
        offered: Features,
        /// What the driver accepted.
        accepted: Features,
    },
    /// A queue could not be set up.
    #[error("{queue} (queue {index}): {error}")]
    Queue {
        /// The queue.
        queue: QueueName,
        /// Its index.
        index: u16,
        /// What the queue implementation said.
        error: virtio_drivers::Error,
    },
    /// The `Hal` had no page for the request buffers.
    #[error("no memory for the request buffers")]
    NoDmaMemory,
    /// The configuration space is not as it should be.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// An operation on the running driver failed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum BalloonError {
    /// The device broke the protocol.
    #[error(transparent)]
    Fault(#[from] DeviceFault),
    /// The configuration space could not be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A request could not be queued.
    #[error("{queue}: {error}")]
    Queue {
        /// The queue.
        queue: QueueName,
        /// What the queue implementation said.
        error: virtio_drivers::Error,
    },
    /// Pages were asked back that the device wants to keep, and `DEFLATE_ON_OOM` was not
    /// negotiated.
    #[error(
        "the balloon holds {actual} pages of {target} wanted, and deflate-on-OOM was not negotiated"
    )]
    DeflateNotAllowed {
        /// Pages in the balloon.
        actual: u32,
        /// Pages that the device wants in it.
        target: u32,
    },
    /// The device has been reset by [`Balloon::reset`](crate::Balloon::reset).
    #[error("the device has been reset")]
    DeviceReset,
}
