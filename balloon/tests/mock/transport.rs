//! The transport between the driver and the device model.

use crate::device::{Device, Numbering};
use crate::guest::Page;
use crate::hal::TestHal;
use ebb_balloon::{Balloon, Features, Options, SetupError};
use std::cell::{RefCell, RefMut};
use std::rc::Rc;
use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use virtio_drivers::{Error, PhysAddr, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The driver over the device model.
pub(crate) type Driver = Balloon<TestHal, MockTransport, Page>;

/// The feature that every modern device offers.
pub(crate) const MODERN: Features = Features::VERSION_1;

/// A handle to a device, with which the test inspects and controls it.
#[derive(Clone, Debug)]
pub(crate) struct Machine(Rc<RefCell<Device>>);

impl Machine {
    /// Returns a device that numbers its queues without gaps.
    pub(crate) fn new(offered: Features) -> Self {
        Self::numbered(offered, Numbering::WithoutGaps)
    }

    /// Returns a device with these features and this numbering of its queues.
    pub(crate) fn numbered(offered: Features, numbering: Numbering) -> Self {
        Self(Rc::new(RefCell::new(Device::new(
            offered | MODERN,
            numbering,
        ))))
    }

    /// Returns the device's state.
    pub(crate) fn device(&self) -> RefMut<'_, Device> {
        self.0.borrow_mut()
    }

    /// Starts a driver for the device.
    pub(crate) fn start(&self, options: Options) -> std::result::Result<Driver, SetupError> {
        Driver::new(self.transport(DeviceType::MemoryBalloon), options)
    }

    /// Starts a driver with the default options. Panics if that fails.
    pub(crate) fn driver(&self) -> Driver {
        self.start(Options::default()).unwrap()
    }

    /// Returns a transport to the device that reports this device type.
    pub(crate) fn transport(&self, device_type: DeviceType) -> MockTransport {
        MockTransport {
            device: self.0.clone(),
            device_type,
        }
    }
}

/// A transport to the device model.
#[derive(Debug)]
pub(crate) struct MockTransport {
    device: Rc<RefCell<Device>>,
    device_type: DeviceType,
}

impl MockTransport {
    fn device(&self) -> RefMut<'_, Device> {
        self.device.borrow_mut()
    }
}

impl Transport for MockTransport {
    fn device_type(&self) -> DeviceType {
        self.device_type
    }

    fn read_device_features(&mut self) -> u64 {
        // Includes bits that the driver does not know.
        self.device().offered.bits() | 1 << 28 | 1 << 29 | 1 << 62
    }

    fn write_driver_features(&mut self, driver_features: u64) {
        self.device().accepted = Some(driver_features);
    }

    fn max_queue_size(&mut self, queue: u16) -> u32 {
        self.device()
            .rings
            .get(&queue)
            .map_or(0, |ring| ring.max_size)
    }

    fn notify(&mut self, queue: u16) {
        self.device().notify(queue);
    }

    fn get_status(&self) -> DeviceStatus {
        DeviceStatus::from_bits_retain(self.device().status)
    }

    fn set_status(&mut self, status: DeviceStatus) {
        self.device().set_status(status.bits());
    }

    fn set_guest_page_size(&mut self, guest_page_size: u32) {
        assert_eq!(guest_page_size, 4096);
    }

    fn requires_legacy_layout(&self) -> bool {
        self.device().legacy
    }

    fn queue_set(
        &mut self,
        queue: u16,
        size: u32,
        desc: PhysAddr,
        avail: PhysAddr,
        used: PhysAddr,
    ) {
        let mut device = self.device();
        device
            .rings
            .get_mut(&queue)
            .unwrap()
            .set(size, desc, avail, used);
    }

    fn queue_unset(&mut self, _queue: u16) {}

    fn queue_used(&mut self, queue: u16) -> bool {
        self.device()
            .rings
            .get(&queue)
            .is_some_and(|ring| ring.is_set())
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        InterruptStatus::from_bits_truncate(std::mem::take(&mut self.device().interrupt))
    }

    fn read_config_generation(&self) -> u32 {
        unreachable!("no field needs it, and a device could keep a reader waiting with it")
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T> {
        let mut device = self.device();
        device.config_accesses += 1;
        let end = offset + size_of::<T>();
        if end > device.config_len {
            return Err(Error::ConfigSpaceTooSmall);
        }
        if offset == 0
            && let Some(target) = device.targets.pop_front()
        {
            return Ok(T::read_from_bytes(&target.to_le_bytes()).unwrap());
        }
        Ok(T::read_from_bytes(&device.config[offset..end]).unwrap())
    }

    fn write_config_space<T: IntoBytes + Immutable>(&mut self, offset: usize, value: T) -> Result {
        let mut device = self.device();
        device.config_accesses += 1;
        let end = offset + size_of::<T>();
        if end > device.config_len {
            return Err(Error::ConfigSpaceTooSmall);
        }
        assert_eq!(size_of::<T>(), 4, "fields are written whole");
        value.write_to(&mut device.config[offset..end]).unwrap();
        Ok(())
    }
}
