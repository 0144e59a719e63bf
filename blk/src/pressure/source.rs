//! What notices that memory is tight.
//!
//! The kernel's pressure stall information is waited for, not sampled: a trigger on
//! `/proc/pressure/memory`, and where the process lives in a cgroup of its own also on that
//! cgroup's `memory.pressure` and `memory.events`. A stall comes when memory is tight already, so
//! `MemAvailable` is also compared with a watermark after each MiB by which pools grew, which is
//! never while nothing grows. Where the kernel tells of no stalls, it is compared with a higher
//! watermark ten times a second.

use super::available::{Available, read_again};
use super::gate::Gate;
use super::growth::Growth;
use super::registry::Registry;
use crate::capabilities::keep_capabilities;
use crate::time::{Clock, Micros};
use crate::words::say;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::thread::CapabilitySet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Tasks that stalled for 2 % of a window. The kernel looks ten times in one, so it is the shortest
/// that there is; unprivileged processes may have windows of whole two seconds only.
const TRIGGERS: [&str; 2] = ["some 10000 500000\0", "some 40000 2000000\0"];
/// How often `MemAvailable` is read where nothing tells of stalls.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// How often it is read at most while pools grow.
const GROWTH_INTERVAL: Duration = Duration::from_millis(5);

/// Counters in `memory.events` whose growth means that the cgroup ran into a limit.
const LIMIT_EVENTS: [&str; 4] = ["high", "max", "oom", "oom_kill"];

/// What tells us of pressure.
#[derive(Debug)]
pub struct Source {
    /// Files of the kernel's that are waited for.
    triggers: Vec<Trigger>,
    /// Looked at when pools grow, and at intervals if there are no triggers.
    available: Option<Available>,
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
        let available = if triggers.is_empty() {
            Some(Available::sampled()?)
        } else {
            Available::growth().ok()
        };
        Ok(Self {
            triggers,
            available,
        })
    }

    /// Waits for the source and reports each event that passes the gate, until `stop` polls
    /// readable.
    fn run(
        mut self,
        stop: &OwnedFd,
        growth: &Growth,
        clock: Clock,
        mut event: impl FnMut(Micros),
    ) -> io::Result<()> {
        let mut gate = Gate::default();
        let mut next_look = Micros(0);
        loop {
            let now = clock.now();
            let sampled = self.triggers.is_empty();
            let look_soon = !sampled && self.available.is_some() && now < next_look;
            let timeout = if sampled {
                Some(SAMPLE_INTERVAL)
            } else {
                look_soon.then(|| now.until(next_look))
            };
            let timeout = timeout.and_then(|wait| Timespec::try_from(wait).ok());
            let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
            // Whoever looked just now does not look again at once, however fast pools grow.
            let grown = if look_soon || self.available.is_none() {
                PollFlags::empty()
            } else {
                PollFlags::IN
            };
            fds.push(PollFd::new(growth, grown));
            let triggers = self.triggers.iter();
            fds.extend(triggers.map(|t| PollFd::new(&t.file, PollFlags::PRI)));
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let ready: Vec<_> = fds.iter().map(PollFd::revents).collect();
            if !ready[0].is_empty() {
                return Ok(());
            }
            let mut noticed = self.stalled(&ready[2..]);
            let now = clock.now();
            if let Some(available) = &mut self.available
                && (sampled || !ready[1].is_empty())
            {
                growth.seen();
                next_look = now + GROWTH_INTERVAL;
                noticed |= available.look(now)?;
            }
            if noticed && gate.pass(now) {
                event(now);
            }
            // Afterwards, for it takes the kernel a while to be rid of an old one.
            self.triggers.iter_mut().for_each(Trigger::arm_again);
        }
    }

    /// Whether the triggers that polled so mean pressure.
    fn stalled(&mut self, ready: &[PollFlags]) -> bool {
        let mut noticed = false;
        let mut gone = Vec::new();
        for (index, flags) in ready.iter().enumerate() {
            let trigger = &mut self.triggers[index];
            if flags.contains(PollFlags::PRI) {
                noticed |= trigger.really();
                trigger.fired = true;
            }
            // A cgroup that is removed, and a trigger with it, polls as an error for ever.
            if flags.contains(PollFlags::ERR) && trigger.counters.is_none() {
                gone.push(index);
            }
        }
        for index in gone.into_iter().rev() {
            self.triggers.remove(index);
            if self.triggers.is_empty()
                && let Some(available) = &mut self.available
            {
                available.sample();
            }
        }
        noticed
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = self.available.as_ref().map_or(0, Available::low_bytes) >> 20;
        if self.triggers.is_empty() {
            return write!(
                f,
                "this kernel offers no pressure stall information: looking whether MemAvailable \
                 is below {low} MiB"
            );
        }
        let paths = self.triggers.iter().map(|t| t.path.display().to_string());
        write!(f, "waiting for {}", paths.collect::<Vec<_>>().join(", "))?;
        if low > 0 {
            write!(
                f,
                "; looking whether MemAvailable is below {low} MiB while pools grow"
            )?;
        }
        Ok(())
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
    let growth = Growth::new()?;
    registry.tell_growth(growth.clone());
    let thread = thread::Builder::new()
        .name("pressure".into())
        .spawn(move || {
            // The least with which triggers of less than two seconds can be armed.
            let result = keep_capabilities(CapabilitySet::SYS_RESOURCE).and_then(|()| {
                source.run(&stopped, &growth, clock, |now| {
                    registry.pressure(now);
                })
            });
            if let Err(error) = result {
                say(format_args!(
                    "memory pressure is not watched any more: {error}"
                ));
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
    use super::super::available::fake;
    use super::super::gate::Watermark;
    use super::super::growth::LOOK_PAGES;
    use super::*;

    #[test]
    fn what_counts_as_running_into_a_limit() {
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

    /// A trigger that never fires.
    fn quiet() -> Trigger {
        Trigger {
            path: "never".into(),
            file: File::from(eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor")),
            counters: None,
            fired: false,
        }
    }

    #[test]
    fn available_memory_is_watched_where_there_is_nothing_else() {
        let meminfo = fake::meminfo();
        fake::say(&meminfo, 1);
        let source = Source {
            triggers: Vec::new(),
            available: Some(Available::new(meminfo, Watermark::sampled).unwrap()),
        };
        assert!(source.to_string().contains("below 51 MiB"));
        let stop = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let growth = Growth::new().unwrap();
        let mut events = 0;
        source
            .run(&stop, &growth, Clock::start(), |_| {
                events += 1;
                rustix::io::write(&stop, &1_u64.to_ne_bytes()).unwrap();
            })
            .unwrap();
        assert_eq!(events, 1);
    }

    #[test]
    fn pools_that_grow_into_the_last_memory_are_squeezed_before_anybody_stalls() {
        let meminfo = fake::meminfo();
        fake::say(&meminfo, 500 << 10);
        let source = Source {
            triggers: vec![quiet()],
            available: Some(
                Available::new(meminfo.try_clone().unwrap(), Watermark::growth).unwrap(),
            ),
        };
        assert!(
            source
                .to_string()
                .ends_with("below 16 MiB while pools grow")
        );
        let (registry, clock) = (Registry::default(), Clock::start());
        let mut member = registry.register("grows").unwrap();
        let watching = watch(source, registry, clock).unwrap();
        // Plenty is left: looking at that is no event.
        member.fetched(LOOK_PAGES);
        thread::sleep(4 * GROWTH_INTERVAL);
        assert!(!member.is_asked());
        // Nobody grows, so nobody looks.
        fake::say(&meminfo, 10 << 10);
        thread::sleep(4 * GROWTH_INTERVAL);
        assert!(!member.is_asked());
        member.fetched(2 * LOOK_PAGES);
        let mut asked = [PollFd::new(&member, PollFlags::IN)];
        assert_eq!(poll(&mut asked, None).unwrap(), 1);
        assert!(member.is_asked());
        drop(watching);
    }

    #[test]
    fn who_loses_its_last_trigger_looks_at_intervals() {
        let meminfo = fake::meminfo();
        fake::say(&meminfo, 40 << 10);
        let mut source = Source {
            triggers: vec![quiet()],
            available: Some(Available::new(meminfo, Watermark::growth).unwrap()),
        };
        assert!(!source.stalled(&[PollFlags::ERR]));
        assert!(source.triggers.is_empty());
        let available = source.available.as_mut().unwrap();
        assert_eq!(available.low_bytes() >> 20, 51);
        assert!(available.look(Micros(1)).unwrap());
    }
}
