//! The messages of a control socket. docs/control.md and docs/json.md describe them for other
//! programs. The comments on fields are the text of docs/json.md.
//!
//! Each message is one JSON object on a line. A client sends requests, and the run answers them in
//! order.

use crate::guest::{HugePages, Killed, Stop};
use crate::machine::KernelKind;
use crate::qemu::{StoppedBy, Wish};
use ebb_blk::control;
use serde::de::IgnoredAny;
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

/// A question for information about a guest. It changes nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "GetRequest"))]
#[serde(tag = "get", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Asks for the current figures.
    Figures,
    /// Asks for the curve of the last five minutes.
    History {
        /// Leaves out the points up to this one, in milliseconds since the start of the guest's
        /// CPUs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after_ms: Option<u64>,
    },
    /// Asks for the use of each pageblock.
    Map,
}

/// A request to the disks of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DisksRequest {
    /// The request, in the form for the socket of `ebb blk serve`.
    pub(crate) disks: control::Request,
}

/// A request to change the settings of a guest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SetRequest {
    /// The new settings.
    pub(crate) set: Settings,
}

/// A request that a guest performs a reclaim step, so that memory goes back to the host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ReclaimRequest {
    /// The step.
    pub(crate) reclaim: ReclaimStep,
}

/// A request to stop or resume the virtual CPUs of a guest.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CpusRequest {
    /// The new state of the virtual CPUs.
    pub(crate) cpus: Wish,
}

/// A question or request to a run, as one line of JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(untagged))]
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
    /// Fails if `line` is none of the questions. The error is that of reading it as the question
    /// whose field it has.
    pub(crate) fn read(line: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Has {
            disks: Option<IgnoredAny>,
            set: Option<IgnoredAny>,
            reclaim: Option<IgnoredAny>,
            cpus: Option<IgnoredAny>,
        }
        let has: Has = serde_json::from_slice(line)?;
        if has.disks.is_some() {
            return serde_json::from_slice(line).map(Self::Disks);
        }
        if has.set.is_some() {
            return serde_json::from_slice(line).map(Self::Set);
        }
        if has.reclaim.is_some() {
            return serde_json::from_slice(line).map(Self::Reclaim);
        }
        if has.cpus.is_some() {
            return serde_json::from_slice(line).map(Self::Cpus);
        }
        serde_json::from_slice(line).map(Self::Get)
    }
}

/// The reclaim step that a guest is to perform.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ReclaimStep {
    /// The name of the step: `free`, `cache` or `compact`. A guest with a stock Linux kernel has
    /// no `compact`.
    pub(crate) step: String,
}

/// The settings of a running guest that can be changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// How free memory goes back to the host: `shared`, `hinting`, `reporting` or `off`.
    pub(crate) give_back: String,
}

/// The answer of a run, as one line of JSON.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Reply {
    /// The version of the protocol, which is 1. It rises when a field changes its meaning or goes,
    /// not when one is added.
    pub(crate) protocol: u32,
    #[serde(flatten)]
    pub(crate) body: Body,
}

/// The content of an answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Body {
    /// The current figures.
    Figures(Box<Figures>),
    /// The curve of the last five minutes.
    History(History),
    /// The use of each pageblock.
    Map(BlockMap),
    /// The answer of the disks, in the form of that of `ebb blk serve`.
    Disks(control::Answer),
    /// The settings that the guest was asked for. `give_back` in the figures shows when it follows.
    Set(Settings),
    /// The guest was asked for memory.
    Reclaim {
        /// The number of the request, which starts with 1 and wraps around at 2³². The step is
        /// done when `reclaimed` in the figures is this number or a later one.
        number: u32,
    },
    /// QEMU was asked to stop or resume the virtual CPUs. `standstill` in the figures shows when
    /// that is done.
    Cpus(Wish),
    /// The reason why the question has no other answer.
    Error(String),
}

/// The state of a guest's kernel and program.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Life {
    /// The program has not started yet.
    Booting,
    /// The program runs.
    Running,
    /// The program has ended.
    Exited,
    /// The kernel has stopped after a fault of its own.
    Panicked,
}

/// The figures of a guest. Those of the guest's kernel may be false: amounts are limited to the
/// guest's memory, and sums since its start are not checked.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Figures {
    /// The name of the guest: that of `--name`, or the program and the process number. Two guests
    /// that were started at the same moment may have the same name.
    pub(crate) name: String,
    /// The program and its arguments, at most 256 characters.
    pub(crate) program: String,
    /// The process number of `ebb run`.
    pub(crate) pid: u32,
    /// The guest's kernel.
    pub(crate) kernel: KernelKind,
    /// The accelerator: `KVM` or `TCG`.
    pub(crate) accel: String,
    /// How free memory goes back to the host now: `shared`, `hinting`, `reporting` or `off`.
    pub(crate) give_back: String,
    /// The host's pages for the guest's memory: `huge`, `base` or `pool`. Empty if unknown.
    #[serde(default)]
    pub(crate) host_pages: String,
    /// The state of the guest's kernel and program.
    pub(crate) life: Life,
    /// The cause that stopped the virtual CPUs. Null while they run.
    #[serde(default)]
    pub(crate) standstill: Option<Stop>,
    /// The time at which the guest's CPUs started, in seconds since 1970.
    pub(crate) started_s: f64,
    /// The seconds from then until the figures were taken.
    pub(crate) up_s: f64,
    /// The guest's RAM.
    pub(crate) memory_bytes: u64,
    /// The number of virtual CPUs.
    pub(crate) cpus: u32,
    /// The memory that the guest uses, without the balloon. With Ebb's kernel: the frames that its
    /// allocator has handed out, plus the kernel image. With Linux: its total memory less its free
    /// memory and its balloon. Null until the guest's kernel tells.
    pub(crate) used_bytes: Option<u64>,
    /// The memory in the guest's balloon, which the host has taken. It is neither used nor free,
    /// but the guest's own tools may show it as used. Null until the guest's kernel tells.
    #[serde(default)]
    pub(crate) balloon_bytes: Option<u64>,
    /// The memory that Linux reserved when it booted, such as its image and page descriptors. It is
    /// neither used nor free. Null until Linux tells, and with Ebb's kernel.
    #[serde(default)]
    pub(crate) reserved_bytes: Option<u64>,
    /// The part of `used_bytes` that is page cache. Null until the guest's kernel tells.
    pub(crate) page_cache_bytes: Option<u64>,
    /// The memory that the guest could allocate at once. Null until the guest's kernel tells.
    pub(crate) free_bytes: Option<u64>,
    /// The guest's memory that is resident on the host, exact to the page.
    pub(crate) resident_bytes: u64,
    /// Memory that is free in the guest and still resident on the host: `resident_bytes` less
    /// `used_bytes` and `reserved_bytes`. Null if `used_bytes` is.
    pub(crate) gap_bytes: Option<u64>,
    /// The resident memory of QEMU without the guest's, at its peak. Null until it is measured.
    pub(crate) overhead_bytes: Option<u64>,
    /// QEMU's proportional share (PSS) of its resident memory, without the guest's memory, at its
    /// peak. Null until it is measured.
    #[serde(default)]
    pub(crate) overhead_pss_bytes: Option<u64>,
    /// The number of processes that the guest's OOM killer has ended. Null if it is unknown: Linux
    /// tells it when the program has ended.
    #[serde(default)]
    pub(crate) oom_kills: Option<u64>,
    /// The last processes that the OOM killer ended, at most eight. Empty for Linux.
    #[serde(default)]
    pub(crate) oom_last: Vec<Killed>,
    /// The sum of all ranges that the guest has reported as free. Null if its kernel does not
    /// tell.
    pub(crate) reported_bytes: Option<u64>,
    /// The sum of all memory that the host has taken by itself. Null for a guest from which the
    /// host takes no memory by itself.
    #[serde(default)]
    pub(crate) taken_bytes: Option<u64>,
    /// The number of reports of free memory so far. Null if the guest's kernel does not tell.
    pub(crate) reports: Option<u64>,
    /// The reports per second over the last two seconds. Null if `reports` is.
    pub(crate) reports_per_s: Option<f64>,
    /// The number of page faults that the guest's kernel has served. Null if it does not tell.
    pub(crate) faults: Option<u64>,
    /// The page faults per second over the last two seconds. Null if `faults` is.
    pub(crate) faults_per_s: Option<f64>,
    /// The number of the last reclaim request that is done; 0 if there was none. Null if the
    /// guest cannot be asked, as with `--icount`.
    #[serde(default)]
    pub(crate) reclaimed: Option<u32>,
    /// The number of the last reclaim request that failed; 0 if none failed. Null if `reclaimed`
    /// is.
    #[serde(default)]
    pub(crate) reclaim_failed: Option<u32>,
    /// The pools of huge pages, the smaller page size first. Empty if the guest's kernel does not
    /// tell.
    #[serde(default)]
    pub(crate) huge_pages: Vec<HugePages>,
    /// The size of the page descriptors that the pools have freed. Null if the guest's kernel does
    /// not free them.
    #[serde(default)]
    pub(crate) huge_descriptors_given_up_bytes: Option<u64>,
}

impl Figures {
    /// Returns the memory that cannot be free: what is used, and what Linux reserved. Returns
    /// `None` until the guest's kernel tells.
    pub(crate) fn kept_bytes(&self) -> Option<u64> {
        let reserved = self.reserved_bytes.unwrap_or(0);
        Some(self.used_bytes?.saturating_add(reserved))
    }

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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct History {
    /// The milliseconds between two points. A busy host may make them longer.
    pub(crate) interval_ms: u64,
    /// The points in order of time.
    pub(crate) points: Vec<Moment>,
}

/// A point of the curve of a guest's memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Moment {
    /// The time since the guest's CPUs started.
    pub(crate) at_ms: u64,
    /// The memory that the guest used. Null until its kernel tells.
    pub(crate) used_bytes: Option<u64>,
    /// The guest's memory that was resident on the host.
    pub(crate) resident_bytes: u64,
}

/// The map of a guest: the use of each pageblock, and the number of pageblocks with each use.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Region {
    /// The guest-physical address of its start.
    pub(crate) start: u64,
    /// One character per pageblock, in order of addresses. For example, `.` is a free one whose
    /// memory is back on the host, and `#` a full one.
    pub(crate) blocks: String,
}

/// The number of pageblocks of each kind. Their sum covers all of the guest's memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Counts {
    /// Pageblocks that are free, with no page resident on the host.
    pub(crate) returned: u64,
    /// Pageblocks that are free, with pages resident on the host.
    pub(crate) held: u64,
    /// Pageblocks that are partly in use.
    pub(crate) partial: u64,
    /// Pageblocks that are completely in use.
    pub(crate) full: u64,
    /// Pageblocks that are allocated as one huge page, in no pool.
    pub(crate) huge: u64,
    /// Pageblocks that are free pages in the pool of huge pages of 2 MiB.
    #[serde(default)]
    pub(crate) pool_free: u64,
    /// Pageblocks that are used pages of this pool.
    #[serde(default)]
    pub(crate) pool_used: u64,
    /// Pageblocks in free pages of the pool of huge pages of 1 GiB.
    #[serde(default)]
    pub(crate) gib_free: u64,
    /// Pageblocks in used pages of this pool.
    #[serde(default)]
    pub(crate) gib_used: u64,
    /// Pageblocks that are isolated from the allocator, to be reported.
    pub(crate) isolated: u64,
    /// Pageblocks whose pages are being migrated.
    #[serde(default)]
    pub(crate) moving: u64,
    /// Pageblocks that the allocator does not manage: its metadata and the kernel image.
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
    fn an_error_is_about_the_field_that_the_question_has() {
        let read = |text: &str| Question::read(text.as_bytes());
        assert!(matches!(read(r#"{"get":"map"}"#), Ok(Question::Get(_))));
        assert!(matches!(read(r#"{"cpus":"pause"}"#), Ok(Question::Cpus(_))));
        for (text, part) in [
            (r#"{"set":{"give_back":7}}"#, "integer `7`"),
            (r#"{"reclaim":{"setp":"free"}}"#, "setp"),
            (r#"{"cpus":"halt"}"#, "halt"),
            (r#"{"disks":{"do":"get","instance":4}}"#, "integer `4`"),
            (r#"{"what":1}"#, "get"),
            ("[]", "invalid length"),
            ("{", "EOF"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
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
