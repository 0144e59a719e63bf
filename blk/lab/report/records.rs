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

/// Numbers of pages that were swapped in and out in one run.
#[derive(Copy, Clone, PartialEq, Debug)]
pub(crate) struct Swap {
    /// The back-end.
    pub(crate) backend: Backend,
    /// Duration of the squeeze in ms; 0 for none.
    pub(crate) squeeze_ms: u32,
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
    /// `max_buffer_pages`, or the word for a pool that is squeezed.
    pub(crate) pool: String,
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
    Some(Swap {
        backend: Backend::parse(fields.get("backend")?)?,
        squeeze_ms: fields.get("squeeze_ms")?.parse().ok()?,
        pswpin: figure(&fields, "pswpin")?,
        pswpout: figure(&fields, "pswpout")?,
        seconds: figure(&fields, "ended")? - figure(&fields, "began")?,
    })
}

fn io(text: &str) -> Option<Io> {
    let fields = fields(text);
    Some(Io {
        device: (*fields.get("device")?).to_owned(),
        load: (*fields.get("load")?).to_owned(),
        unit: (*fields.get("unit")?).to_owned(),
        backend: Backend::parse(fields.get("backend")?)?,
        pool: (*fields.get("pool")?).to_owned(),
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
             [ 1.0] xLAB swap backend=ebb squeeze_ms=10 round=1 pswpin=7 pswpout=9 began=1.5 ended=3.0\r\n\
             LAB io backend=kernel pool=0 round=0 device=fast load=dd value=12.5 unit=MB/s\n\
             LAB fact disks=24\n\
             LAB failed: xl create\n\
             LAB end at 3 s\n",
        );
        assert_eq!(
            records.swap,
            [Swap {
                backend: Backend::Ebb,
                squeeze_ms: 10,
                pswpin: 7.0,
                pswpout: 9.0,
                seconds: 1.5
            }]
        );
        assert_eq!(records.io.len(), 1);
        assert_eq!(records.io[0].pool, "0");
        assert_eq!(records.facts, ["disks=24"]);
        assert_eq!(records.failures, ["xl create"]);
    }

    #[test]
    fn a_line_that_is_cut_off_is_a_failure() {
        let mut records = Records::default();
        records
            .read("LAB swap backend=ebb squeeze_ms=10 pswpin=7\nLAB io value=-1\nLAB io backend=x");
        assert_eq!(records.failures.len(), 3);
        assert!(records.swap.is_empty() && records.io.is_empty());
    }
}
