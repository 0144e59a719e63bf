//! The states of a device's two ends in xenstore, and what the back-end does about them.
//!
//! | front-end | back-end | |
//! |---|---|---|
//! | Initialising | InitWait | features are offered |
//! | Initialised | Connected | rings are mapped, events are bound, requests are served |
//! | Connected | Connected | |
//! | Closing | Closing | |
//! | Closed | Closed | all of the front-end's is given up; gone if the toolstack wants that |
//! | Initialising | InitWait | it comes back |

use std::fmt;

/// A state, by xenbus's numbers.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum State {
    /// No device yet, or none any more.
    Unknown = 0,
    /// Not set up.
    Initialising = 1,
    /// Waits for the other end.
    InitWait = 2,
    /// Has told what the other end needs.
    Initialised = 3,
    /// In use.
    Connected = 4,
    /// Wants to end.
    Closing = 5,
    /// Has ended.
    Closed = 6,
}

impl State {
    /// What xenstore says, which the other end may have written: anything else is unknown.
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

/// How a device stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Situation {
    /// What the front-end's end says; [`State::Unknown`] if it is gone.
    pub front: State,
    /// What ours says; the toolstack may write to it too.
    pub back: State,
    /// Whether the toolstack wants the device.
    pub online: bool,
    /// Whether the front-end's rings are mapped.
    pub mapped: bool,
    /// Whether they could not be, since features were last offered.
    pub refused: bool,
}

/// What is to be done next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing.
    Stay,
    /// Give the front-end's rings up, if there are any; tell of features, then InitWait.
    Offer,
    /// Map the rings, bind the events; tell that the device is Connected, unless it says so or
    /// that it is closing already, from before a restart.
    Connect,
    /// Tell this.
    Tell(State),
    /// Finish requests, give all up, tell Closed.
    Close,
    /// As [`Action::Close`], and never come back.
    End,
}

/// What is to be done about `situation`. Done over and over it comes to [`Action::Stay`] or
/// [`Action::End`].
pub fn next(situation: Situation) -> Action {
    let Situation {
        front,
        back,
        online,
        mapped,
        refused,
    } = situation;
    match front {
        State::Unknown if !online => Action::End,
        // The guest is gone, or not there yet; the toolstack will say.
        State::Unknown if mapped => Action::Close,
        State::Unknown => Action::Stay,
        _ if !online && matches!(back, State::Unknown | State::Initialising) => Action::End,
        State::Initialising if !online => match back {
            State::Closed => Action::End,
            _ => Action::Close,
        },
        // It starts from the beginning, whatever was before.
        State::Initialising if mapped => Action::Offer,
        State::Initialising if back == State::InitWait => Action::Stay,
        State::Initialising => Action::Offer,
        State::InitWait => Action::Stay,
        State::Initialised | State::Connected | State::Closing => {
            // Who closes may still write: a successor serves its rings too.
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

#[cfg(all(test, not(loom)))]
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

    /// What carrying an action out makes of a situation.
    fn after(action: Action, before: Situation) -> Situation {
        let (mapped, back) = match action {
            Action::Stay | Action::End => return before,
            Action::Offer => (false, State::InitWait),
            Action::Connect => (true, before.back.max(State::Connected)),
            Action::Tell(state) => (before.mapped, state),
            Action::Close => (false, State::Closed),
        };
        Situation {
            back,
            mapped,
            ..before
        }
    }

    fn settled(mut situation: Situation) -> (Situation, Action) {
        for _ in 0..4 {
            let action = next(situation);
            if matches!(action, Action::Stay | Action::End) {
                return (situation, action);
            }
            situation = after(action, situation);
        }
        panic!("{situation:?} does not settle");
    }

    #[test]
    fn every_situation_settles() {
        for front in ALL {
            for back in ALL {
                for online in [false, true] {
                    for mapped in [false, true] {
                        let situation = Situation {
                            front,
                            back,
                            online,
                            mapped,
                            refused: false,
                        };
                        let (end, action) = settled(situation);
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
        let mut now = Situation {
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
        // It comes back, and is restarted without a word.
        see(State::Initialising, true, State::InitWait, false);
        see(State::Initialised, true, State::Connected, true);
        see(State::Initialising, true, State::InitWait, false);
        see(State::Initialised, true, State::Connected, true);
        // The toolstack takes it away.
        see(State::Connected, false, State::Closing, true);
        see(State::Closing, false, State::Closing, true);
        assert_eq!(see(State::Closed, false, State::Closing, true), Action::End);
    }

    #[test]
    fn a_restarted_back_end_goes_on_where_its_predecessor_was() {
        let found = Situation {
            front: State::Connected,
            back: State::Connected,
            online: true,
            mapped: false,
            refused: false,
        };
        assert_eq!(next(found), Action::Connect);
        let waiting = Situation {
            front: State::Initialised,
            back: State::InitWait,
            ..found
        };
        assert_eq!(next(waiting), Action::Connect);
        let closing = Situation {
            back: State::Closing,
            ..found
        };
        assert_eq!(
            next(closing),
            Action::Connect,
            "what it still writes is not lost"
        );
        let hopeless = Situation {
            refused: true,
            ..found
        };
        assert_eq!(next(hopeless), Action::Tell(State::Closing));
    }
}
