//! The records of the laboratory's machines: lines of their consoles that begin with `LAB`.

use std::collections::BTreeMap;

/// The back-end that serves a guest's disks.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Backend {
    /// Linux's `xen-blkback`.
    Kernel,
    /// `ebb blk serve --xen`.
    Ebb,
}

impl Backend {
    /// Both back-ends, in the order of tables.
    pub(crate) const ALL: [Self; 2] = [Self::Kernel, Self::Ebb];

    /// Returns the name for tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kernel => "`xen-blkback`",
            Self::Ebb => "`ebb blk`",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "kernel" => Some(Self::Kernel),
            "ebb" => Some(Self::Ebb),
            _ => None,
        }
    }
}

/// The pool of a disk while its I/O is measured.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Pool {
    /// `max_buffer_pages` is 0, so each batch of requests returns its pages.
    Empty,
    /// In a squeeze that does not end, so each batch returns its pages, too.
    Squeezed,
    /// `max_buffer_pages` is 1024, the default. The other pools are compared with this one.
    Full,
    /// As `Full`, in the hold of a squeeze. Only `ebb blk` has one.
    Held,
    /// As `Full`, on a disk whose front-end agrees to persistent grants.
    Persistent,
}

impl Pool {
    /// All pools, in the order of tables.
    pub(crate) const ALL: [Self; 5] = [
        Self::Empty,
        Self::Squeezed,
        Self::Full,
        Self::Held,
        Self::Persistent,
    ];

    /// Returns the name for tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "0",
            Self::Squeezed => "squeezed",
            Self::Full => "1024",
            Self::Held => "1024, held",
            Self::Persistent => "1024, persistent grants",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text {
            "0" => Some(Self::Empty),
            "squeezed" => Some(Self::Squeezed),
            "1024" => Some(Self::Full),
            "held" => Some(Self::Held),
            "persistent" => Some(Self::Persistent),
            _ => None,
        }
    }
}

/// What the pools of `ebb blk` held and returned in one run.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct PoolPages {
    /// Free pages of all pools at the end of the run.
    pub(crate) kept: f64,
    /// Pages that the pools returned to the system during the run.
    pub(crate) returned: f64,
}

/// Numbers of pages that were swapped in and out in one run.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Swap {
    /// The back-end.
    pub(crate) backend: Backend,
    /// Duration of the squeeze in ms; 0 for none.
    pub(crate) squeeze_ms: u32,
    /// The hold of the squeeze (`squeeze_hold_ms`), in ms from the event on; 0 for none.
    pub(crate) hold_ms: u32,
    /// MiB that the guest wrote.
    pub(crate) written_mib: f64,
    /// The pools' pages. `None` for Linux's back-end, which does not report them.
    pub(crate) pool_pages: Option<PoolPages>,
    /// Pages swapped in.
    pub(crate) pswpin: f64,
    /// Pages swapped out.
    pub(crate) pswpout: f64,
    /// Duration of the run in seconds.
    pub(crate) seconds: f64,
}

/// One measurement of I/O.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Io {
    /// The kind of device.
    pub(crate) device: String,
    /// The load.
    pub(crate) load: String,
    /// The unit of `value`.
    pub(crate) unit: String,
    /// The back-end.
    pub(crate) backend: Backend,
    /// The pool.
    pub(crate) pool: Pool,
    /// The figure.
    pub(crate) value: f64,
}

/// All records.
#[derive(Clone, Default, Debug)]
pub(crate) struct Records {
    pub(crate) swap: Vec<Swap>,
    pub(crate) io: Vec<Io>,
    /// Descriptions of machine, host and set-up, for each experiment.
    pub(crate) facts: Vec<String>,
    /// Messages about failures.
    pub(crate) failures: Vec<String>,
}

impl Records {
    /// Adds the records in `log`.
    pub(crate) fn read(&mut self, log: &str) {
        for line in log.lines() {
            // Other output may precede the record on a line.
            let Some((_, text)) = line.trim_end().split_once("LAB ") else {
                continue;
            };
            let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
            match kind {
                "swap" => match swap(rest) {
                    Some(swap) => self.swap.push(swap),
                    None => self.failures.push(format!("not understood: {text}")),
                },
                "io" => match io(rest) {
                    Some(io) => self.io.push(io),
                    None => self.failures.push(format!("not understood: {text}")),
                },
                "fact" => self.facts.push(rest.to_owned()),
                "failed:" => self.failures.push(rest.to_owned()),
                _ => {}
            }
        }
    }
}

fn fields(text: &str) -> BTreeMap<&str, &str> {
    text.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .collect()
}

fn figure(fields: &BTreeMap<&str, &str>, name: &str) -> Option<f64> {
    let figure: f64 = fields.get(name)?.parse().ok()?;
    (figure.is_finite() && figure >= 0.0).then_some(figure)
}

fn swap(text: &str) -> Option<Swap> {
    let fields = fields(text);
    let backend = Backend::parse(fields.get("backend")?)?;
    Some(Swap {
        backend,
        squeeze_ms: fields.get("squeeze_ms")?.parse().ok()?,
        hold_ms: fields.get("hold_ms")?.parse().ok()?,
        written_mib: figure(&fields, "mib")?,
        pool_pages: match backend {
            Backend::Kernel => None,
            Backend::Ebb => Some(pool_pages(&fields)?),
        },
        pswpin: figure(&fields, "pswpin")?,
        pswpout: figure(&fields, "pswpout")?,
        seconds: figure(&fields, "ended")? - figure(&fields, "began")?,
    })
}

fn pool_pages(fields: &BTreeMap<&str, &str>) -> Option<PoolPages> {
    Some(PoolPages {
        kept: figure(fields, "kept")?,
        returned: figure(fields, "returned")?,
    })
}

fn io(text: &str) -> Option<Io> {
    let fields = fields(text);
    Some(Io {
        device: (*fields.get("device")?).to_owned(),
        load: (*fields.get("load")?).to_owned(),
        unit: (*fields.get("unit")?).to_owned(),
        backend: Backend::parse(fields.get("backend")?)?,
        pool: Pool::parse(fields.get("pool")?)?,
        value: figure(&fields, "value")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_on_a_noisy_console() {
        let mut records = Records::default();
        records.read(
            "(XEN) hello\n\
             [ 1.0] xLAB swap backend=ebb squeeze_ms=10 hold_ms=5 round=1 mib=48 pswpin=7 pswpout=9 \
             began=1.5 ended=3.0 kept=4 returned=2\r\n\
             LAB swap backend=kernel squeeze_ms=0 hold_ms=0 mib=48 pswpin=1 pswpout=2 began=0 ended=1 \n\
             LAB io backend=kernel pool=0 round=0 device=fast load=dd value=12.5 unit=MB/s\n\
             LAB fact disks=24\n\
             LAB failed: xl create\n\
             LAB end at 3 s\n",
        );
        assert_eq!(
            records.swap,
            [
                Swap {
                    backend: Backend::Ebb,
                    squeeze_ms: 10,
                    hold_ms: 5,
                    written_mib: 48.0,
                    pool_pages: Some(PoolPages {
                        kept: 4.0,
                        returned: 2.0
                    }),
                    pswpin: 7.0,
                    pswpout: 9.0,
                    seconds: 1.5
                },
                Swap {
                    backend: Backend::Kernel,
                    squeeze_ms: 0,
                    hold_ms: 0,
                    written_mib: 48.0,
                    pool_pages: None,
                    pswpin: 1.0,
                    pswpout: 2.0,
                    seconds: 1.0
                }
            ]
        );
        assert_eq!(records.io.len(), 1);
        assert_eq!(records.io[0].pool, Pool::Empty);
        assert_eq!(records.facts, ["disks=24"]);
        assert_eq!(records.failures, ["xl create"]);
    }

    #[test]
    fn a_line_that_is_cut_off_is_a_failure() {
        let mut records = Records::default();
        records
            .read("LAB swap backend=ebb squeeze_ms=10 pswpin=7\nLAB io value=-1\nLAB io backend=x");
        records.read("LAB io backend=ebb pool=full device=fast load=dd value=1 unit=MB/s");
        assert_eq!(records.failures.len(), 4);
        assert!(records.swap.is_empty() && records.io.is_empty());
    }
}
