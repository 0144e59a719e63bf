//! The messages of a control socket. docs/control.md describes them for other programs.
//!
//! Each message is one JSON object on a line. A client sends requests, and the run answers them in
//! order.

use crate::guest::{HugePages, Killed, Stop};
use crate::machine::KernelKind;
use crate::qemu::{StoppedBy, Wish};
use ebb_blk::control;
use serde::{Deserialize, Serialize};

/// The version of the protocol on control sockets. It is raised when a field changes its meaning or
/// is removed. Clients must ignore fields that they do not know.
pub(crate) const PROTOCOL: u32 = 1;
/// The largest size of a request in bytes, without its newline. A longer request is answered with
/// an error, and the client is disconnected.
pub(crate) const REQUEST_MAX: usize = 1024;
/// The largest size of an answer in bytes that a client accepts. The map of the largest guest has
/// 262,144 pageblocks, with one character each.
pub(crate) const REPLY_MAX: usize = 2 << 20;

/// A request for information about a guest, which changes nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "get", rename_all = "snake_case")]
pub(crate) enum Request {
    /// The current figures.
    Figures,
    /// The curve of the last minutes, or only the points after `after_ms`, in milliseconds since
    /// the guest's start.
    History {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_ms: Option<u64>,
    },
    /// The use of each pageblock.
    Map,
}

/// A request to the disks of a run. The inner request is the same as on the socket of `ebb blk
/// serve`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct DisksRequest {
    pub(crate) disks: control::Request,
}

/// A request to change the settings of a guest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SetRequest {
    pub(crate) set: Settings,
}

/// A request that a guest performs a reclaim step, so that memory goes back to the host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ReclaimRequest {
    pub(crate) reclaim: ReclaimStep,
}

/// A request to stop or resume the virtual CPUs of a guest.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct CpusRequest {
    pub(crate) cpus: Wish,
}

/// A question or request to a run, as one line of JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Question {
    Get(Request),
    Disks(DisksRequest),
    Set(SetRequest),
    Reclaim(ReclaimRequest),
    Cpus(CpusRequest),
}

impl Question {
    /// Reads a question from the JSON in `line`. Fields that are not known are ignored, except in
    /// the objects of `disks`, `set` and `reclaim`.
    ///
    /// # Errors
    /// Fails if `line` is none of the questions. The error is that of reading it as a [`Request`].
    pub(crate) fn read(line: &[u8]) -> serde_json::Result<Self> {
        if let Ok(request) = serde_json::from_slice(line) {
            return Ok(Self::Disks(request));
        }
        if let Ok(request) = serde_json::from_slice(line) {
            return Ok(Self::Set(request));
        }
        if let Ok(request) = serde_json::from_slice(line) {
            return Ok(Self::Reclaim(request));
        }
        if let Ok(request) = serde_json::from_slice(line) {
            return Ok(Self::Cpus(request));
        }
        serde_json::from_slice(line).map(Self::Get)
    }
}

/// The reclaim step that a guest is to perform.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReclaimStep {
    /// The name of the step.
    pub(crate) step: String,
}

/// The settings of a running guest that can be changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// The name of a mode of giving memory back.
    pub(crate) give_back: String,
}

/// An answer to a request, as one line of JSON.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// The version of the protocol: [`PROTOCOL`].
    pub(crate) protocol: u32,
    #[serde(flatten)]
    pub(crate) body: Body,
}

/// The content of an answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Body {
    Figures(Box<Figures>),
    History(History),
    Map(BlockMap),
    Disks(control::Answer),
    /// The guest was asked to change these settings.
    Set(Settings),
    /// The guest was asked for memory. When the step is done, `reclaimed` in the figures is this
    /// number or a later one.
    Reclaim {
        number: u32,
    },
    /// QEMU was asked to stop or resume the virtual CPUs. `standstill` in the figures shows when
    /// that is done.
    Cpus(Wish),
    Error(String),
}

/// The state of a guest's kernel and program.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Life {
    Booting,
    Running,
    Exited,
    Panicked,
}

/// The figures of a guest. Figures that its kernel cannot provide are null.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// The name of the guest.
    pub(crate) name: String,
    /// The program and its arguments, shortened.
    pub(crate) program: String,
    /// The process number of the run.
    pub(crate) pid: u32,
    pub(crate) kernel: KernelKind,
    /// The accelerator: `KVM` or `TCG`.
    pub(crate) accel: String,
    /// The mode in which free memory returns to the host.
    pub(crate) give_back: String,
    /// The host's pages for the guest's memory: `huge`, `base` or `pool`. Empty if unknown.
    #[serde(default)]
    pub(crate) host_pages: String,
    /// The state of the guest's kernel and program.
    pub(crate) life: Life,
    /// The cause that stopped the virtual CPUs. `None` while they run.
    #[serde(default)]
    pub(crate) standstill: Option<Stop>,
    /// The time at which the guest's CPUs started, in seconds since 1970.
    pub(crate) started_s: f64,
    /// The seconds since then.
    pub(crate) up_s: f64,
    /// The guest's RAM.
    pub(crate) memory_bytes: u64,
    /// The number of virtual CPUs.
    pub(crate) cpus: u32,
    /// The memory that the guest's allocator has handed out, plus the kernel image.
    pub(crate) used_bytes: Option<u64>,
    /// The part of `used_bytes` that is page cache.
    pub(crate) page_cache_bytes: Option<u64>,
    /// The memory that the guest could allocate at once.
    pub(crate) free_bytes: Option<u64>,
    /// The guest's memory that is resident on the host.
    pub(crate) resident_bytes: u64,
    /// Memory that is free in the guest and still resident on the host.
    pub(crate) gap_bytes: Option<u64>,
    /// QEMU's own memory, without the guest's.
    pub(crate) overhead_bytes: Option<u64>,
    /// QEMU's proportional share (PSS) of its resident memory, without the guest's memory.
    #[serde(default)]
    pub(crate) overhead_pss_bytes: Option<u64>,
    /// The number of processes that the guest's OOM killer has ended.
    #[serde(default)]
    pub(crate) oom_kills: Option<u64>,
    /// The last processes that the OOM killer ended.
    #[serde(default)]
    pub(crate) oom_last: Vec<Killed>,
    /// The sum of all ranges that the guest has reported as free.
    pub(crate) reported_bytes: Option<u64>,
    /// The sum of all memory that the host has taken by itself.
    #[serde(default)]
    pub(crate) taken_bytes: Option<u64>,
    /// The number of reports to the host so far.
    pub(crate) reports: Option<u64>,
    /// The reports per second over the last seconds.
    pub(crate) reports_per_s: Option<f64>,
    /// The number of page faults that the guest has served.
    pub(crate) faults: Option<u64>,
    /// The page faults per second over the last seconds.
    pub(crate) faults_per_s: Option<f64>,
    /// The number of the last reclaim request that is done.
    #[serde(default)]
    pub(crate) reclaimed: Option<u32>,
    /// The number of the last reclaim request that failed; 0 if none failed.
    #[serde(default)]
    pub(crate) reclaim_failed: Option<u32>,
    /// The pools of huge pages, the smaller page size first.
    #[serde(default)]
    pub(crate) huge_pages: Vec<HugePages>,
    /// The size of the page descriptors that the pools have freed, if the guest frees them.
    #[serde(default)]
    pub(crate) huge_descriptors_given_up_bytes: Option<u64>,
}

impl Figures {
    /// Returns the word for a guest whose virtual CPUs are stopped: `paused` if ebb stopped them,
    /// `stopped` if a signal has stopped QEMU. Returns `None` while they run.
    pub(crate) fn standstill_word(&self) -> Option<&'static str> {
        self.standstill.map(|standstill| match standstill.by {
            StoppedBy::Ebb => "paused",
            StoppedBy::Signal => "stopped",
        })
    }
}

/// The curve of a guest's used and resident memory in the last five minutes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct History {
    /// The milliseconds between two points. A busy host may make them longer.
    pub(crate) interval_ms: u64,
    /// The points in order of time.
    pub(crate) points: Vec<Moment>,
}

/// A point of the curve of a guest's memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Moment {
    /// The milliseconds since the guest's CPUs started.
    pub(crate) at_ms: u64,
    /// As in [`Figures`].
    pub(crate) used_bytes: Option<u64>,
    /// As in [`Figures`].
    pub(crate) resident_bytes: u64,
}

/// The map of a guest: the use of each pageblock, and the number of pageblocks with each use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BlockMap {
    /// The size of a pageblock in bytes.
    pub(crate) block_bytes: u64,
    /// The number of pageblocks with each use.
    pub(crate) counts: Counts,
    /// The regions of guest memory, in order of addresses.
    pub(crate) regions: Vec<Region>,
}

/// A range of guest memory without holes, and the use of its pageblocks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Region {
    /// The guest-physical address of its first byte.
    pub(crate) start: u64,
    /// One character per pageblock, in order of addresses: see [`Cell::letter`].
    pub(crate) blocks: String,
}

/// The number of pageblocks of each kind. Their sum covers all of the guest's memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Pageblocks with the use [`Cell::Returned`]. The fields below are named after the other uses.
    pub(crate) returned: u64,
    pub(crate) held: u64,
    pub(crate) partial: u64,
    pub(crate) full: u64,
    pub(crate) huge: u64,
    /// Pages in the pool of huge pages of 2 MiB, free and in use.
    #[serde(default)]
    pub(crate) pool_free: u64,
    #[serde(default)]
    pub(crate) pool_used: u64,
    /// Pageblocks of pages of 1 GiB in their pool, free and in use.
    #[serde(default)]
    pub(crate) gib_free: u64,
    #[serde(default)]
    pub(crate) gib_used: u64,
    pub(crate) isolated: u64,
    #[serde(default)]
    pub(crate) moving: u64,
    pub(crate) reserved: u64,
}

/// The use of one pageblock of a guest, and for free ones whether the host holds memory for it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cell {
    /// Free, and no page of it is resident on the host.
    Returned,
    /// Free, and some pages are resident on the host.
    Held,
    /// Partly in use. The operand is the part in ninths, 1 to 9.
    Partial(u8),
    /// Completely in use.
    Full,
    /// Allocated as one huge page.
    Huge,
    /// A page in the pool of huge pages of 2 MiB.
    Pool { free: bool },
    /// A part of a page in the pool of huge pages of 1 GiB.
    Gib { free: bool },
    /// Isolated from the allocator, to be reported to the host.
    Isolated,
    /// Its pages are being migrated elsewhere.
    Moving,
    /// Not managed by the allocator: the kernel image and the metadata.
    Reserved,
}

impl Cell {
    /// Returns the character for this use in [`Region::blocks`]. A part in ninths outside of 1 to 9
    /// counts as the nearest of these.
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

    /// Returns the use for a character of [`Region::blocks`]. Returns `Reserved` for an unknown
    /// character.
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
    /// Counts one more pageblock with the use `cell`.
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
    /// Returns the use of all pageblocks in order of addresses, without the holes between regions.
    pub(crate) fn cells(&self) -> impl Iterator<Item = Cell> {
        let letters = self.regions.iter().flat_map(|region| region.blocks.chars());
        letters.map(Cell::of)
    }
}

/// Returns an answer with the content `body` as a line of JSON with a newline at its end.
pub(crate) fn line(body: Body) -> Vec<u8> {
    let reply = Reply {
        protocol: PROTOCOL,
        body,
    };
    // Serialisation cannot fail, because the answer has only strings and numbers.
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
