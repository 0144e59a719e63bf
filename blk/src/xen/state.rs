//! The states of a device's two ends in xenstore, and the actions of the back-end that follow from
//! them.
//!
//! | front-end | back-end | |
//! |---|---|---|
//! | Initialising | InitWait | features are offered |
//! | Initialised | Connected | rings are mapped, events are bound, requests are served |
//! | Connected | Connected | |
//! | Closing | Closing | |
//! | Closed | Closed | rings are disconnected; the device ends if the toolstack wants that |
//! | Initialising | InitWait | the front-end starts again |

use std::fmt;

/// A state of one end of a device, with the numbers of xenbus.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum State {
    /// The end does not exist yet, or not any more.
    Unknown = 0,
    /// Not set up.
    Initialising = 1,
    /// It waits for the other end.
    InitWait = 2,
    /// It has written the entries that the other end needs.
    Initialised = 3,
    /// In use.
    Connected = 4,
    /// It wants to close the connection.
    Closing = 5,
    /// It has closed the connection.
    Closed = 6,
}

impl State {
    /// Parses the value of a `state` entry in xenstore, which the other end may have written.
    /// Returns `Unknown` for `None` and for other values than 1 to 6.
    pub fn told(value: Option<&str>) -> Self {
        match value.map(str::trim) {
            Some("1") => Self::Initialising,
            Some("2") => Self::InitWait,
            Some("3") => Self::Initialised,
            Some("4") => Self::Connected,
            Some("5") => Self::Closing,
            Some("6") => Self::Closed,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", *self as u8)
    }
}

/// The facts about a device that decide about the back-end's next action.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DeviceStates {
    /// The state of the front-end; [`State::Unknown`] if it is gone.
    pub front: State,
    /// The state of the back-end. The toolstack may write it, too.
    pub back: State,
    /// Whether the toolstack wants the device to exist.
    pub online: bool,
    /// Whether the front-end's rings are mapped.
    pub mapped: bool,
    /// Whether mapping the rings has failed since features were last offered.
    pub refused: bool,
}

/// The next action of the back-end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing.
    Stay,
    /// Disconnect the rings, if there are any. Write the features and the state InitWait.
    Offer,
    /// Map the rings and bind the event channels. Write the state Connected, unless that or Closing
    /// was written before a restart.
    Connect,
    /// Write this state.
    Tell(State),
    /// Finish requests, disconnect the rings, write the state Closed.
    Close,
    /// As [`Action::Close`]; then end the instance.
    End,
}

/// Returns the action that `states` requires of the back-end. If the actions are carried out one
/// after the other, they end with [`Action::Stay`] or [`Action::End`].
pub fn next(states: DeviceStates) -> Action {
    let DeviceStates {
        front,
        back,
        online,
        mapped,
        refused,
    } = states;
    match front {
        State::Unknown if !online => Action::End,
        // The guest is gone or has not started. The toolstack decides whether the device goes on.
        State::Unknown if mapped => Action::Close,
        State::Unknown => Action::Stay,
        _ if !online && matches!(back, State::Unknown | State::Initialising) => Action::End,
        State::Initialising if !online => match back {
            State::Closed => Action::End,
            _ => Action::Close,
        },
        // The front-end starts from the beginning, from any earlier state.
        State::Initialising if mapped => Action::Offer,
        State::Initialising if back == State::InitWait => Action::Stay,
        State::Initialising => Action::Offer,
        State::InitWait => Action::Stay,
        State::Initialised | State::Connected | State::Closing => {
            // A front-end that is closing may still have written requests, so a successor serves
            // its rings, too.
            let served = front != State::Closing || back >= State::Connected;
            if !mapped && !refused && served && back <= State::Closing {
                Action::Connect
            } else if back < State::Closing && (front == State::Closing || !online || refused) {
                Action::Tell(State::Closing)
            } else {
                Action::Stay
            }
        }
        State::Closed if !online => Action::End,
        State::Closed if mapped || back != State::Closed => Action::Close,
        State::Closed => Action::Stay,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [State; 7] = [
        State::Unknown,
        State::Initialising,
        State::InitWait,
        State::Initialised,
        State::Connected,
        State::Closing,
        State::Closed,
    ];

    /// Returns the situation after `action` is carried out.
    fn after(action: Action, before: DeviceStates) -> DeviceStates {
        let (mapped, back) = match action {
            Action::Stay | Action::End => return before,
            Action::Offer => (false, State::InitWait),
            Action::Connect => (true, before.back.max(State::Connected)),
            Action::Tell(state) => (before.mapped, state),
            Action::Close => (false, State::Closed),
        };
        DeviceStates {
            back,
            mapped,
            ..before
        }
    }

    /// Carries out actions until the situation settles.
    fn settled(mut states: DeviceStates) -> (DeviceStates, Action) {
        for _ in 0..4 {
            let action = next(states);
            if matches!(action, Action::Stay | Action::End) {
                return (states, action);
            }
            states = after(action, states);
        }
        panic!("{states:?} does not settle");
    }

    #[test]
    fn every_situation_settles() {
        for front in ALL {
            for back in ALL {
                for online in [false, true] {
                    for mapped in [false, true] {
                        let states = DeviceStates {
                            front,
                            back,
                            online,
                            mapped,
                            refused: false,
                        };
                        let (end, action) = settled(states);
                        let gone = matches!(front, State::Unknown | State::Closed);
                        assert!(!(gone && end.mapped && action == Action::Stay), "{end:?}");
                        assert!(!gone || online || action == Action::End, "{end:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_life_from_start_to_end() {
        let mut now = DeviceStates {
            front: State::Initialising,
            back: State::Initialising,
            online: true,
            mapped: false,
            refused: false,
        };
        let mut see = |front: State, online: bool, expected: State, mapped: bool| {
            (now.front, now.online) = (front, online);
            let (then, action) = settled(now);
            assert_eq!((then.back, then.mapped), (expected, mapped), "{front:?}");
            now = then;
            action
        };
        see(State::Initialising, true, State::InitWait, false);
        see(State::Initialised, true, State::Connected, true);
        see(State::Connected, true, State::Connected, true);
        see(State::Closing, true, State::Closing, true);
        see(State::Closed, true, State::Closed, false);
        // The front-end starts again, and then restarts without closing first.
        see(State::Initialising, true, State::InitWait, false);
        see(State::Initialised, true, State::Connected, true);
        see(State::Initialising, true, State::InitWait, false);
        see(State::Initialised, true, State::Connected, true);
        // The toolstack removes the device.
        see(State::Connected, false, State::Closing, true);
        see(State::Closing, false, State::Closing, true);
        assert_eq!(see(State::Closed, false, State::Closing, true), Action::End);
    }

    #[test]
    fn a_restarted_back_end_goes_on_where_its_predecessor_was() {
        let found = DeviceStates {
            front: State::Connected,
            back: State::Connected,
            online: true,
            mapped: false,
            refused: false,
        };
        assert_eq!(next(found), Action::Connect);
        let waiting = DeviceStates {
            front: State::Initialised,
            back: State::InitWait,
            ..found
        };
        assert_eq!(next(waiting), Action::Connect);
        let closing = DeviceStates {
            back: State::Closing,
            ..found
        };
        assert_eq!(
            next(closing),
            Action::Connect,
            "what it still writes is not lost"
        );
        let hopeless = DeviceStates {
            refused: true,
            ..found
        };
        assert_eq!(next(hopeless), Action::Tell(State::Closing));
    }
}
