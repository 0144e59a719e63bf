//! Computes the figures of a finished run: peaks, and how fast freed memory came back to the host.
//! The comments on fields are the text of docs/json.md.

use super::trace::{Point, Trace};
use crate::guest::{Killed, OomKills};
use crate::reclaim::Reclaimed;
use crate::text::Rounded;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// A smaller fall of used memory, in bytes, is taken for noise.
const FALL_MIN: u64 = 16 << 20;

/// How much of the memory that the guest freed came back to the host, and how fast.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Return {
    /// Bytes by which used memory fell from its peak to its lowest value after that.
    pub(crate) freed: u64,
    /// Bytes of `freed` by which resident memory fell while the guest ran.
    pub(crate) returned: u64,
    /// Milliseconds until resident memory had fallen by half of `freed`. They count from the last
    /// moment at which 95 % of the fall was still ahead. Null if it did not fall that far.
    #[serde(serialize_with = "milliseconds")]
    #[cfg_attr(test, schemars(with = "Option<f64>"))]
    pub(crate) half: Option<Duration>,
    /// Milliseconds until resident memory had fallen by 95 % of `freed`, counted from the same
    /// moment. Null if it did not fall that far.
    #[serde(serialize_with = "milliseconds")]
    #[cfg_attr(test, schemars(with = "Option<f64>"))]
    pub(crate) most: Option<Duration>,
}

/// The free memory of the guest that the host took by itself, without a report of the guest.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Taken {
    /// Bytes that were taken. A page that is taken twice counts twice.
    pub(crate) bytes: u64,
    /// Number of ranges that were taken.
    pub(crate) ranges: u64,
    /// Milliseconds that the host worked for it.
    #[serde(serialize_with = "plain_milliseconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub(crate) time: Duration,
    /// Milliseconds of `time` in which holes were punched into the guest's memory.
    #[serde(serialize_with = "plain_milliseconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub(crate) punching: Duration,
}

impl From<Reclaimed> for Taken {
    fn from(taken: Reclaimed) -> Self {
        let Reclaimed {
            bytes,
            ranges,
            time,
            punching,
        } = taken;
        Self {
            bytes,
            ranges,
            time,
            punching,
        }
    }
}

/// The processes that the guest's OOM killer ended.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Killings {
    /// Number of processes that it ended.
    pub(crate) kills: u64,
    /// The last of them, at most eight. Empty if the guest's kernel does not name them.
    pub(crate) last: Vec<Killed>,
}

impl From<OomKills> for Killings {
    fn from(oom: OomKills) -> Self {
        Self {
            kills: oom.kills,
            last: oom.told(),
        }
    }
}

impl fmt::Display for Killings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.kills == 1 { "" } else { "es" };
        write!(
            f,
            "out of memory: the guest killed {} process{plural}",
            self.kills
        )?;
        let named = u64::try_from(self.last.len()).unwrap_or(u64::MAX);
        if named == 0 {
            write!(f, "; its kernel does not tell ebb which")?;
        } else if named < self.kills {
            write!(f, ", the last of them:")?;
        }
        for killed in &self.last {
            write!(
                f,
                "\n    {:.2} s  {} ({}) with {} resident",
                killed.at_s,
                killed.name,
                killed.pid,
                Rounded(killed.resident_bytes)
            )?;
        }
        Ok(())
    }
}

/// The figures of a finished run, with settings.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Summary {
    /// The guest's RAM in bytes.
    pub(crate) memory: u64,
    /// The accelerator: `KVM` or `TCG`.
    pub(crate) accel: String,
    /// How free memory went back to the host: `shared`, `hinting`, `reporting` or `off`.
    pub(crate) give_back: &'static str,
    /// Name and version of the guest's kernel. Left out for Ebb's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kernel: Option<String>,
    /// Number of virtual CPUs.
    pub(crate) cpus: u32,
    /// The most bytes that the guest used, without its balloon. Null if its kernel does not report
    /// that.
    pub(crate) peak_used: Option<u64>,
    /// The most bytes in the guest's balloon. Null if its kernel does not report that.
    pub(crate) peak_ballooned: Option<u64>,
    /// The most bytes that the host held for the guest.
    pub(crate) peak_resident: u64,
    /// Bytes that the guest used at the end. Null if its kernel does not report that.
    pub(crate) used_now: Option<u64>,
    /// Bytes in the guest's balloon at the end. Null if its kernel does not report that.
    pub(crate) ballooned_now: Option<u64>,
    /// Bytes that Linux reserved when it booted, which are neither used nor free. Null with Ebb's
    /// kernel, and if Linux did not report its memory.
    pub(crate) reserved: Option<u64>,
    /// Bytes that the host held for the guest at the end.
    pub(crate) resident_now: u64,
    /// Number of reports of free pages. Null if the guest's kernel does not tell.
    pub(crate) reports: Option<u64>,
    /// Number of free ranges in all reports. Null if the guest's kernel does not tell.
    pub(crate) reported_ranges: Option<u64>,
    /// Bytes of all reported ranges. Null if the guest's kernel does not tell.
    pub(crate) reported: Option<u64>,
    /// Milliseconds of guest time from the kernel's entry to the first instruction of the program.
    /// Null if they are unknown.
    #[serde(serialize_with = "milliseconds")]
    #[cfg_attr(test, schemars(with = "Option<f64>"))]
    pub(crate) start: Option<Duration>,
    /// Guest time when the program had ended. The record of `--record` shows it.
    #[serde(skip)]
    pub(crate) ended: Option<Duration>,
    /// Page faults of the program. The record of `--record` shows them.
    #[serde(skip)]
    pub(crate) faults: Option<u64>,
    /// Milliseconds of host time from the start of the CPUs to the end of the guest.
    #[serde(serialize_with = "plain_milliseconds")]
    #[cfg_attr(test, schemars(with = "f64"))]
    pub(crate) ran: Duration,
    /// Bytes of QEMU's resident memory besides the guest's RAM, at its peak. Null if they are
    /// unknown.
    pub(crate) qemu: Option<u64>,
    /// Bytes of QEMU's proportional set size without the guest's memory, at its peak: pages shared
    /// with other processes count in part. Null if they are unknown.
    pub(crate) qemu_pss: Option<u64>,
    /// Processes that the guest's OOM killer ended. Null if its kernel does not tell.
    pub(crate) oom: Option<Killings>,
    /// Free memory that the host took by itself. Left out if it took nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) taken: Option<Taken>,
    /// How freed memory came back. Null with `--icount`, and if used memory never fell by 16 MiB.
    #[serde(rename = "return")]
    pub(crate) returned: Option<Return>,
}

/// Facts about a run that its [`Trace`] does not have, for [`Summary::new`]. Each field has the
/// meaning of the field of [`Summary`] with its name.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) memory: u64,
    pub(crate) accel: String,
    pub(crate) give_back: &'static str,
    pub(crate) kernel: Option<String>,
    pub(crate) qemu: Option<u64>,
    pub(crate) qemu_pss: Option<u64>,
    pub(crate) taken: Option<Reclaimed>,
    /// Whether guest time advances with host time. With `--icount` it does not, and sleeping takes
    /// no time.
    pub(crate) guest_time_is_host_time: bool,
}

impl Summary {
    /// Computes the figures of the run that `trace` recorded, with further `facts` about it.
    pub(crate) fn new(trace: &Trace, facts: Facts) -> Self {
        let last = &trace.last;
        Self {
            memory: facts.memory,
            accel: facts.accel,
            give_back: facts.give_back,
            kernel: facts.kernel,
            cpus: last.cpus,
            peak_used: trace.peak_used,
            peak_resident: trace.peak_resident,
            used_now: last.used,
            peak_ballooned: trace.peak_ballooned,
            ballooned_now: last.ballooned,
            reserved: last.reserved,
            resident_now: last.resident,
            reports: last.reports,
            reported_ranges: last.reported_ranges,
            reported: last.reported,
            start: last.first_user,
            ended: last.ended,
            faults: last.program_faults,
            ran: last.at,
            qemu: facts.qemu,
            qemu_pss: facts.qemu_pss,
            oom: last.oom.map(Killings::from),
            taken: facts.taken.map(Taken::from),
            returned: if facts.guest_time_is_host_time {
                memory_return(trace.points())
            } else {
                None
            },
        }
    }
}

impl Summary {
    /// Returns the figures that most users want as one line: how long the guest ran, and how much
    /// memory it used and the host held. More lines follow if the guest ran out of memory.
    pub(crate) fn short(&self) -> String {
        let used = self.peak_used.map_or_else(String::new, |used| {
            format!("used at most {}, ", Rounded(used))
        });
        let mut text = format!(
            "ebb: guest with {} ran {}, {used}held at most {} of the host, {} at the end",
            crate::text::Size(self.memory),
            Seconds(self.ran),
            Rounded(self.peak_resident),
            Rounded(self.resident_now)
        );
        if let Some(oom) = self.oom.as_ref().filter(|oom| oom.kills > 0) {
            text.push_str(&format!("\n  {oom}"));
        }
        text
    }
}

/// Finds the fall of used memory from its peak to its lowest value after that, and when resident
/// memory followed it. `points` are in order of time. Returns `None` if there are no points or used
/// memory fell by less than 16 MiB.
pub(crate) fn memory_return(points: &[Point]) -> Option<Return> {
    let peak = points.iter().map(|point| point.used).max()?;
    let first_peak = points.iter().position(|point| point.used == peak)?;
    let floor = points[first_peak..].iter().map(|point| point.used).min()?;
    let freed = peak - floor;
    if freed < FALL_MIN {
        return None;
    }
    // The fall begins at the last point within 5 % of the peak.
    let begin = points
        .iter()
        .rposition(|point| point.used >= peak - freed / 20)?;
    let fall = &points[begin..];
    let full = fall.first()?;
    let reached = |share: u64| {
        let goal = full.resident.saturating_sub(share);
        fall.iter()
            .find(|point| point.resident <= goal)
            .map(|point| point.at - full.at)
    };
    let least = fall.iter().map(|point| point.resident).min()?;
    Some(Return {
        freed,
        returned: full.resident.saturating_sub(least).min(freed),
        half: reached(freed / 2),
        most: reached(freed - freed / 20),
    })
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = crate::text::Size(self.memory);
        let plural = if self.cpus == 1 { "" } else { "s" };
        write!(
            f,
            "ebb: guest with {memory} and {} CPU{plural} on {}",
            self.cpus, self.accel
        )?;
        if let Some(kernel) = &self.kernel {
            write!(f, ", {kernel}")?;
        }
        write!(
            f,
            ", give-back {}, ran {}",
            self.give_back,
            Seconds(self.ran)
        )?;
        if let Some(start) = self.start {
            write!(f, " (program began at {})", Seconds(start))?;
        }
        let line = |f: &mut fmt::Formatter<'_>, name: &str, peak: Option<u64>, now: Option<u64>| {
            let (Some(peak), Some(now)) = (peak, now) else {
                return write!(f, "\n  {name:<9} not known");
            };
            let (peak, now) = (Rounded(peak).to_string(), Rounded(now).to_string());
            write!(f, "\n  {name:<9} peak {peak:>11}   at the end {now:>11}")
        };
        line(f, "used", self.peak_used, self.used_now)?;
        if self.peak_ballooned.is_some_and(|peak| peak > 0) {
            line(f, "balloon", self.peak_ballooned, self.ballooned_now)?;
        }
        line(
            f,
            "resident",
            Some(self.peak_resident),
            Some(self.resident_now),
        )?;
        if let Some(reserved) = self.reserved {
            write!(
                f,
                "\n  reserved  {} by the guest's kernel, neither used nor free",
                Rounded(reserved)
            )?;
        }
        if let Some(returned) = self.returned {
            write!(
                f,
                "\n  freed     {}, on the host again: ",
                Rounded(returned.freed)
            )?;
            match (returned.half, returned.most) {
                (Some(half), Some(most)) => {
                    write!(
                        f,
                        "half after {}, 95 % after {}",
                        Seconds(half),
                        Seconds(most)
                    )?;
                }
                (half, _) => {
                    if let Some(half) = half {
                        write!(f, "half after {}, ", Seconds(half))?;
                    }
                    let percent =
                        u128::from(returned.returned) * 100 / u128::from(returned.freed).max(1);
                    write!(f, "{percent} % when the program ended")?;
                }
            }
        }
        match (self.reported, self.reported_ranges, self.reports) {
            (Some(bytes), Some(ranges), Some(reports)) => write!(
                f,
                "\n  reported  {} in {ranges} ranges, {reports} reports",
                Rounded(bytes)
            )?,
            _ => write!(f, "\n  reported  not told by this kernel")?,
        }
        if let Some(taken) = self.taken {
            let share = taken.punching.as_nanos() * 100 / taken.time.as_nanos().max(1);
            write!(
                f,
                "\n  taken     {} in {} ranges, by {} of work, {share} % of it punching holes",
                Rounded(taken.bytes),
                taken.ranges,
                Seconds(taken.time)
            )?;
        }
        if let Some(qemu) = self.qemu {
            write!(
                f,
                "\n  QEMU      {} beside the guest's memory",
                Rounded(qemu)
            )?;
            if let Some(pss) = self.qemu_pss {
                write!(f, ", {} of it its own by PSS", Rounded(pss))?;
            }
        }
        if let Some(oom) = self.oom.as_ref().filter(|oom| oom.kills > 0) {
            write!(f, "\n  {oom}")?;
        }
        Ok(())
    }
}

/// Shows a time in seconds: with two decimals below ten, otherwise with one.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = if self.0 < Duration::from_secs(10) {
            2
        } else {
            1
        };
        write!(f, "{:.decimals$} s", self.0.as_secs_f64())
    }
}

/// Returns `time` in milliseconds, rounded to a microsecond.
fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[expect(clippy::ref_option, reason = "serde hands the field over so")]
fn milliseconds<S: serde::Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(rounded).serialize(to)
}

fn plain_milliseconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    rounded(*time).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Sample;

    const MIB: u64 = 1 << 20;

    fn points(curve: &[(u64, u64, u64)]) -> Vec<Point> {
        let point = |&(ms, used, resident)| Point {
            at: Duration::from_millis(ms),
            used: used * MIB,
            resident: resident * MIB,
        };
        curve.iter().map(point).collect()
    }

    #[test]
    fn times_run_from_the_free_to_the_return() {
        let curve = points(&[
            (0, 10, 15),
            (500, 500, 505),
            (1000, 1010, 1015),
            (1500, 1010, 1016),
            (1600, 10, 1016),
            (3600, 10, 800),
            (5600, 10, 516),
            (7600, 10, 67),
            (9600, 10, 66),
            (11600, 10, 16),
        ]);
        let back = memory_return(&curve).unwrap();
        assert_eq!(back.freed, 1000 * MIB);
        assert_eq!(back.half, Some(Duration::from_millis(4100)));
        assert_eq!(back.most, Some(Duration::from_millis(8100)));
        assert_eq!(back.returned, 1000 * MIB);
    }

    #[test]
    fn what_never_came_back_has_no_time() {
        let curve = points(&[(0, 100, 110), (100, 10, 110), (5000, 10, 50)]);
        let back = memory_return(&curve).unwrap();
        assert_eq!(
            (back.half, back.most),
            (Some(Duration::from_millis(5000)), None)
        );
        assert_eq!(back.returned, 60 * MIB);
        let off = points(&[(0, 100, 110), (100, 10, 110), (5000, 10, 110)]);
        let back = memory_return(&off).unwrap();
        assert_eq!((back.half, back.most, back.returned), (None, None, 0));
    }

    #[test]
    fn small_falls_and_empty_traces_say_nothing() {
        assert!(memory_return(&[]).is_none());
        assert!(memory_return(&points(&[(0, 20, 20), (1, 10, 20)])).is_none());
        assert!(memory_return(&points(&[(0, 20, 20), (1, 900, 900)])).is_none());
    }

    #[test]
    fn the_last_of_several_rounds_counts() {
        let curve = points(&[
            (0, 100, 100),
            (1000, 10, 20),
            (2000, 100, 100),
            (3000, 10, 100),
            (4000, 10, 50),
            (4500, 10, 10),
        ]);
        let back = memory_return(&curve).unwrap();
        assert_eq!(back.half, Some(Duration::from_millis(2000)));
        assert_eq!(back.most, Some(Duration::from_millis(2500)));
    }

    #[test]
    fn reads_well() {
        let mut trace = Trace::new();
        for point in points(&[
            (0, 100, 110),
            (100, 10, 110),
            (2050, 10, 60),
            (4100, 10, 15),
        ]) {
            trace.add(Sample {
                at: point.at,
                used: Some(point.used),
                resident: point.resident,
                reported: Some(90 * MIB),
                reports: Some(2),
                reported_ranges: Some(45),
                cpus: 2,
                first_user: Some(Duration::from_millis(123)),
                ..Sample::default()
            });
        }
        let facts = Facts {
            memory: 1 << 30,
            accel: "TCG".into(),
            give_back: "reporting",
            kernel: None,
            qemu: Some(40 * MIB),
            qemu_pss: Some(29 * MIB),
            taken: None,
            guest_time_is_host_time: true,
        };
        let summary = Summary::new(&trace, facts);
        assert_eq!(
            summary.to_string(),
            "ebb: guest with 1G and 2 CPUs on TCG, give-back reporting, ran 4.10 s \
             (program began at 0.12 s)\n  \
             used      peak   100.0 MiB   at the end    10.0 MiB\n  \
             resident  peak   110.0 MiB   at the end    15.0 MiB\n  \
             freed     90.0 MiB, on the host again: half after 2.05 s, 95 % after 4.10 s\n  \
             reported  90.0 MiB in 45 ranges, 2 reports\n  \
             QEMU      40.0 MiB beside the guest's memory, 29.0 MiB of it its own by PSS"
        );
        assert_eq!(
            summary.short(),
            "ebb: guest with 1G ran 4.10 s, used at most 100.0 MiB, held at most 110.0 MiB of the \
             host, 15.0 MiB at the end"
        );
        let stock = Summary {
            peak_ballooned: Some(300 * MIB),
            ballooned_now: Some(0),
            reserved: Some(61 * MIB),
            ..summary.clone()
        };
        let text = stock.to_string();
        let lines: Vec<_> = text.lines().skip(1).take(4).collect();
        assert_eq!(
            lines,
            [
                "  used      peak   100.0 MiB   at the end    10.0 MiB",
                "  balloon   peak   300.0 MiB   at the end     0.0 MiB",
                "  resident  peak   110.0 MiB   at the end    15.0 MiB",
                "  reserved  61.0 MiB by the guest's kernel, neither used nor free",
            ]
        );
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["return"]["half"], 2050.0);
        assert_eq!(json["ran"], 4100.0);
    }
}
