//! The device model. It reads rings in the layout of the standard. It handles requests at once or
//! when the test says so, and correctly or with faults that the test chooses.

use ebb_balloon::Features;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// The way in which the device numbers its queues.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Numbering {
    /// As in the standard.
    Standard,
    /// Without gaps over the features that the device offers, as QEMU does.
    WithoutGaps,
}

/// The purpose of a queue.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Role {
    Inflate,
    Deflate,
    Stats,
    Hint,
    Reporting,
}

/// A descriptor chain that the driver has made available.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) head: u16,
    pub(crate) readable: Vec<u8>,
    pub(crate) writable: Vec<(u64, u32)>,
}

/// A virtqueue as the device sees it: its size, its addresses, and the device's positions.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    pub(crate) max_size: u32,
    pub(crate) size: u32,
    descriptors: u64,
    driver_area: u64,
    device_area: u64,
    seen: u16,
    used: u16,
    pub(crate) notified: u32,
}

impl Ring {
    /// Sets the queue up with the driver's addresses.
    pub(crate) fn set(&mut self, size: u32, descriptors: u64, driver_area: u64, device_area: u64) {
        assert!(size <= self.max_size);
        *self = Self {
            max_size: self.max_size,
            size,
            descriptors,
            driver_area,
            device_area,
            ..Self::default()
        };
    }

    /// Returns whether the driver has set the queue up.
    pub(crate) fn is_set(&self) -> bool {
        self.descriptors != 0
    }

    fn read<T: Copy>(address: u64) -> T {
        // SAFETY: the address is in the rings or buffers that the driver handed over.
        unsafe { with_exposed_provenance::<T>(address as usize).read_volatile() }
    }

    fn write<T>(address: u64, value: T) {
        // SAFETY: the address is in the used ring or in reported memory.
        unsafe { with_exposed_provenance_mut::<T>(address as usize).write_volatile(value) }
    }

    /// Takes the next chain that the driver made available. Returns `None` if there is none.
    fn pop(&mut self, lies: bool) -> Option<Chain> {
        if self.seen == Self::read::<u16>(self.driver_area + 2) {
            return None;
        }
        let slot = u64::from(self.seen) % u64::from(self.size);
        self.seen = self.seen.wrapping_add(1);
        let head = Self::read::<u16>(self.driver_area + 4 + 2 * slot);
        let mut chain = Chain {
            head,
            readable: Vec::new(),
            writable: Vec::new(),
        };
        let mut index = head;
        for _ in 0..self.size {
            let at = self.descriptors + 16 * u64::from(index);
            let (address, len) = (Self::read::<u64>(at), Self::read::<u32>(at + 8));
            let (flags, next) = (Self::read::<u16>(at + 12), Self::read::<u16>(at + 14));
            assert_eq!(flags & 4, 0, "indirect descriptors were not negotiated");
            assert!(len != 0 || lies);
            if flags & 2 != 0 {
                chain.writable.push((address, len));
            } else {
                assert!(chain.writable.is_empty(), "readable after writable");
                let bytes = (0..u64::from(len)).map(|at| Self::read::<u8>(address + at));
                chain.readable.extend(bytes);
            }
            if flags & 1 == 0 {
                return Some(chain);
            }
            index = next;
        }
        panic!("the chain does not end");
    }

    /// Adds a used entry with any values.
    pub(crate) fn push(&mut self, id: u32, len: u32) {
        let slot = u64::from(self.used) % u64::from(self.size);
        Self::write(self.device_area + 4 + 8 * slot, id);
        Self::write(self.device_area + 8 + 8 * slot, len);
        self.set_used(self.used.wrapping_add(1));
    }

    /// Sets the used index, without regard to the entries.
    pub(crate) fn set_used(&mut self, index: u16) {
        self.used = index;
        Self::write(self.device_area + 2, index);
    }

    /// Returns whether the driver asked not to be interrupted.
    pub(crate) fn wants_no_interrupt(&self) -> bool {
        Self::read::<u16>(self.driver_area) & 1 != 0
    }
}

/// The state of the modelled device, which tests read and change.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) offered: Features,
    pub(crate) accepted: Option<u64>,
    pub(crate) status: u32,
    pub(crate) config: [u8; 16],
    pub(crate) config_len: usize,
    pub(crate) config_accesses: usize,
    pub(crate) rings: BTreeMap<u16, Ring>,
    pub(crate) roles: BTreeMap<u16, Role>,
    pub(crate) interrupt: u32,
    /// Whether requests are handled when the driver notifies the device. Otherwise a test calls
    /// [`Device::work_on`].
    pub(crate) at_once: bool,
    pub(crate) refuse_features: bool,
    pub(crate) resets: bool,
    /// Whether the device's answers are random, so that later requests need not be consistent.
    pub(crate) lies: bool,
    pub(crate) legacy: bool,
    /// Targets that the next reads return, before the one in the configuration space.
    pub(crate) targets: VecDeque<u32>,
    /// The length that used entries claim.
    pub(crate) claimed_len: u32,
    pub(crate) balloon: BTreeSet<u32>,
    pub(crate) requests: Vec<(Role, usize)>,
    pub(crate) stats: Vec<Vec<(u16, u64)>>,
    pub(crate) stats_head: Option<u16>,
    pub(crate) reports: Vec<Vec<(u64, u32)>>,
    pub(crate) poison_at_driver_ok: Option<u32>,
}

const DRIVER_OK: u32 = 4;

impl Device {
    /// Returns a device with the queues of its features.
    pub(crate) fn new(offered: Features, numbering: Numbering) -> Self {
        let optional = [
            (Features::STATS_VQ, Role::Stats, 2),
            (Features::FREE_PAGE_HINT, Role::Hint, 3),
            (Features::REPORTING, Role::Reporting, 4),
        ];
        let mut roles = BTreeMap::from([(0, Role::Inflate), (1, Role::Deflate)]);
        for (feature, role, standard) in optional {
            if offered.contains(feature) {
                let next = u16::try_from(roles.len()).unwrap();
                let index = if numbering == Numbering::Standard {
                    standard
                } else {
                    next
                };
                roles.insert(index, role);
            }
        }
        let ring = |(&index, &role): (&u16, &Role)| {
            let max_size = if role == Role::Reporting { 32 } else { 128 };
            (
                index,
                Ring {
                    max_size,
                    ..Ring::default()
                },
            )
        };
        Self {
            offered,
            accepted: None,
            status: 0,
            config: [0; 16],
            config_len: 16,
            config_accesses: 0,
            rings: roles.iter().map(ring).collect(),
            roles,
            interrupt: 0,
            at_once: true,
            refuse_features: false,
            resets: true,
            lies: false,
            legacy: false,
            targets: VecDeque::new(),
            claimed_len: 0,
            balloon: BTreeSet::new(),
            requests: Vec::new(),
            stats: Vec::new(),
            stats_head: None,
            reports: Vec::new(),
            poison_at_driver_ok: None,
        }
    }

    /// Returns the 32-bit field at `offset` in the configuration space.
    pub(crate) fn field(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.config[offset..offset + 4].try_into().unwrap())
    }

    /// Returns the size of the balloon in pages that the driver has written.
    pub(crate) fn actual(&self) -> u32 {
        self.field(4)
    }

    /// Sets the wanted size of the balloon in pages and raises a configuration interrupt.
    pub(crate) fn set_target(&mut self, pages: u32) {
        self.config[..4].copy_from_slice(&pages.to_le_bytes());
        self.interrupt |= 2;
    }

    /// Returns the index of a queue. Panics if the device does not have it.
    pub(crate) fn index(&self, role: Role) -> u16 {
        let found = self.roles.iter().find(|&(_, &other)| other == role);
        *found.expect("the device has this queue").0
    }

    /// Returns the virtqueue with this purpose. Panics if the device does not have it.
    pub(crate) fn ring(&mut self, role: Role) -> &mut Ring {
        let index = self.index(role);
        self.rings.get_mut(&index).unwrap()
    }

    /// Handles a write to the device status. 0 resets the device.
    pub(crate) fn set_status(&mut self, status: u32) {
        if status == 0 {
            if !self.resets {
                return;
            }
            for ring in self.rings.values_mut() {
                let max_size = ring.max_size;
                *ring = Ring {
                    max_size,
                    ..Ring::default()
                };
            }
            self.stats_head = None;
            self.balloon.clear();
        }
        if status & DRIVER_OK != 0 {
            self.poison_at_driver_ok = Some(self.field(12));
        }
        self.status = status;
        if self.refuse_features {
            self.status &= !8;
        }
    }

    /// Handles the driver's notification of the queue `index`.
    pub(crate) fn notify(&mut self, index: u16) {
        assert!(self.status & DRIVER_OK != 0, "notified before DRIVER_OK");
        let ring = self.rings.get_mut(&index).expect("a queue that exists");
        assert!(ring.is_set());
        ring.notified += 1;
        // Statistics are returned only when the test asks for them.
        if self.roles[&index] == Role::Stats {
            self.take_stats();
        } else if self.at_once {
            self.work_on(self.roles[&index]);
        }
    }

    /// Handles one request of a queue. Returns `false` if there was none.
    pub(crate) fn work_on(&mut self, role: Role) -> bool {
        if !self.ring(role).is_set() {
            return false;
        }
        let Some(chain) = self.take_chain(role) else {
            return false;
        };
        match role {
            Role::Inflate => self.inflate(&chain, true),
            Role::Deflate => self.inflate(&chain, false),
            Role::Reporting => self.discard(&chain),
            Role::Stats | Role::Hint => panic!("not handled here: {role:?}"),
        }
        let len = self.claimed_len;
        self.ring(role).push(chain.head.into(), len);
        if !self.ring(role).wants_no_interrupt() {
            self.interrupt |= 1;
        }
        true
    }

    fn take_chain(&mut self, role: Role) -> Option<Chain> {
        let lies = self.lies;
        self.ring(role).pop(lies)
    }

    /// Handles a request that puts pages into the balloon, or takes them out if `inflate` is
    /// `false`.
    fn inflate(&mut self, chain: &Chain, inflate: bool) {
        assert!(chain.writable.is_empty());
        let (numbers, rest) = chain.readable.as_chunks::<4>();
        assert!(rest.is_empty() && numbers.len() <= 256);
        assert!(!numbers.is_empty() || self.lies);
        for &number in numbers {
            let number = u32::from_le_bytes(number);
            let changed = if inflate {
                self.balloon.insert(number)
            } else {
                self.balloon.remove(&number)
            };
            assert!(
                changed || self.lies,
                "page {number} was not where the driver says"
            );
        }
        let role = if inflate {
            Role::Inflate
        } else {
            Role::Deflate
        };
        self.requests.push((role, numbers.len()));
    }

    /// Handles a report: records its ranges and clears the pages.
    fn discard(&mut self, chain: &Chain) {
        assert!(chain.readable.is_empty());
        assert!((1..=32).contains(&chain.writable.len()));
        for &(address, len) in &chain.writable {
            assert_eq!((address % 4096, len % 4096), (0, 0));
            // The first byte of each page represents its contents.
            for page in (0..u64::from(len)).step_by(4096) {
                Ring::write(address + page, 0u8);
            }
        }
        self.reports.push(chain.writable.clone());
    }

    /// Records the values that the driver has sent and holds the buffer.
    fn take_stats(&mut self) {
        while let Some(chain) = self.take_chain(Role::Stats) {
            assert!(
                self.stats_head.is_none() || self.lies,
                "at most one buffer in the statsq"
            );
            assert!(chain.writable.is_empty());
            let (entries, rest) = chain.readable.as_chunks::<10>();
            assert!(rest.is_empty());
            assert!(!entries.is_empty() || self.lies);
            let entry = |entry: &[u8; 10]| {
                let (tag, value) = entry.split_first_chunk::<2>().unwrap();
                (
                    u16::from_le_bytes(*tag),
                    u64::from_le_bytes(value.try_into().unwrap()),
                )
            };
            self.stats.push(entries.iter().map(entry).collect());
            self.stats_head = Some(chain.head);
        }
    }

    /// Returns the statistics buffer to ask for new values. Returns `false` if the device holds
    /// none.
    pub(crate) fn ask_stats(&mut self) -> bool {
        let Some(head) = self.stats_head.take() else {
            return false;
        };
        self.ring(Role::Stats).push(head.into(), 0);
        self.interrupt |= 1;
        true
    }
}
