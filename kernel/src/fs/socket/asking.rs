//! What a receiver asks its senders to add to messages: credentials, and the time of sending.

use super::inbox::{WITH_CREDENTIALS, WITH_STAMP};
use super::settings::Stamps;
use super::state::Socket;
use logic::errno::Errno;

/// `SOF_TIMESTAMPING_RX_SOFTWARE`.
const RECEIVE_STAMPS: u32 = 1 << 3;
/// All `SOF_TIMESTAMPING_*` but `TX_SOFTWARE`, `TX_SCHED` and `TX_ACK`, which ask for the time of
/// sending.
const KNOWN_STAMPING: u32 = 0xffff & !(1 << 1 | 1 << 8 | 1 << 9);

impl Socket {
    /// Sets the option `SO_PASSCRED`: received messages come with the sender's credentials.
    pub fn set_pass_credentials(&self, on: bool) {
        self.settings().pass_credentials.set(on);
        self.inbox.ask(WITH_CREDENTIALS, on);
    }

    /// Sets the form in which received messages carry their time. With `None` they carry no time.
    pub fn set_stamps(&self, stamps: Option<Stamps>) {
        let number = stamps.map_or(0, |stamps| stamps as u32);
        self.settings().stamps.set(number);
        self.ask_for_stamps();
    }

    /// Sets the flags of `SO_TIMESTAMPING_NEW` if `new`, else of `SO_TIMESTAMPING_OLD`.
    ///
    /// # Errors
    /// Fails with `EINVAL` if a flag is unknown, or requests software time stamps of sent messages.
    pub fn set_stamping(&self, flags: u32, new: bool) -> Result<(), Errno> {
        if flags & !KNOWN_STAMPING != 0 {
            return Err(Errno::EINVAL);
        }
        self.settings().stamping.set(flags);
        self.settings().new_stamping.set(new);
        self.ask_for_stamps();
        Ok(())
    }

    fn ask_for_stamps(&self) {
        let settings = self.settings();
        let asks = settings.stamps().is_some() || settings.stamping.get() & RECEIVE_STAMPS != 0;
        self.inbox.ask(WITH_STAMP, asks);
    }
}
