//! Drives `ebb blk` and `qemu-storage-daemon` in turn, with the same requests on the same images,
//! and prints tables in Markdown:
//!
//! ```text
//! cargo run --release -p ebb-blk --example drive -- --ebb target/release/ebb
//! ```
//!
//! A RAM-backed image is on tmpfs, a file-backed one in the folder given by `--folder`. All
//! back-ends use direct I/O and io_uring. Runs are short and alternate, in another order each
//! round, so that disturbances of the machine affect all. The two runs of a round are compared. A
//! difference is *proven* if the interval of the median ratio, at 95 %, is on one side of 1.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes and ranks that are small and positive"
)]

#[path = "../../tests/frontend/mod.rs"]
mod frontend;
mod load;
mod paired;
mod served;

use ebb_blk::pool::{DEFAULT_MAX_BUFFER_PAGES, SHRINK_INTERVAL};
use frontend::Failed;
use load::{Figures, IMAGE, Load, drive};
use paired::{Middle, Verdict, ratio};
use served::{Backend, Memory, Served};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The options of the command line.
pub(crate) struct Options {
    ebb: PathBuf,
    folder: PathBuf,
    rounds: usize,
    run: Duration,
    /// Only these kinds of image.
    kind: Option<String>,
    /// Only loads whose name contains this text.
    only: String,
    peer: Backend,
}

fn options() -> Result<Options, Failed> {
    let mut options = Options {
        ebb: "target/release/ebb".into(),
        folder: "target".into(),
        rounds: 9,
        run: Duration::from_millis(200),
        kind: None,
        only: String::new(),
        peer: Backend::Qemu,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("{name} lacks its value"))?;
        match (name.as_str(), value.as_str()) {
            ("--ebb", _) => options.ebb = value.into(),
            ("--folder", _) => options.folder = value.into(),
            ("--rounds", _) => options.rounds = value.parse()?,
            ("--run-ms", _) => options.run = Duration::from_millis(value.parse()?),
            ("--only", _) => options.only = value,
            ("--image", "ram" | "file") => options.kind = Some(value),
            ("--peer", "main-loop") => options.peer = Backend::Qemu,
            ("--peer", "iothread") => options.peer = Backend::QemuIothread,
            _ => {
                return Err(format!(
                    "{name} {value}: there are --ebb PATH, --folder PATH, --rounds N, --run-ms N, \
                     --only TEXT, --image ram|file and --peer main-loop|iothread"
                )
                .into());
            }
        }
    }
    Ok(options)
}

fn main() -> Result<(), Failed> {
    let options = options()?;
    let pid = std::process::id();
    println!("{}\n", environment(&options));
    println!(
        "{} MiB images, medians of {} rounds of {} ms. *of its* is the middle of the ratios of \
         IOPS, round by round, and where the true middle lies with 95 % confidence.",
        IMAGE >> 20,
        options.rounds,
        options.run.as_millis()
    );
    for (kind, title, image) in [
        (
            "ram",
            "RAM (tmpfs)",
            PathBuf::from(format!("/dev/shm/ebb-drive-{pid}.img")),
        ),
        (
            "file",
            "File",
            options.folder.join(format!("ebb-drive-{pid}.img")),
        ),
    ] {
        if options.kind.as_ref().is_some_and(|only| only != kind) {
            continue;
        }
        let result = measure(&options, kind, title, &image);
        let _ = std::fs::remove_file(&image);
        result?;
    }
    Ok(())
}

/// Returns a description of the machine on which the figures were taken.
fn environment(options: &Options) -> String {
    let file = |path| std::fs::read_to_string(path).unwrap_or_default();
    let info = file("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("", |line| line.trim_start_matches([' ', '\t', ':']));
    let processors = info
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let version = |command: &Path| {
        let output = Command::new(command).arg("--version").output().ok();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let first = text.and_then(|text| text.lines().next().map(str::to_owned));
        first.unwrap_or_default()
    };
    format!(
        "{model}, {processors} CPUs, Linux {}; {}; {}.",
        file("/proc/sys/kernel/osrelease").trim(),
        version(&options.ebb),
        version(Path::new("qemu-storage-daemon")),
    )
}

/// Index of the runs of an `ebb blk` with an empty pool.
const EMPTY: usize = 2;

/// The runs of one back-end with one load.
#[derive(Default)]
struct Runs(Vec<Figures>);

impl Runs {
    fn all(&self, pick: fn(&Figures) -> f64) -> Vec<f64> {
        self.0.iter().map(pick).collect()
    }

    fn median(&self, pick: fn(&Figures) -> f64) -> f64 {
        Middle::of(self.all(pick)).map_or(f64::NAN, |middle| middle.median)
    }

    fn busy_kib(&self) -> u64 {
        self.0.iter().map(|f| f.busy_kib).max().unwrap_or(0)
    }
}

/// Returns a ratio and whether it is proven, as text for a table.
fn told(ratio: Option<Middle>) -> String {
    ratio.map_or_else(
        || "–".into(),
        |ratio| {
            let verdict = match ratio.verdict() {
                Verdict::More => "more",
                Verdict::Less => "**less**",
                Verdict::Unproven => "not proven",
            };
            let Middle { median, low, high } = ratio;
            format!("{median:.2} ({low:.2} to {high:.2}) | {verdict}")
        },
    )
}

/// Measures all loads on one image and prints the table.
fn measure(options: &Options, kind: &str, title: &str, image: &Path) -> Result<(), Failed> {
    // The image is written completely and made durable, because holes and dirty pages would affect
    // the figures.
    std::fs::write(image, vec![0x5a_u8; IMAGE as usize])?;
    std::fs::File::open(image)?.sync_all()?;
    let backends = [Backend::Ebb, options.peer];
    let all = backends.map(|which| Served::start(which, options, image));
    let all: Vec<_> = all.into_iter().collect::<Result<_, _>>()?;
    let memory = || {
        all.iter()
            .map(Served::memory)
            .collect::<Result<Vec<_>, _>>()
    };
    let at_start = memory()?;
    let peer = options.peer.name();
    println!("\n#### {title}\n");
    println!(
        "| requests | depth | ebb blk: IOPS, median µs, 99 % µs | {peer}: the same | of its | 95 % | \
         KiB busy | its |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut pools = Vec::new();
    let mut verdicts = Vec::new();
    let mut busiest = vec![0; backends.len()];
    let loads = Load::all();
    for load in loads
        .iter()
        .filter(|load| load.to_string().contains(&options.only))
    {
        // Only loads that use the pool can show the value of the pool. An image in memory uses any
        // address.
        let count = if load.odd && kind == "file" { 3 } else { 2 };
        let mut runs: Vec<Runs> = (0..count).map(|_| Runs::default()).collect();
        for round in 0..options.rounds {
            for step in 0..count {
                let which = (round + step) % count;
                let seed = 0x9e37_79b9_7f4a_7c15 ^ (round as u64) << 1;
                let empty = which == EMPTY;
                if empty {
                    all[0].keep_pages(0)?;
                }
                let served = if empty { &all[0] } else { &all[which] };
                let figures = drive(served, load, options.run, seed)?;
                if empty {
                    all[0].keep_pages(DEFAULT_MAX_BUFFER_PAGES)?;
                }
                runs[which].0.push(figures);
            }
        }
        let iops = |which: usize| runs[which].all(|f| f.iops);
        let cell = |runs: &Runs| {
            let figure = |pick| runs.median(pick);
            format!(
                "{:.0}, {:.0}, {:.0}",
                figure(|f| f.iops),
                figure(|f| f.median_us),
                figure(|f| f.p99_us)
            )
        };
        let compared = ratio(&iops(0), &iops(1));
        verdicts.extend(compared.map(Middle::verdict));
        println!(
            "| {load} | {} | {} | {} | {} | {} |",
            cell(&runs[0]),
            cell(&runs[1]),
            told(compared),
            runs[0].busy_kib(),
            runs[1].busy_kib(),
        );
        for (most, runs) in busiest.iter_mut().zip(&runs) {
            *most = runs.busy_kib().max(*most);
        }
        if count == 3 {
            pools.push((load, cell(&runs[EMPTY]), ratio(&iops(0), &iops(EMPTY))));
        }
    }
    let rows = |wanted| verdicts.iter().filter(|v| **v == wanted).count();
    println!(
        "\nMore IOPS than {peer} in {} of {} rows, less in {}; {} not proven either way.",
        rows(Verdict::More),
        verdicts.len(),
        rows(Verdict::Less),
        rows(Verdict::Unproven),
    );
    if !pools.is_empty() {
        println!(
            "\nWhat the pool buys: `ebb blk` with `max_buffer_pages=0`: each batch of requests returns its pages.\n\n\
             | requests | depth | IOPS, median µs, 99 % µs | IOPS with 1024, of these | 95 % |\n\
             |---|---|---|---|---|"
        );
    }
    for (load, cell, compared) in pools {
        println!("| {load} | {cell} | {} |", told(compared));
    }
    // Time for either back-end to free what it does not need.
    std::thread::sleep(SHRINK_INTERVAL * 3);
    let after = memory()?;
    all.iter().try_for_each(Served::squeeze)?;
    let squeezed = memory()?;
    println!(
        "\n| anonymous memory, KiB | at start | busiest | idle after | squeezed | program, KiB |\n\
         |---|---|---|---|---|---|"
    );
    let of = |memory: &[Memory], which: usize| memory[which].anonymous;
    for (which, backend) in backends.iter().enumerate() {
        println!(
            "| {} | {} | {} | {} | {} | {} |",
            backend.name(),
            of(&at_start, which),
            busiest[which],
            of(&after, which),
            of(&squeezed, which),
            after[which].program,
        );
    }
    Ok(())
}
