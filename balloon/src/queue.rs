//! A virtqueue that carries one request at a time.
//!
//! States: *idle* (the device holds nothing) → *held* (it holds one request) → idle; from each of
//! them → *faulted*, when the device returns what it does not hold. A faulted queue stays so: the
//! request that it carried never completes, since nobody can tell what the device still does.

use crate::error::{BalloonError, DeviceFault, QueueName};
use virtio_drivers::Hal;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::Transport;

/// See the module.
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

    /// Whether the device holds a request that it may still return.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// Whether the device has returned something that has not been looked at. Costs one load.
    pub(crate) fn has_returned(&self) -> bool {
        !matches!(self.state, State::Faulted(_)) && self.ring.can_pop()
    }

    /// Whether the device should interrupt when it returns a request.
    pub(crate) fn set_interrupts(&mut self, enable: bool) {
        self.ring.set_dev_notify(enable);
    }

    /// Checks that the device has kept to the protocol so far.
    pub(crate) fn check(&mut self) -> Result<(), DeviceFault> {
        match self.state {
            State::Faulted(fault) => Err(fault),
            // A stale entry would pass for the answer to the next request.
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

    /// Queues a request and tells the device. The queue must be idle, the buffers not empty.
    ///
    /// # Safety
    /// The buffers must stay valid, and nothing may use them, until [`complete`](Self::complete)
    /// has returned true or the device has been reset.
    pub(crate) unsafe fn submit<'a>(
        &mut self,
        transport: &mut impl Transport,
        readable: &'a [&'a [u8]],
        writable: &'a mut [&'a mut [u8]],
    ) -> Result<(), BalloonError> {
        assert!(!self.is_held(), "one request at a time");
        self.check()?;
        // SAFETY: the caller keeps the buffers as they are until the request is back.
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

    /// Takes the request back if the device has returned it. The length that the device claims to
    /// have written is not looked at: nothing depends on it, and devices differ in what they put
    /// there.
    ///
    /// # Safety
    /// While a request is held, the buffers must be the ones that it was submitted with.
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
            // The device changed the entry after it was compared above.
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
