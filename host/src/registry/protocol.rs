//! What goes over a control socket: docs/control.md describes it for other programs.
//!
//! One JSON object a line, in both directions. A client asks, the run answers in order.

use crate::guest::{HugePages, Killed, Standstill};
use crate::machine::KernelKind;
use crate::qemu::{StoppedBy, Wish};
use ebb_blk::control;
use serde::{Deserialize, Serialize};

/// The version of the protocol. It is raised when a field changes its meaning or goes; clients
/// must ignore fields that they do not know.
pub(crate) const PROTOCOL: u32 = 1;
/// A longer request is refused.
pub(crate) const REQUEST_MAX: usize = 1024;
/// Longer than the longest answer: the map of the largest guest is 262,144 blocks.
pub(crate) const REPLY_MAX: usize = 2 << 20;

/// What a client asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "get", rename_all = "snake_case")]
pub(crate) enum Request {
    /// The figures of now.
    Figures,
    /// The curve of the last minutes, or what was added after a time on it.
    History {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_ms: Option<u64>,
    },
    /// What each pageblock is used for.
    Map,
}

/// What a client asks of a run's disks: one of the requests of `ebb blk serve`'s socket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct DisksRequest {
    pub(crate) disks: control::Request,
}

/// What a client asks of a guest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SetRequest {
    pub(crate) set: Settings,
}

/// What a client asks of a guest's memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ReclaimRequest {
    pub(crate) reclaim: ReclaimStep,
}

/// What a client asks of a guest's virtual CPUs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct CpusRequest {
    pub(crate) cpus: Wish,
}

/// How memory is to be given back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReclaimStep {
    /// The name of a step.
    pub(crate) step: String,
}

/// What can be changed of a guest that runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// The name of a way to give memory back.
    pub(crate) give_back: String,
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) protocol: u32,
    #[serde(flatten)]
    pub(crate) body: Body,
}

/// What an answer holds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Body {
    Figures(Box<Figures>),
    History(History),
    Map(BlockMap),
    Disks(control::Answer),
    /// The guest was asked for this.
    Set(Settings),
    /// The guest was asked for memory; `reclaimed` in the figures shows this number, or a later one, when it is through.
    Reclaim {
        number: u32,
    },
    /// QEMU was asked for this; `standstill` in the figures shows when it is so.
    Cpus(Wish),
    Error(String),
}

/// Where a guest is in its life.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Life {
    Booting,
    Running,
    Exited,
    Panicked,
}

/// The figures of a guest. What its kernel cannot tell is null.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) name: String,
    /// The program and its arguments, shortened.
    pub(crate) program: String,
    /// Process number of the run.
    pub(crate) pid: u32,
    pub(crate) kernel: KernelKind,
    pub(crate) accel: String,
    pub(crate) give_back: String,
    /// What the host keeps the guest's memory in: `huge`, `base` or `pool`; empty where that is not known.
    #[serde(default)]
    pub(crate) host_pages: String,
    pub(crate) life: Life,
    /// How its virtual CPUs stand still; `None` while they run.
    #[serde(default)]
    pub(crate) standstill: Option<Standstill>,
    /// Seconds since 1970 at which the guest's CPUs started.
    pub(crate) started_s: f64,
    /// Since then.
    pub(crate) up_s: f64,
    pub(crate) memory_bytes: u64,
    pub(crate) cpus: u32,
    /// What the guest's allocator has handed out, and the kernel image.
    pub(crate) used_bytes: Option<u64>,
    /// The part of it that files occupy.
    pub(crate) page_cache_bytes: Option<u64>,
    pub(crate) free_bytes: Option<u64>,
    /// What the guest's memory occupies on the host.
    pub(crate) resident_bytes: u64,
    /// Free in the guest and still held of the host.
    pub(crate) gap_bytes: Option<u64>,
    /// QEMU's own memory, beside the guest's.
    pub(crate) overhead_bytes: Option<u64>,
    /// QEMU's part in what it shares with others, the guest's memory left out.
    #[serde(default)]
    pub(crate) overhead_pss_bytes: Option<u64>,
    /// Processes that the guest killed because memory was out.
    #[serde(default)]
    pub(crate) oom_kills: Option<u64>,
    /// The last of them.
    #[serde(default)]
    pub(crate) oom_last: Vec<Killed>,
    /// Sum of all ranges reported so far.
    pub(crate) reported_bytes: Option<u64>,
    /// Sum of all that the host took by itself.
    #[serde(default)]
    pub(crate) taken_bytes: Option<u64>,
    pub(crate) reports: Option<u64>,
    pub(crate) reports_per_s: Option<f64>,
    pub(crate) faults: Option<u64>,
    pub(crate) faults_per_s: Option<f64>,
    /// The last request for memory that the guest is through with.
    #[serde(default)]
    pub(crate) reclaimed: Option<u32>,
    /// The last of them that failed; 0 if none has.
    #[serde(default)]
    pub(crate) reclaim_failed: Option<u32>,
    /// The pools of huge pages, the smaller pages first.
    #[serde(default)]
    pub(crate) huge_pages: Vec<HugePages>,
    /// What the descriptors of their pages would take, where they are given up.
    #[serde(default)]
    pub(crate) huge_descriptors_given_up_bytes: Option<u64>,
}

impl Figures {
    /// The word for how its virtual CPUs stand still; `None` while they run.
    pub(crate) fn standstill_word(&self) -> Option<&'static str> {
        self.standstill.map(|standstill| match standstill.by {
            StoppedBy::Ebb => "paused",
            StoppedBy::Signal => "stopped",
        })
    }
}

/// The curve of the last minutes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct History {
    /// Between two points, unless the host was too busy.
    pub(crate) interval_ms: u64,
    /// In order of time.
    pub(crate) points: Vec<Moment>,
}

/// A point of the curve.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// Since the guest's CPUs started.
    pub(crate) at_ms: u64,
    pub(crate) used_bytes: Option<u64>,
    pub(crate) resident_bytes: u64,
}

/// What each pageblock of a guest is used for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BlockMap {
    /// Bytes of a pageblock.
    pub(crate) block_bytes: u64,
    pub(crate) counts: Counts,
    pub(crate) regions: Vec<Region>,
}

/// Memory without a hole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Region {
    /// Guest-physical address of its first byte.
    pub(crate) start: u64,
    /// One character for each pageblock, upwards: see [`Cell::letter`].
    pub(crate) blocks: String,
}

/// How many pageblocks of each kind there are. Their sum is all of the guest's memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) returned: u64,
    pub(crate) held: u64,
    pub(crate) partial: u64,
    pub(crate) full: u64,
    pub(crate) huge: u64,
    /// Pages of the pool of huge pages of 2 MiB, free and in use.
    #[serde(default)]
    pub(crate) pool_free: u64,
    #[serde(default)]
    pub(crate) pool_used: u64,
    /// Parts of pages of 1 GiB.
    #[serde(default)]
    pub(crate) gib_free: u64,
    #[serde(default)]
    pub(crate) gib_used: u64,
    pub(crate) isolated: u64,
    #[serde(default)]
    pub(crate) moving: u64,
    pub(crate) reserved: u64,
}

/// What one pageblock is used for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cell {
    /// Free, and nothing of it is on the host.
    Returned,
    /// Free, and the host still holds some of it.
    Held,
    /// In use to so many ninths, 1 to 9.
    Partial(u8),
    /// None of its frames is free.
    Full,
    /// Allocated as one huge page.
    Huge,
    /// A page of the pool of huge pages of 2 MiB.
    Pool { free: bool },
    /// Part of a page of that of 1 GiB.
    Gib { free: bool },
    /// Taken out to be reported.
    Isolated,
    /// What is in it moves elsewhere.
    Moving,
    /// Not the allocator's: the kernel image and what describes the memory.
    Reserved,
}

impl Cell {
    /// The character for it.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Returned => '.',
            Self::Held => 'o',
            Self::Partial(level) => char::from(b'0' + level.clamp(1, 9)),
            Self::Full => '#',
            Self::Huge => 'H',
            Self::Pool { free: true } => 'p',
            Self::Pool { free: false } => 'P',
            Self::Gib { free: true } => 'g',
            Self::Gib { free: false } => 'G',
            Self::Isolated => '!',
            Self::Moving => 'm',
            Self::Reserved => 'x',
        }
    }

    /// What the character means; `Reserved` if it is none that we know.
    pub(crate) fn of(letter: char) -> Self {
        match letter {
            '.' => Self::Returned,
            'o' => Self::Held,
            '1'..='9' => Self::Partial(letter.to_digit(10).map_or(1, |level| level.min(9) as u8)),
            '#' => Self::Full,
            'H' => Self::Huge,
            'p' | 'P' => Self::Pool {
                free: letter == 'p',
            },
            'g' | 'G' => Self::Gib {
                free: letter == 'g',
            },
            '!' => Self::Isolated,
            'm' => Self::Moving,
            _ => Self::Reserved,
        }
    }
}

impl Counts {
    /// Counts one more.
    pub(crate) fn add(&mut self, cell: Cell) {
        let count = match cell {
            Cell::Returned => &mut self.returned,
            Cell::Held => &mut self.held,
            Cell::Partial(_) => &mut self.partial,
            Cell::Full => &mut self.full,
            Cell::Huge => &mut self.huge,
            Cell::Pool { free: true } => &mut self.pool_free,
            Cell::Pool { free: false } => &mut self.pool_used,
            Cell::Gib { free: true } => &mut self.gib_free,
            Cell::Gib { free: false } => &mut self.gib_used,
            Cell::Isolated => &mut self.isolated,
            Cell::Moving => &mut self.moving,
            Cell::Reserved => &mut self.reserved,
        };
        *count += 1;
    }
}

impl BlockMap {
    /// All cells, upwards.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell> {
        let letters = self.regions.iter().flat_map(|region| region.blocks.chars());
        letters.map(Cell::of)
    }
}

/// An answer as it goes over the socket.
pub(crate) fn line(body: Body) -> Vec<u8> {
    let reply = Reply {
        protocol: PROTOCOL,
        body,
    };
    // Nothing in it can fail: strings and numbers.
    let mut bytes = serde_json::to_vec(&reply).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_documented() {
        let read = |text| serde_json::from_str::<Request>(text);
        assert_eq!(read(r#"{"get":"figures"}"#).unwrap(), Request::Figures);
        assert_eq!(
            read(r#"{"get":"history","after_ms":5}"#).unwrap(),
            Request::History { after_ms: Some(5) }
        );
        assert_eq!(
            read(r#"{"get":"history"}"#).unwrap(),
            Request::History { after_ms: None }
        );
        assert_eq!(read(r#"{"get":"map","later":1}"#).unwrap(), Request::Map);
        let error = read(r#"{"get":"secrets"}"#).unwrap_err().to_string();
        assert!(error.contains("secrets"), "{error}");
    }

    #[test]
    fn answers_can_be_read_back() {
        let body = Body::History(History {
            interval_ms: 250,
            points: vec![Moment {
                at_ms: 7,
                used_bytes: None,
                resident_bytes: 4096,
            }],
        });
        let bytes = line(body.clone());
        let text = std::str::from_utf8(&bytes).unwrap();
        assert_eq!(
            text,
            "{\"protocol\":1,\"history\":{\"interval_ms\":250,\"points\":\
             [{\"at_ms\":7,\"used_bytes\":null,\"resident_bytes\":4096}]}}\n"
        );
        let reply: Reply = serde_json::from_str(text).unwrap();
        assert_eq!(reply, Reply { protocol: 1, body });
    }

    #[test]
    fn letters_stand_for_cells() {
        let mut cells = vec![
            Cell::Returned,
            Cell::Held,
            Cell::Full,
            Cell::Huge,
            Cell::Pool { free: true },
            Cell::Pool { free: false },
            Cell::Gib { free: true },
            Cell::Gib { free: false },
            Cell::Isolated,
            Cell::Moving,
            Cell::Reserved,
        ];
        cells.extend((1..=9).map(Cell::Partial));
        for cell in cells {
            assert_eq!(Cell::of(cell.letter()), cell);
        }
    }
}
