//! A virtqueue that carries one request at a time.
//!
//! Its states are *idle* (the device holds no request), *held* (it holds one) and *faulted* (it
//! returned a buffer that it does not hold). A faulted queue stays faulted until it is dropped. Its
//! request never completes, since the driver cannot know which memory the device still uses.

use crate::error::{BalloonError, DeviceFault, QueueName};
use virtio_drivers::Hal;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::Transport;

/// One virtqueue that carries at most one request at a time, and the state of that request. `SIZE`
/// is the number of descriptors of the ring.
pub(crate) struct RequestQueue<H: Hal, const SIZE: usize> {
    name: QueueName,
    index: u16,
    ring: VirtQueue<H, SIZE>,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Idle,
    Held { token: u16 },
    Faulted(DeviceFault),
}

impl<H: Hal, const SIZE: usize> RequestQueue<H, SIZE> {
    /// Sets up the queue `index` of the device, without requests and with interrupts. `name` names
    /// it in errors. Fails if `virtio-drivers` cannot set it up.
    pub(crate) fn new(
        transport: &mut impl Transport,
        name: QueueName,
        index: u16,
    ) -> virtio_drivers::Result<Self> {
        let ring = VirtQueue::new(transport, index, false, false)?;
        Ok(Self {
            name,
            index,
            ring,
            state: State::Idle,
        })
    }

    /// Returns whether the device holds a request that it may still return. `false` if no request
    /// is in flight, and for a faulted queue.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// Returns whether the device has returned a buffer, the right one or another, that
    /// [`complete`](Self::complete) has not taken yet. Costs one load. Always `false` for a faulted
    /// queue.
    pub(crate) fn has_returned(&self) -> bool {
        !matches!(self.state, State::Faulted(_)) && self.ring.can_pop()
    }

    /// Asks the device to interrupt when it returns a request (`true`, the initial state), or not
    /// to (`false`).
    pub(crate) fn set_interrupts(&mut self, enable: bool) {
        self.ring.set_dev_notify(enable);
    }

    /// Checks that the queue works. Fails with the first fault on every call once the queue is
    /// faulted. Also fails if the device has returned a buffer while it held none, which makes the
    /// queue faulted.
    pub(crate) fn check(&mut self) -> Result<(), DeviceFault> {
        match self.state {
            State::Faulted(fault) => Err(fault),
            // A used entry left here would be taken for the answer to the next request.
            State::Idle => match self.ring.peek_used() {
                Some(got) => Err(self.fault(DeviceFault::Unsolicited {
                    queue: self.name,
                    got,
                })),
                None => Ok(()),
            },
            State::Held { .. } => Ok(()),
        }
    }

    /// Queues a request and notifies the device. `readable` are the buffers that the device reads,
    /// `writable` those that it may write. They must not be empty. Fails, without queueing, if the
    /// queue is faulted, the device has returned a buffer while it held none, or `virtio-drivers`
    /// refuses the request. Panics if the device holds a request already.
    ///
    /// # Safety
    /// The buffers must stay valid, and no code may use them, until [`complete`](Self::complete)
    /// has returned `true` or the device has been reset.
    pub(crate) unsafe fn submit<'a>(
        &mut self,
        transport: &mut impl Transport,
        readable: &'a [&'a [u8]],
        writable: &'a mut [&'a mut [u8]],
    ) -> Result<(), BalloonError> {
        assert!(!self.is_held(), "one request at a time");
        self.check()?;
        // SAFETY: the caller keeps the buffers valid and unused until the request has returned.
        let added = unsafe { self.ring.add(readable, writable) };
        let token = added.map_err(|error| BalloonError::Queue {
            queue: self.name,
            error,
        })?;
        self.state = State::Held { token };
        if self.ring.should_notify() {
            transport.notify(self.index);
        }
        Ok(())
    }

    /// Takes the request back if the device has returned it, and makes the queue idle. Returns
    /// whether it has; `false` also if no request is held. Fails if the device returned another
    /// buffer, or any buffer while it held none. The queue is faulted then, and every later call
    /// fails.
    ///
    /// The length that the device claims to have written is ignored: nothing depends on it, and
    /// devices differ in it.
    ///
    /// # Safety
    /// While a request is held, the buffers must be those that it was submitted with.
    pub(crate) unsafe fn complete<'a>(
        &mut self,
        readable: &'a [&'a [u8]],
        writable: &'a mut [&'a mut [u8]],
    ) -> Result<bool, DeviceFault> {
        self.check()?;
        let State::Held { token: held } = self.state else {
            return Ok(false);
        };
        match self.ring.peek_used() {
            None => return Ok(false),
            Some(got) if got != held => {
                let queue = self.name;
                return Err(self.fault(DeviceFault::WrongBuffer { queue, held, got }));
            }
            Some(_) => {}
        }
        // SAFETY: the token is that of the held request, and the caller passes its buffers.
        match unsafe { self.ring.pop_used(held, readable, writable) } {
            Ok(_claimed_length) => {
                self.state = State::Idle;
                Ok(true)
            }
            // The device changed the used entry after the comparison above.
            Err(_) => {
                let got = self.ring.peek_used().unwrap_or(held);
                let queue = self.name;
                Err(self.fault(DeviceFault::WrongBuffer { queue, held, got }))
            }
        }
    }

    fn fault(&mut self, fault: DeviceFault) -> DeviceFault {
        self.state = State::Faulted(fault);
        fault
    }
}
