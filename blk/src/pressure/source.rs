//! What notices that memory is tight.
//!
//! The kernel's pressure stall information is waited for, not sampled: a trigger on
//! `/proc/pressure/memory`, and where the process lives in a cgroup of its own also on that
//! cgroup's `memory.pressure` and `memory.events`. Where the kernel has none of them,
//! `MemAvailable` is compared with a watermark ten times a second.

use super::gate::{Gate, Watermark};
use super::registry::Registry;
use crate::sandbox::keep_capabilities;
use crate::time::{Clock, Micros};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::thread::CapabilitySet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Tasks that stalled for 2 % of a window. The kernel looks ten times in one, so it is the shortest
/// that there is; unprivileged processes may have windows of whole two seconds only.
const TRIGGERS: [&str; 2] = ["some 10000 500000\0", "some 40000 2000000\0"];
/// How often `MemAvailable` is read.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Longest file of the kernel's that is read here.
const MAX_TEXT: u64 = 64 << 10;

/// Counters in `memory.events` whose growth means that the cgroup ran into a limit.
const LIMIT_EVENTS: [&str; 4] = ["high", "max", "oom", "oom_kill"];

/// What tells us of pressure.
#[derive(Debug)]
pub enum Source {
    /// Files of the kernel's that are waited for.
    Stall(Vec<Trigger>),
    /// Available memory against marks.
    Available {
        /// `/proc/meminfo`.
        meminfo: File,
        /// The marks.
        watermark: Watermark,
    },
}

/// A file that polls as exceptional when memory is tight.
#[derive(Debug)]
pub struct Trigger {
    path: PathBuf,
    file: File,
    /// For `memory.events`: the sum of its counters when last looked.
    counters: Option<u64>,
    /// It fired since it was armed.
    fired: bool,
}

impl Source {
    /// The best source that this system offers this process.
    ///
    /// # Errors
    /// If there is not even `/proc/meminfo`.
    pub fn find() -> io::Result<Self> {
        let mut triggers = Vec::new();
        triggers.extend(Trigger::stall(Path::new("/proc/pressure/memory")));
        if let Some(cgroup) = own_cgroup() {
            triggers.extend(Trigger::stall(&cgroup.join("memory.pressure")));
            triggers.extend(Trigger::events(&cgroup.join("memory.events")));
        }
        if !triggers.is_empty() {
            return Ok(Self::Stall(triggers));
        }
        let mut meminfo = File::open("/proc/meminfo")?;
        let text = read_again(&mut meminfo)?;
        let total = field_bytes(&text, "MemTotal:")
            .ok_or_else(|| io::Error::other("/proc/meminfo has no MemTotal"))?;
        let watermark = Watermark::for_machine(total);
        Ok(Self::Available { meminfo, watermark })
    }

    /// Waits for the source and reports each event that passes the gate, until `stop` polls
    /// readable.
    fn run(
        mut self,
        stop: &OwnedFd,
        clock: Clock,
        mut event: impl FnMut(Micros),
    ) -> io::Result<()> {
        let mut gate = Gate::default();
        loop {
            let timeout = match &self {
                Self::Stall(_) => None,
                Self::Available { .. } => Timespec::try_from(SAMPLE_INTERVAL).ok(),
            };
            let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
            if let Self::Stall(triggers) = &self {
                fds.extend(
                    triggers
                        .iter()
                        .map(|t| PollFd::new(&t.file, PollFlags::PRI)),
                );
            }
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let ready: Vec<_> = fds.iter().map(PollFd::revents).collect();
            if !ready[0].is_empty() {
                return Ok(());
            }
            let noticed = match &mut self {
                Self::Stall(triggers) => {
                    let mut noticed = false;
                    let mut gone = Vec::new();
                    for (index, flags) in ready[1..].iter().enumerate() {
                        if flags.contains(PollFlags::PRI) {
                            noticed |= triggers[index].really();
                            triggers[index].fired = true;
                        }
                        // A cgroup that is removed, and a trigger with it, polls as an error
                        // for ever.
                        if flags.contains(PollFlags::ERR) && triggers[index].counters.is_none() {
                            gone.push(index);
                        }
                    }
                    for index in gone.into_iter().rev() {
                        triggers.remove(index);
                    }
                    noticed
                }
                Self::Available { meminfo, watermark } => {
                    let available = field_bytes(&read_again(meminfo)?, "MemAvailable:");
                    available.is_some_and(|bytes| watermark.observe(clock.now(), bytes))
                }
            };
            let now = clock.now();
            if noticed && gate.pass(now) {
                event(now);
            }
            // Afterwards, for it takes the kernel a while to be rid of an old one.
            if let Self::Stall(triggers) = &mut self {
                triggers.iter_mut().for_each(Trigger::arm_again);
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stall(triggers) => {
                let paths: Vec<_> = triggers
                    .iter()
                    .map(|t| t.path.display().to_string())
                    .collect();
                write!(f, "waiting for {}", paths.join(", "))
            }
            Self::Available { watermark, .. } => write!(
                f,
                "this kernel offers no pressure stall information: looking whether MemAvailable \
                 is below {} MiB",
                watermark.low_bytes() >> 20
            ),
        }
    }
}

impl Trigger {
    fn stall(path: &Path) -> Option<Self> {
        TRIGGERS.iter().find_map(|text| {
            let mut file = OpenOptions::new().read(true).write(true).open(path).ok()?;
            file.write_all(text.as_bytes()).ok()?;
            Some(Self {
                path: path.to_owned(),
                file,
                counters: None,
                fired: false,
            })
        })
    }

    fn events(path: &Path) -> Option<Self> {
        let mut file = File::open(path).ok()?;
        let counters = limit_events(&read_again(&mut file).ok()?);
        Some(Self {
            path: path.to_owned(),
            file,
            counters: Some(counters),
            fired: false,
        })
    }

    /// A trigger that fired is of no use for the rest of its window, however tasks stall. A new one
    /// fires as soon as they stalled as long again.
    fn arm_again(&mut self) {
        if std::mem::take(&mut self.fired)
            && self.counters.is_none()
            && let Some(new) = Self::stall(&self.path)
        {
            *self = new;
        }
    }

    /// Whether an exceptional poll means pressure: `memory.events` also counts what is none.
    fn really(&mut self) -> bool {
        let Some(before) = self.counters else {
            return true;
        };
        // Reading is what makes it poll quiet again.
        let now = read_again(&mut self.file).map_or(before, |text| limit_events(&text));
        self.counters = Some(now);
        now > before
    }
}

/// The folder of this process's cgroup, if it is not the root.
fn own_cgroup() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    (!path.is_empty()).then(|| Path::new("/sys/fs/cgroup").join(path))
}

fn limit_events(text: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| LIMIT_EVENTS.contains(name))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

/// The bytes of a line like `MemAvailable:   12345 kB`.
fn field_bytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = rest.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn read_again(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_TEXT).read_to_string(&mut text)?;
    Ok(text)
}

/// A thread that asks everybody in a registry whenever a source reports pressure. Stops when it
/// is dropped.
#[derive(Debug)]
pub struct Watch {
    stop: OwnedFd,
    thread: Option<thread::JoinHandle<()>>,
}

/// Starts to watch `source` for `registry`.
///
/// # Errors
/// If the system has no descriptor or thread left.
pub fn watch(source: Source, registry: Registry, clock: Clock) -> io::Result<Watch> {
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let stopped = stop.try_clone()?;
    let thread = thread::Builder::new()
        .name("pressure".into())
        .spawn(move || {
            // The least with which triggers of less than two seconds can be armed.
            let result = keep_capabilities(CapabilitySet::SYS_RESOURCE).and_then(|()| {
                source.run(&stopped, clock, |now| {
                    registry.pressure(now);
                })
            });
            if let Err(error) = result {
                eprintln!("ebb blk: memory pressure is not watched any more: {error}");
            }
        })?;
    Ok(Watch {
        stop,
        thread: Some(thread),
    })
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn kernel_text_is_read_as_it_is_written() {
        let meminfo = "MemTotal:       24683972 kB\nMemFree: 1 kB\nMemAvailable:   22860144 kB\n";
        assert_eq!(
            field_bytes(meminfo, "MemAvailable:"),
            Some(22_860_144 << 10)
        );
        assert_eq!(field_bytes(meminfo, "SwapTotal:"), None);
        assert_eq!(field_bytes("MemAvailable: many kB", "MemAvailable:"), None);
        let events = "low 9\nhigh 2\nmax 3\noom 0\noom_kill 1\noom_group_kill 4\n";
        assert_eq!(limit_events(events), 6);
    }

    #[test]
    fn this_machine_has_a_source_and_watching_it_ends() {
        let source = Source::find().unwrap();
        println!("{source}");
        let registry = Registry::default();
        drop(watch(source, registry, Clock::start()).unwrap());
    }

    /// A file in memory stands in for the kernel's, which says that there is plenty.
    #[test]
    fn available_memory_is_watched_where_there_is_nothing_else() {
        let mut file = File::from(
            rustix::fs::memfd_create("meminfo", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
        );
        file.write_all(b"MemAvailable: 1 kB\n").unwrap();
        let source = Source::Available {
            meminfo: file,
            watermark: Watermark::for_machine(1 << 30),
        };
        assert!(source.to_string().contains("below 51 MiB"));
        let stop = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut events = 0;
        source
            .run(&stop, Clock::start(), |_| {
                events += 1;
                rustix::io::write(&stop, &1_u64.to_ne_bytes()).unwrap();
            })
            .unwrap();
        assert_eq!(events, 1);
    }
}
