//! Formats the guests' figures as OpenMetrics text
//! (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).

use crate::guest::HugePages;
use crate::registry::{Figures, Life};
use std::fmt::Write;

/// The media type of OpenMetrics text, for the header `Content-Type` of an answer.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The type of a metric family.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    Gauge,
    Counter,
}

/// A metric family, with one sample for each guest that has the figure.
struct Family {
    name: &'static str,
    kind: Kind,
    /// The last part of the name, if it is a unit.
    unit: &'static str,
    help: &'static str,
    value: fn(&Figures) -> Option<Value>,
}

/// The value of a sample.
#[derive(Copy, Clone, PartialEq, Debug)]
enum Value {
    Whole(u64),
    Real(f64),
}

fn whole(value: Option<u64>) -> Option<Value> {
    value.map(Value::Whole)
}

const FAMILIES: [Family; 22] = [
    Family {
        name: "ebb_guest_memory_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        help: "Memory that the guest was given.",
        value: |figures| whole(Some(figures.memory_bytes)),
    },
    Family {
        name: "ebb_guest_cpus",
        kind: Kind::Gauge,
        unit: "",
        help: "Virtual CPUs.",
        value: |figures| whole(Some(figures.cpus.into())),
    },
    Family {
        name: "ebb_guest_up",
        kind: Kind::Gauge,
        unit: "",
        help: "1 while the guest's program runs.",
        value: |figures| whole(Some((figures.life == Life::Running).into())),
    },
    Family {
        name: "ebb_guest_paused",
        kind: Kind::Gauge,
        unit: "",
        help: "1 while the guest's virtual CPUs stand still: paused, or QEMU stopped by a signal.",
        value: |figures| whole(Some(figures.standstill.is_some().into())),
    },
    Family {
        name: "ebb_guest_start_time_seconds",
        kind: Kind::Gauge,
        unit: "seconds",
        help: "When the guest started, in seconds since 1970.",
        value: |figures| Some(Value::Real(figures.started_s)),
    },
    Family {
        name: "ebb_guest_used_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        help: "Memory that the guest has in use.",
        value: |figures| whole(figures.used_bytes),
    },
    Family {
        name: "ebb_guest_balloon_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        help: "Memory in the guest's balloon, which is neither used nor free.",
        value: |figures| whole(figures.balloon_bytes),
    },
    Family {
        name: "ebb_guest_reserved_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        help: "Memory that Linux reserved when it booted, which is neither used nor free.",
        value: |figures| whole(figures.reserved_bytes),
    },
    Family {
        name: "ebb_guest_page_cache_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        help: "The part of the used memory that files take.",
        value: |figures| whole(figures.page_cache_bytes),
    },
    Family {
        name: "ebb_guest_free_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        help: "Memory that the guest could use at once.",
        value: |figures| whole(figures.free_bytes),
    },
    Family {
        name: "ebb_guest_resident_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        help: "Memory of the host that the guest's memory occupies.",
        value: |figures| whole(Some(figures.resident_bytes)),
    },
    Family {
        name: "ebb_guest_gap_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        help: "Memory that is free in the guest and still held of the host.",
        value: |figures| whole(figures.gap_bytes),
    },
    Family {
        name: "ebb_guest_overhead_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        help: "Memory of QEMU beside the guest's.",
        value: |figures| whole(figures.overhead_bytes),
    },
    Family {
        name: "ebb_guest_overhead_pss_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        help: "The part of QEMU in what it shares with other processes, beside the guest's memory.",
        value: |figures| whole(figures.overhead_pss_bytes),
    },
    Family {
        name: "ebb_guest_oom_kills",
        kind: Kind::Counter,
        unit: "",
        help: "Processes that the guest's kernel killed because memory was out.",
        value: |figures| whole(figures.oom_kills),
    },
    Family {
        name: "ebb_guest_reported_bytes",
        kind: Kind::Counter,
        unit: "bytes",
        help: "Sum of all ranges that the guest reported as free.",
        value: |figures| whole(figures.reported_bytes),
    },
    Family {
        name: "ebb_guest_taken_bytes",
        kind: Kind::Counter,
        unit: "bytes",
        help: "Sum of all free memory that the host took by itself.",
        value: |figures| whole(figures.taken_bytes),
    },
    Family {
        name: "ebb_guest_reports",
        kind: Kind::Counter,
        unit: "",
        help: "Reports of free ranges.",
        value: |figures| whole(figures.reports),
    },
    Family {
        name: "ebb_guest_page_faults",
        kind: Kind::Counter,
        unit: "",
        help: "Page faults that the guest's kernel served.",
        value: |figures| whole(figures.faults),
    },
    Family {
        name: "ebb_guest_page_fault_rate",
        kind: Kind::Gauge,
        unit: "",
        help: "Page faults a second, over the last two seconds.",
        value: |figures| figures.faults_per_s.map(Value::Real),
    },
    Family {
        name: "ebb_guest_report_rate",
        kind: Kind::Gauge,
        unit: "",
        help: "Reports a second, over the last two seconds.",
        value: |figures| figures.reports_per_s.map(Value::Real),
    },
    Family {
        name: "ebb_guest_huge_descriptors_given_up_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        help: "Memory that the descriptors of huge pages would take, were they not given up.",
        value: |figures| whole(figures.huge_descriptors_given_up_bytes),
    },
];

/// A metric family with a sample for each hugetlb pool of each guest.
struct PoolFamily {
    name: &'static str,
    help: &'static str,
    value: fn(&HugePages) -> u64,
}

const POOL_FAMILIES: [PoolFamily; 4] = [
    PoolFamily {
        name: "ebb_guest_huge_pages",
        help: "Pages of the pool of huge pages of this size, surplus ones included.",
        value: |pool| pool.total,
    },
    PoolFamily {
        name: "ebb_guest_huge_pages_free",
        help: "Those that are not in use.",
        value: |pool| pool.free,
    },
    PoolFamily {
        name: "ebb_guest_huge_pages_reserved",
        help: "Of the free ones, those that are promised.",
        value: |pool| pool.reserved,
    },
    PoolFamily {
        name: "ebb_guest_huge_pages_surplus",
        help: "Those beyond the size of the pool that was asked for.",
        value: |pool| pool.surplus,
    },
];

/// Returns a table of all metrics in Markdown: name, type and help of each.
pub(crate) fn table() -> String {
    let mut text = String::from("| metric | type | figure |\n|---|---|---|\n");
    let mut row = |name: &str, kind: &str, help: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{name}` | {kind} | {help} |");
    };
    row(
        "ebb_guests",
        "gauge",
        "Guests that run on this host, without the labels of a guest; `answers` is `yes` or `no`.",
    );
    row(
        "ebb_guest_info",
        "info",
        "What does not change while a guest runs, as labels: `program`, `kernel`, `accelerator`, \
         `give_back`, `host_pages`.",
    );
    for family in FAMILIES {
        match family.kind {
            Kind::Gauge => row(family.name, "gauge", family.help),
            Kind::Counter => row(&format!("{}_total", family.name), "counter", family.help),
        }
    }
    for family in POOL_FAMILIES {
        let help = format!(
            "{} The label `page_bytes` is the size of a page.",
            family.help
        );
        row(family.name, "gauge", &help);
    }
    text
}

/// Returns the OpenMetrics text for these `guests`: each figure that a guest has. `silent` is the
/// number of guests that did not answer.
pub(super) fn render(guests: &[&Figures], silent: usize) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut text, guests, silent);
    text
}

fn write_all(text: &mut String, guests: &[&Figures], silent: usize) -> std::fmt::Result {
    writeln!(text, "# TYPE ebb_guests gauge")?;
    writeln!(text, "# HELP ebb_guests Guests that run on this host.")?;
    writeln!(text, "ebb_guests{{answers=\"yes\"}} {}", guests.len())?;
    writeln!(text, "ebb_guests{{answers=\"no\"}} {silent}")?;
    writeln!(text, "# TYPE ebb_guest info")?;
    writeln!(
        text,
        "# HELP ebb_guest What does not change while a guest runs."
    )?;
    for figures in guests {
        let more = [
            ("program", figures.program.as_str()),
            ("kernel", &figures.kernel.name().to_ascii_lowercase()),
            ("accelerator", &figures.accel),
            ("give_back", &figures.give_back),
            ("host_pages", &figures.host_pages),
        ];
        write!(text, "ebb_guest_info{{{}", identity(figures))?;
        for (name, value) in more {
            write!(text, ",{name}=\"{}\"", escaped(value))?;
        }
        writeln!(text, "}} 1")?;
    }
    for family in FAMILIES {
        let kind = match family.kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        writeln!(text, "# TYPE {} {kind}", family.name)?;
        if !family.unit.is_empty() {
            writeln!(text, "# UNIT {} {}", family.name, family.unit)?;
        }
        writeln!(text, "# HELP {} {}", family.name, family.help)?;
        let suffix = match family.kind {
            Kind::Gauge => "",
            Kind::Counter => "_total",
        };
        for figures in guests {
            let Some(value) = (family.value)(figures) else {
                continue;
            };
            let (name, identity) = (family.name, identity(figures));
            match value {
                Value::Whole(value) => writeln!(text, "{name}{suffix}{{{identity}}} {value}")?,
                Value::Real(value) => writeln!(text, "{name}{suffix}{{{identity}}} {value:?}")?,
            }
        }
    }
    for family in POOL_FAMILIES {
        writeln!(text, "# TYPE {} gauge", family.name)?;
        writeln!(text, "# HELP {} {}", family.name, family.help)?;
        for figures in guests {
            for pool in &figures.huge_pages {
                let (name, identity) = (family.name, identity(figures));
                let (bytes, value) = (pool.page_bytes, (family.value)(pool));
                writeln!(text, "{name}{{{identity},page_bytes=\"{bytes}\"}} {value}")?;
            }
        }
    }
    writeln!(text, "# EOF")
}

/// Returns the labels that identify a guest. Names need not be unique, but process numbers are.
fn identity(figures: &Figures) -> String {
    format!(
        "guest=\"{}\",pid=\"{}\"",
        escaped(&figures.name),
        figures.pid
    )
}

/// Returns a label's value with backslash, quote and line feed escaped.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::tests::figures;
    use std::collections::{BTreeMap, BTreeSet};

    /// The contents of the text as a strict parser reads them.
    #[derive(Debug, Default)]
    struct Read {
        kinds: BTreeMap<String, String>,
        /// Sample name, labels, value.
        samples: Vec<(String, BTreeMap<String, String>, f64)>,
    }

    /// Parses the text by the specification's grammar. Panics with the line that violates it.
    fn read(text: &str) -> Read {
        let mut read = Read::default();
        let mut current: Option<String> = None;
        let mut seen = BTreeSet::new();
        let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
        assert!(!body.contains("# EOF"));
        for line in body.split_terminator('\n') {
            if let Some(rest) = line.strip_prefix("# ") {
                let (keyword, rest) = rest.split_once(' ').expect(line);
                let (family, value) = rest.split_once(' ').expect(line);
                match keyword {
                    "TYPE" => {
                        assert!(["gauge", "counter", "info"].contains(&value), "{line}");
                        let new = read.kinds.insert(family.into(), value.into()).is_none();
                        assert!(new, "families are not interleaved: {line}");
                        current = Some(family.into());
                    }
                    "UNIT" => {
                        assert_eq!(current.as_deref(), Some(family), "{line}");
                        assert!(family.ends_with(&format!("_{value}")), "{line}");
                    }
                    "HELP" => assert_eq!(current.as_deref(), Some(family), "{line}"),
                    _ => panic!("{line}"),
                }
                continue;
            }
            let family = current.clone().expect(line);
            let (name, rest) = line.split_once('{').expect(line);
            let expected = match read.kinds[&family].as_str() {
                "counter" => format!("{family}_total"),
                "info" => format!("{family}_info"),
                _ => family,
            };
            assert_eq!(name, expected, "{line}");
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
            );
            let (labels, rest) = read_labels(rest);
            let value: f64 = rest.strip_prefix(' ').expect(line).parse().expect(line);
            assert!(value.is_finite());
            assert!(
                seen.insert((name.to_owned(), labels.clone())),
                "twice: {line}"
            );
            read.samples.push((name.into(), labels, value));
        }
        read
    }

    fn read_labels(text: &str) -> (BTreeMap<String, String>, &str) {
        let mut labels = BTreeMap::new();
        let mut rest = text;
        loop {
            let (name, after) = rest.split_once("=\"").expect(text);
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next().expect(text) {
                    (_, '\\') => value.push(match chars.next().expect(text).1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        c => panic!("\\{c} is no escape"),
                    }),
                    (at, '"') => break at,
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(name.to_owned(), value).is_none());
            rest = &after[end + 1..];
            match rest.as_bytes().first() {
                Some(b',') => rest = &rest[1..],
                Some(b'}') => return (labels, &rest[1..]),
                _ => panic!("{text}"),
            }
        }
    }

    #[test]
    fn text_reads_back() {
        let mut odd = figures("quo\"te\\ \n}=,{", 45 << 20);
        odd.pid = 78;
        odd.used_bytes = None;
        odd.faults = None;
        let gib = HugePages {
            page_bytes: 1 << 30,
            ..odd.huge_pages[0]
        };
        odd.huge_pages.push(gib);
        let plain = figures("plain", 3 << 29);
        let read = read(&render(&[&plain, &odd], 1));
        let value = |name: &str, guest: &str| {
            let found = read.samples.iter().find(|(sample, labels, _)| {
                sample == name && labels.get("guest").is_some_and(|label| label == guest)
            });
            found.map(|(.., value)| *value)
        };
        assert_eq!(
            value("ebb_guest_resident_bytes", "plain"),
            Some(1_610_612_736.0)
        );
        assert_eq!(value("ebb_guest_page_faults_total", "plain"), Some(1234.0));
        assert_eq!(value("ebb_guest_info", &odd.name), Some(1.0));
        assert_eq!(value("ebb_guest_used_bytes", &odd.name), None);
        assert_eq!(value("ebb_guest_page_faults_total", &odd.name), None);
        assert_eq!(read.samples[0].2 + read.samples[1].2, 3.0);
        assert_eq!(value("ebb_guest_huge_pages", "plain"), Some(12.0));
        assert_eq!(value("ebb_guest_huge_pages_free", "plain"), Some(9.0));
        let gib = |labels: &BTreeMap<_, _>| {
            labels["guest"] == odd.name && labels["page_bytes"] == "1073741824"
        };
        let reserved = read
            .samples
            .iter()
            .find(|(name, labels, _)| name == "ebb_guest_huge_pages_reserved" && gib(labels));
        assert_eq!(reserved.map(|(.., value)| *value), Some(2.0));
        let kinds = FAMILIES.len() + POOL_FAMILIES.len() + 2;
        assert_eq!(read.kinds.len(), kinds);
    }

    #[test]
    fn no_guests_are_a_valid_answer() {
        let read = read(&render(&[], 0));
        assert_eq!(read.samples.len(), 2);
    }

    #[test]
    fn families_are_named_as_the_specification_asks() {
        for family in FAMILIES {
            assert!(!family.name.ends_with("_total"), "{}", family.name);
            assert!(!family.name.ends_with("_info"), "{}", family.name);
            let unit = ["bytes", "seconds"]
                .into_iter()
                .find(|unit| family.name.ends_with(&format!("_{unit}")));
            assert_eq!(unit.unwrap_or(""), family.unit, "{}", family.name);
        }
    }
}
