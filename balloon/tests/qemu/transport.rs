//! virtio-mmio (virtio 1.2, 4.2) over QEMU's `qtest` protocol, modern and legacy.

use crate::machine::{Bus, Machine};
use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use virtio_drivers::{PhysAddr, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The address of microvm's first virtio-mmio slot.
const FIRST_SLOT: u64 = 0xfeb0_0000;
const SLOT_BYTES: u64 = 512;
const SLOTS: u64 = 24;

const BALLOON: u32 = 5;
const LEGACY: u32 = 1;

/// Register offsets.
const VERSION: u64 = 0x004;
const DEVICE_ID: u64 = 0x008;
const DEVICE_FEATURES: u64 = 0x010;
const DEVICE_FEATURES_SEL: u64 = 0x014;
const DRIVER_FEATURES: u64 = 0x020;
const DRIVER_FEATURES_SEL: u64 = 0x024;
const LEGACY_PAGE_SIZE: u64 = 0x028;
const QUEUE_SEL: u64 = 0x030;
const QUEUE_NUM_MAX: u64 = 0x034;
const QUEUE_NUM: u64 = 0x038;
const LEGACY_QUEUE_ALIGN: u64 = 0x03c;
const LEGACY_QUEUE_PFN: u64 = 0x040;
const QUEUE_READY: u64 = 0x044;
const QUEUE_NOTIFY: u64 = 0x050;
const INTERRUPT_STATUS: u64 = 0x060;
const INTERRUPT_ACK: u64 = 0x064;
const STATUS: u64 = 0x070;
const QUEUE_DESC: u64 = 0x080;
const QUEUE_DRIVER: u64 = 0x090;
const QUEUE_DEVICE: u64 = 0x0a0;
const CONFIG: u64 = 0x100;

/// The registers of one virtio-mmio device, reached through qtest.
#[derive(Debug)]
pub(crate) struct QtestTransport {
    bus: Bus,
    slot: u64,
    legacy: bool,
}

impl QtestTransport {
    /// Returns the transport of the machine's balloon.
    pub(crate) fn find(machine: &Machine) -> Self {
        let bus = machine.bus();
        let slots = (0..SLOTS).map(|slot| FIRST_SLOT + slot * SLOT_BYTES);
        let slot = slots
            .into_iter()
            .find(|slot| bus.read(slot + DEVICE_ID) == BALLOON)
            .unwrap();
        let legacy = bus.read(slot + VERSION) == LEGACY;
        Self { bus, slot, legacy }
    }

    fn read(&self, register: u64) -> u32 {
        self.bus.read(self.slot + register)
    }

    fn write(&self, register: u64, value: u32) {
        self.bus.write(self.slot + register, value);
    }

    fn write_address(&self, register: u64, address: PhysAddr) {
        self.write(register, address as u32);
        self.write(register + 4, (address >> 32) as u32);
    }
}

impl Transport for QtestTransport {
    fn device_type(&self) -> DeviceType {
        self.read(DEVICE_ID).try_into().unwrap()
    }

    fn read_device_features(&mut self) -> u64 {
        self.write(DEVICE_FEATURES_SEL, 0);
        let low = self.read(DEVICE_FEATURES);
        self.write(DEVICE_FEATURES_SEL, 1);
        u64::from(self.read(DEVICE_FEATURES)) << 32 | u64::from(low)
    }

    fn write_driver_features(&mut self, driver_features: u64) {
        self.write(DRIVER_FEATURES_SEL, 0);
        self.write(DRIVER_FEATURES, driver_features as u32);
        self.write(DRIVER_FEATURES_SEL, 1);
        self.write(DRIVER_FEATURES, (driver_features >> 32) as u32);
    }

    fn max_queue_size(&mut self, queue: u16) -> u32 {
        self.write(QUEUE_SEL, queue.into());
        self.read(QUEUE_NUM_MAX)
    }

    fn notify(&mut self, queue: u16) {
        self.write(QUEUE_NOTIFY, queue.into());
    }

    fn get_status(&self) -> DeviceStatus {
        DeviceStatus::from_bits_retain(self.read(STATUS))
    }

    fn set_status(&mut self, status: DeviceStatus) {
        self.write(STATUS, status.bits());
    }

    fn set_guest_page_size(&mut self, guest_page_size: u32) {
        if self.legacy {
            self.write(LEGACY_PAGE_SIZE, guest_page_size);
        }
    }

    fn requires_legacy_layout(&self) -> bool {
        self.legacy
    }

    fn queue_set(
        &mut self,
        queue: u16,
        size: u32,
        desc: PhysAddr,
        driver: PhysAddr,
        device: PhysAddr,
    ) {
        self.write(QUEUE_SEL, queue.into());
        self.write(QUEUE_NUM, size);
        if self.legacy {
            self.write(LEGACY_QUEUE_ALIGN, 4096);
            self.write(LEGACY_QUEUE_PFN, (desc / 4096) as u32);
        } else {
            self.write_address(QUEUE_DESC, desc);
            self.write_address(QUEUE_DRIVER, driver);
            self.write_address(QUEUE_DEVICE, device);
            self.write(QUEUE_READY, 1);
        }
    }

    fn queue_unset(&mut self, _queue: u16) {
        unreachable!("a reset does it")
    }

    fn queue_used(&mut self, queue: u16) -> bool {
        self.write(QUEUE_SEL, queue.into());
        self.read(if self.legacy {
            LEGACY_QUEUE_PFN
        } else {
            QUEUE_READY
        }) != 0
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        let pending = self.read(INTERRUPT_STATUS);
        self.write(INTERRUPT_ACK, pending);
        InterruptStatus::from_bits_truncate(pending)
    }

    fn read_config_generation(&self) -> u32 {
        unreachable!("no field needs it")
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T> {
        let value = self.read(CONFIG + offset as u64);
        Ok(T::read_from_bytes(&value.to_le_bytes()).unwrap())
    }

    fn write_config_space<T: IntoBytes + Immutable>(&mut self, offset: usize, value: T) -> Result {
        let bytes = value.as_bytes().try_into().unwrap();
        self.write(CONFIG + offset as u64, u32::from_le_bytes(bytes));
        Ok(())
    }
}
