//! The sources of memory pressure events, and the thread that watches them.
//!
//! The thread waits for the kernel's pressure stall information (PSI): a trigger on
//! `/proc/pressure/memory`, and if the process is in a cgroup other than the root, also that
//! cgroup's `memory.pressure` and `memory.events`. A stall comes when memory is already short. So
//! `MemAvailable` is also compared with a watermark after each MiB by which pools grew. If no
//! trigger is armed on `/proc/pressure/memory`, because the kernel has no PSI or refuses it to this
//! process, `MemAvailable` is compared with a higher watermark ten times a second: a cgroup's files
//! do not tell when the rest of the system is short of memory.

use super::available::{Available, read_again};
use super::gate::Gate;
use super::growth::Growth;
use super::registry::Registry;
use crate::capabilities::keep_capabilities;
use crate::messages::print;
use crate::time::{Clock, Micros};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::thread::CapabilitySet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// PSI triggers, the preferred one first: tasks stalled for 2 % of a window, in microseconds. The
/// kernel checks ten times in a window, so the first has the shortest window allowed. Unprivileged
/// processes may only have windows of a multiple of two seconds.
const TRIGGERS: [&str; 2] = ["some 10000 500000\0", "some 40000 2000000\0"];
/// The file with the stalls of the whole system.
const SYSTEM_STALLS: &str = "/proc/pressure/memory";
/// Interval at which `MemAvailable` is read if no trigger is armed on [`SYSTEM_STALLS`].
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum time between two reads of `MemAvailable` while pools grow.
const GROWTH_INTERVAL: Duration = Duration::from_millis(5);

/// Counters in `memory.events` that increase when the cgroup reaches a limit.
const LIMIT_EVENTS: [&str; 4] = ["high", "max", "oom", "oom_kill"];

/// The sources of pressure events of this process, opened but not watched yet.
#[derive(Debug)]
pub struct Source {
    /// Files of the kernel that the thread polls.
    triggers: Vec<Trigger>,
    /// `MemAvailable`, read when pools grow, or at intervals: see [`Self::samples`].
    available: Option<Available>,
}

/// A file that polls as exceptional (`POLLPRI`) when memory is short.
#[derive(Debug)]
pub struct Trigger {
    path: PathBuf,
    file: File,
    /// For `memory.events`: the sum of its limit counters at the last read. `None` for a PSI
    /// trigger.
    counters: Option<u64>,
    /// Whether the trigger fired since it was armed.
    fired: bool,
}

impl Source {
    /// Opens the sources of pressure events that the system offers to this process: PSI triggers,
    /// the cgroup's counters, and `/proc/meminfo`. Sources that cannot be opened are left out.
    ///
    /// # Errors
    /// Fails if there are no triggers and `/proc/meminfo` cannot be read or lacks `MemTotal`.
    pub fn find() -> io::Result<Self> {
        let mut triggers = Vec::new();
        triggers.extend(Trigger::stall(Path::new(SYSTEM_STALLS)));
        if let Some(cgroup) = own_cgroup() {
            triggers.extend(Trigger::stall(&cgroup.join("memory.pressure")));
            triggers.extend(Trigger::events(&cgroup.join("memory.events")));
        }
        Self::with(triggers)
    }

    /// Adds `/proc/meminfo` to `triggers`. Fails if it cannot be read and `triggers` is empty.
    fn with(triggers: Vec<Trigger>) -> io::Result<Self> {
        let available = if triggers.iter().any(Trigger::is_of_system) {
            Available::growth()
        } else {
            Available::sampled()
        };
        let available = match available {
            Err(error) if triggers.is_empty() => return Err(error),
            available => available.ok(),
        };
        Ok(Self {
            triggers,
            available,
        })
    }

    /// Returns whether `MemAvailable` is read at intervals: it can be read, and no trigger reports
    /// the stalls of the whole system.
    fn samples(&self) -> bool {
        self.available.is_some() && !self.triggers.iter().any(Trigger::is_of_system)
    }

    /// Waits for the sources and calls `event` with the time of each event that passes the rate
    /// limit. Returns when `stop` polls readable. Fails if polling or reading `MemAvailable` fails.
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
            let sampled = self.samples();
            let look_soon = !sampled && self.available.is_some() && now < next_look;
            let timeout = if sampled {
                Some(SAMPLE_INTERVAL)
            } else {
                look_soon.then(|| now.until(next_look))
            };
            let timeout = timeout.and_then(|wait| Timespec::try_from(wait).ok());
            let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
            // After a read the thread waits for the next one, however fast pools grow.
            let grown = if sampled || look_soon || self.available.is_none() {
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
            let stalled = self.stalled(&ready[2..]);
            let mut low = false;
            let now = clock.now();
            if let Some(available) = &mut self.available
                && (sampled || !ready[1].is_empty())
            {
                growth.seen();
                next_look = now + GROWTH_INTERVAL;
                low = available.look(now)?;
            }
            if (stalled || low) && gate.pass(now) {
                event(now);
                // An event that the gate refuses stays due.
                if low && let Some(available) = &mut self.available {
                    available.reported(now);
                }
            }
            // Last, because the kernel takes a while to remove an old trigger.
            self.triggers.iter_mut().for_each(Trigger::arm_again);
        }
    }

    /// Evaluates the poll results of the triggers, in their order. Returns whether one means
    /// pressure. Removes triggers whose cgroup is gone.
    fn stalled(&mut self, ready: &[PollFlags]) -> bool {
        let sampled = self.samples();
        let mut noticed = false;
        let mut gone = Vec::new();
        for (index, flags) in ready.iter().enumerate() {
            let trigger = &mut self.triggers[index];
            // If a cgroup is removed, its PSI trigger polls as an error for ever. `memory.events`
            // does, too, but polls so at each change as well.
            let mut is_gone = flags.contains(PollFlags::ERR) && trigger.counters.is_none();
            if flags.contains(PollFlags::PRI) {
                match trigger.really() {
                    Ok(pressure) => noticed |= pressure,
                    Err(_) => is_gone = true,
                }
                trigger.fired = true;
            }
            if is_gone {
                gone.push(index);
            }
        }
        for index in gone.into_iter().rev() {
            self.triggers.remove(index);
        }
        if self.samples()
            && !sampled
            && let Some(available) = &mut self.available
        {
            available.sample();
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
        if self.samples() {
            write!(
                f,
                "; {SYSTEM_STALLS} is not open to this process, so looking ten times a second \
                 whether MemAvailable is below {low} MiB"
            )?;
        } else if low > 0 {
            write!(
                f,
                "; looking whether MemAvailable is below {low} MiB while pools grow"
            )?;
        }
        Ok(())
    }
}

impl Trigger {
    /// Arms a PSI trigger on the file `path`. Returns `None` if the kernel refuses.
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

    /// Returns whether the trigger fires at stalls of the whole system.
    fn is_of_system(&self) -> bool {
        self.path == Path::new(SYSTEM_STALLS)
    }

    /// Opens `path`, a `memory.events` file. Returns `None` if it cannot be read.
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

    /// Replaces a PSI trigger that fired. The old one does not fire again in the rest of its
    /// window; a new one fires as soon as tasks have stalled for that long again.
    fn arm_again(&mut self) {
        if std::mem::take(&mut self.fired)
            && self.counters.is_none()
            && let Some(new) = Self::stall(&self.path)
        {
            *self = new;
        }
    }

    /// Returns whether an exceptional poll means pressure. `memory.events` also counts other
    /// events. Fails if that file cannot be read any more, because its cgroup is gone.
    fn really(&mut self) -> io::Result<bool> {
        let Some(before) = self.counters else {
            return Ok(true);
        };
        // Reading the file resets its poll state.
        let now = limit_events(&read_again(&mut self.file)?);
        self.counters = Some(now);
        Ok(now > before)
    }
}

/// Returns the folder of this process's cgroup, or `None` if that is the root of all or unknown.
fn own_cgroup() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    cgroup_folder(&text, Path::new("/sys/fs/cgroup"))
}

/// Returns the folder of the cgroup that `text` names, the contents of `/proc/PID/cgroup`. `root`
/// is the folder where the hierarchy is mounted. Returns `None` if the cgroup is the root of all,
/// or not in the unified hierarchy.
///
/// In a container the cgroup may be called `/`, because the container sees no others. Then it has
/// counters, which the root of all lacks.
fn cgroup_folder(text: &str, root: &Path) -> Option<PathBuf> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = root.join(path);
    (!path.is_empty() || folder.join("memory.events").exists()).then_some(folder)
}

/// Sums the counters named in `LIMIT_EVENTS`.
fn limit_events(text: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| LIMIT_EVENTS.contains(name))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

/// A thread that notifies a registry's instances whenever a source reports pressure. Dropping this
/// value stops the thread and waits for its end.
#[derive(Debug)]
pub struct Watch {
    stop: OwnedFd,
    thread: Option<thread::JoinHandle<()>>,
}

/// Starts a thread that watches `source` and notifies the instances of `registry` of each event,
/// dated by `clock`. The instances then also report the growth of their pools. If a source fails,
/// the thread writes this to stderr and ends.
///
/// # Errors
/// Fails if the system refuses a descriptor or a thread.
pub fn watch(source: Source, registry: Registry, clock: Clock) -> io::Result<Watch> {
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let stopped = stop.try_clone()?;
    let growth = Growth::new()?;
    registry.tell_growth(growth.clone());
    let thread = thread::Builder::new()
        .name("pressure".into())
        .spawn(move || {
            // The only capability needed to arm triggers with windows that are no multiple of two
            // seconds.
            let result = keep_capabilities(CapabilitySet::SYS_RESOURCE).and_then(|()| {
                source.run(&stopped, &growth, clock, |now| {
                    registry.pressure(now);
                })
            });
            if let Err(error) = result {
                print(format_args!(
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

#[cfg(test)]
mod tests {
    use super::super::available::fake;
    use super::super::gate::Watermark;
    use super::super::growth::LOOK_PAGES;
    use super::*;
    use std::io::{Seek, SeekFrom};
    use std::os::fd::AsRawFd;
    use std::time::Instant;

    #[test]
    fn what_counts_as_running_into_a_limit() {
        let events = "low 9\nhigh 2\nmax 3\noom 0\noom_kill 1\noom_group_kill 4\n";
        assert_eq!(limit_events(events), 6);
    }

    #[test]
    fn a_container_may_call_its_cgroup_the_root() {
        let root = std::env::temp_dir().join(format!("ebb-cgroup-{}", std::process::id()));
        fs::create_dir_all(&root).expect("a folder");
        let inner = Some(root.join("user/job"));
        assert_eq!(cgroup_folder("1:name=a:/\n0::/user/job\n", &root), inner);
        assert_eq!(cgroup_folder("0::/\n", &root), None);
        assert_eq!(cgroup_folder("3:memory:/docker\n", &root), None);
        fs::write(root.join("memory.events"), "max 0\n").expect("a file");
        assert_eq!(cgroup_folder("0::/\n", &root), Some(root.join("")));
        fs::remove_dir_all(&root).expect("it is there");
    }

    #[test]
    fn this_machine_has_a_source_and_watching_it_ends() {
        let source = Source::find().unwrap();
        println!("{source}");
        let registry = Registry::default();
        drop(watch(source, registry, Clock::start()).unwrap());
    }

    /// Returns a trigger on the system's stalls that never fires.
    fn quiet() -> Trigger {
        Trigger {
            path: SYSTEM_STALLS.into(),
            file: File::from(eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor")),
            counters: None,
            fired: false,
        }
    }

    /// Returns a cgroup's `memory.events` that never fires.
    fn quiet_events() -> Trigger {
        Trigger {
            path: "memory.events".into(),
            counters: Some(0),
            ..quiet()
        }
    }

    #[test]
    fn only_stalls_of_the_whole_system_replace_looks_at_intervals() {
        let stalls_of_cgroup = || Trigger {
            path: "memory.pressure".into(),
            ..quiet()
        };
        for (triggers, samples) in [
            (vec![], true),
            (vec![quiet_events()], true),
            (vec![stalls_of_cgroup(), quiet_events()], true),
            (vec![quiet()], false),
            (vec![quiet(), stalls_of_cgroup(), quiet_events()], false),
        ] {
            let source = Source::with(triggers).unwrap();
            assert_eq!(source.samples(), samples, "{source}");
            assert_eq!(source.to_string().ends_with("grow"), !samples, "{source}");
        }
    }

    #[test]
    fn available_memory_is_watched_where_there_is_nothing_else() {
        notices_low_memory(Vec::new());
    }

    #[test]
    fn available_memory_is_watched_where_there_are_only_events_of_a_cgroup() {
        notices_low_memory(vec![quiet_events()]);
    }

    /// Checks that a source with `triggers`, none of which fires, notices that memory is short.
    fn notices_low_memory(triggers: Vec<Trigger>) {
        let meminfo = fake::meminfo();
        fake::set_available(&meminfo, 1);
        let source = Source {
            triggers,
            available: Some(Available::new(meminfo, Watermark::sampled).unwrap()),
        };
        assert!(source.to_string().ends_with("below 51 MiB"));
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
    fn pools_that_grow_into_the_last_memory_are_squeezed_before_any_task_stalls() {
        let meminfo = fake::meminfo();
        fake::set_available(&meminfo, 500 << 10);
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
        // Enough memory is left, so reading its level is no event.
        (&meminfo).seek(SeekFrom::Start(0)).unwrap();
        member.fetched(LOOK_PAGES);
        // The thread's file has the same position.
        let start = Instant::now();
        while (&meminfo).stream_position().unwrap() == 0 {
            assert!(start.elapsed() < Duration::from_secs(300), "it looks");
            thread::sleep(GROWTH_INTERVAL);
        }
        thread::sleep(4 * GROWTH_INTERVAL);
        assert!(!member.is_asked());
        // No pool grows, so the thread does not read the level. A file with a position of its own
        // leaves that of the thread alone.
        let path = format!("/proc/self/fd/{}", meminfo.as_raw_fd());
        let writer = File::options().write(true).open(path).unwrap();
        fake::set_available(&writer, 10 << 10);
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
        fake::set_available(&meminfo, 40 << 10);
        let mut source = Source {
            triggers: vec![quiet(), quiet_events()],
            available: Some(Available::new(meminfo, Watermark::growth).unwrap()),
        };
        assert!(!source.stalled(&[PollFlags::ERR, PollFlags::empty()]));
        assert_eq!(source.triggers.len(), 1);
        let available = source.available.as_mut().unwrap();
        assert_eq!(available.low_bytes() >> 20, 51);
        assert!(available.look(Micros(1)).unwrap());
    }

    #[test]
    fn events_of_a_removed_cgroup_are_not_polled_for_ever() {
        let flags = PollFlags::PRI | PollFlags::ERR;
        let mut alive = Trigger::events(Path::new("/proc/meminfo")).unwrap();
        alive.counters = Some(0);
        // A folder cannot be read, as the file of a removed cgroup cannot.
        let removed = Trigger {
            file: File::open("/proc").unwrap(),
            ..quiet_events()
        };
        let mut source = Source {
            triggers: vec![alive, removed],
            available: None,
        };
        assert!(!source.stalled(&[flags, flags]));
        assert_eq!(source.triggers.len(), 1);
        assert_eq!(source.triggers[0].path, Path::new("/proc/meminfo"));
    }
}
