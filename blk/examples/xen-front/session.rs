//! A device from the front-end's end: its states in xenstore, its rings, its event channels.

use crate::Failed;
use crate::gntalloc::{Access, Gntalloc, Pages};
use ebb_blk::xen::evtchn::{Events, Evtchn, Port};
use ebb_blk::xen::front::{Answer, FrontRing};
use ebb_blk::xen::grants::DomainId;
use ebb_blk::xen::protocol::Abi;
use ebb_blk::xen::state::State;
use ebb_blk::xen::store::{Store, Transaction};
use ebb_blk::xen::xenbus::Xenbus;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The domain of the back-end.
pub(crate) const BACKEND: DomainId = DomainId(0);
/// Time in seconds after which a missing answer is an error.
const PATIENCE_S: i64 = 120;
const NONE: Transaction = Transaction(0);

/// The number, size and layout of rings.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) abi: Abi,
    pub(crate) persistent: bool,
    pub(crate) queues: u32,
    /// Pages of a ring, as a power of two.
    pub(crate) order: u32,
}

/// One ring of one page, with grants that do not stay mapped.
pub(crate) const PLAIN: Setup = Setup {
    abi: Abi::X86_64,
    persistent: false,
    queues: 1,
    order: 0,
};

/// A ring and its event channel.
pub(crate) struct Queue {
    pub(crate) ring: FrontRing<Arc<Pages>>,
    port: Port,
}

/// A device. It has rings while it is connected.
pub(crate) struct Session {
    pub(crate) store: Xenbus,
    pub(crate) gntalloc: Arc<Gntalloc>,
    pub(crate) events: Evtchn,
    folder: String,
    back: String,
    pub(crate) queues: Vec<Queue>,
    pub(crate) abi: Abi,
    next_id: u64,
}

/// Waits until `fd` is readable. Fails after a time, with `what` in the error.
fn await_input(fd: &impl AsFd, what: &str) -> Result<(), Failed> {
    let patience = Timespec {
        tv_sec: PATIENCE_S,
        tv_nsec: 0,
    };
    match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&patience)) {
        Ok(0) => Err(format!("{what} for {PATIENCE_S} s").into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

impl Session {
    /// Opens the device at `folder` in xenstore.
    pub(crate) fn open(folder: &str) -> Result<Self, Failed> {
        let mut store = Xenbus::open()?;
        let back = store.read(NONE, &format!("{folder}/backend"))?;
        let back = back.ok_or_else(|| format!("{folder} names no backend"))?;
        store.watch(&format!("{back}/state"), "state")?;
        Ok(Self {
            store,
            gntalloc: Gntalloc::open()?,
            events: Evtchn::open(BACKEND).map_err(|error| format!("evtchn: {error}"))?,
            folder: folder.to_owned(),
            back,
            queues: Vec::new(),
            abi: Abi::X86_64,
            next_id: 1,
        })
    }

    /// Returns an unused id for a request.
    pub(crate) fn id(&mut self) -> u64 {
        self.next_id += 1;
        // The front-end may use all 64 bits.
        self.next_id | self.next_id << 40
    }

    /// Writes an entry of the front-end.
    pub(crate) fn tell(&mut self, name: &str, value: &str) -> Result<(), Failed> {
        let path = format!("{}/{name}", self.folder);
        Ok(self.store.write(NONE, &path, value)?)
    }

    /// Reads an entry of the back-end. Returns an empty text if it does not exist.
    pub(crate) fn told(&mut self, name: &str) -> Result<String, Failed> {
        let path = format!("{}/{name}", self.back);
        Ok(self.store.read(NONE, &path)?.unwrap_or_default())
    }

    /// Reads the number of sectors of the disk.
    pub(crate) fn sectors(&mut self) -> Result<u64, Failed> {
        Ok(self.told("sectors")?.parse()?)
    }

    /// Sets the front-end's state.
    pub(crate) fn become_state(&mut self, state: State) -> Result<(), Failed> {
        self.tell("state", &state.to_string())
    }

    /// Waits until the back-end is in one of these states.
    pub(crate) fn await_back(&mut self, wanted: &[State]) -> Result<(), Failed> {
        loop {
            let state = State::told(Some(&self.told("state")?));
            if wanted.contains(&state) {
                return Ok(());
            }
            // Events may have arrived with the value, for which the device does not poll readable.
            if self.store.event()?.is_some() {
                continue;
            }
            await_input(
                &self.store,
                &format!("the back-end is {state:?}, not {wanted:?},"),
            )?;
        }
    }

    /// Starts from the beginning and waits until the back-end offers its features.
    pub(crate) fn begin(&mut self) -> Result<(), Failed> {
        self.release();
        self.become_state(State::Initialising)?;
        self.await_back(&[State::InitWait])
    }

    /// Makes rings and writes their entries, but not the state.
    pub(crate) fn prepare(&mut self, setup: Setup) -> Result<(), Failed> {
        self.abi = setup.abi;
        for number in 0..setup.queues {
            let memory = self.pages(1 << setup.order)?;
            let refs = memory.refs().to_vec();
            let port = self.events.offer(BACKEND);
            let port = port.map_err(|error| format!("no event channel: {error}"))?;
            let ring = FrontRing::over(Arc::new(memory), setup.abi);
            self.queues.push(Queue { ring, port });
            let prefix = if setup.queues > 1 {
                format!("queue-{number}/")
            } else {
                String::new()
            };
            if refs.len() == 1 {
                self.tell(&format!("{prefix}ring-ref"), &refs[0].0.to_string())?;
            } else {
                for (index, gref) in refs.iter().enumerate() {
                    self.tell(&format!("{prefix}ring-ref{index}"), &gref.0.to_string())?;
                }
            }
            self.tell(&format!("{prefix}event-channel"), &port.0.to_string())?;
        }
        let protocol = match setup.abi {
            Abi::X86_64 => "x86_64-abi",
            Abi::X86_32 => "x86_32-abi",
        };
        self.tell("protocol", protocol)?;
        self.tell(
            "feature-persistent",
            &u32::from(setup.persistent).to_string(),
        )?;
        self.tell("multi-queue-num-queues", &setup.queues.to_string())?;
        self.tell("ring-page-order", &setup.order.to_string())
    }

    /// Connects with new rings, from any state.
    pub(crate) fn connect(&mut self, setup: Setup) -> Result<(), Failed> {
        self.begin()?;
        self.prepare(setup)?;
        self.become_state(State::Initialised)?;
        self.await_back(&[State::Connected])?;
        self.become_state(State::Connected)
    }

    /// Closes the device in the proper order. The back-end then uses no page of this domain.
    pub(crate) fn close(&mut self) -> Result<(), Failed> {
        self.become_state(State::Closing)?;
        self.await_back(&[State::Closing, State::Closed])?;
        self.become_state(State::Closed)?;
        self.await_back(&[State::Closed])?;
        self.release();
        Ok(())
    }

    /// Drops rings and ports without a change in xenstore.
    pub(crate) fn release(&mut self) {
        for queue in self.queues.drain(..) {
            self.events.unbind(queue.port);
        }
    }

    /// Publishes the requests that were put into a ring, and notifies the back-end if it wants
    /// that.
    pub(crate) fn push(&self, queue: usize) {
        let queue = &self.queues[queue];
        if queue.ring.push() {
            self.events.notify(queue.port);
        }
    }

    /// Notifies the back-end, even if it does not want that.
    pub(crate) fn notify(&self, queue: usize) {
        self.events.notify(self.queues[queue].port);
    }

    /// Waits for `count` answers in a ring. Fails if they do not come in time.
    pub(crate) fn answers(&mut self, queue: usize, count: usize) -> Result<Vec<Answer>, Failed> {
        let mut answers = Vec::new();
        loop {
            let ring = &mut self.queues[queue].ring;
            while answers.len() < count {
                match ring.answer() {
                    Some(answer) => answers.push(answer),
                    None => break,
                }
            }
            if answers.len() == count {
                return Ok(answers);
            }
            if ring.enable_notifications() {
                continue;
            }
            let fd = self.events.fd().ok_or("no event channels")?;
            let missing = count - answers.len();
            await_input(
                &fd,
                &format!("ring {queue} lacks {missing} of {count} answers"),
            )?;
            for port in self.events.pending() {
                self.events.unmask(port);
            }
        }
    }

    /// Puts requests into a ring, which must have space, and waits for their answers.
    pub(crate) fn ask(
        &mut self,
        queue: usize,
        requests: &[Vec<u8>],
    ) -> Result<Vec<Answer>, Failed> {
        let ring = &mut self.queues[queue].ring;
        requests.iter().for_each(|raw| ring.put(raw));
        self.push(queue);
        self.answers(queue, requests.len())
    }

    /// Allocates pages that the back-end may read and write.
    pub(crate) fn pages(&self, count: usize) -> Result<Pages, Failed> {
        let pages = self.gntalloc.grant(BACKEND, count, Access::Write);
        pages.map_err(|error| format!("{count} pages are not granted: {error}").into())
    }
}
