//! Compares Ebb's allocator with the page-frame allocators of crates.io in one interleaved run.
//! Each round measures every allocator once, so that other load on the machine affects all.
//!
//!     cargo bench -p ebb-mm-benches --bench peers [-- --quick] [--json] [ROW…]
//!
//! `--quick` runs fewer rounds, and uses 64 GiB for a large memory instead of 1 TiB. `ROW` is a
//! part of a row's name.
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "figures of a bench"
)]

mod clock;
mod column;
mod contest;
mod levels;
mod rows;
mod table;

use std::env;

use column::{Column, Contestant};
use contest::{Bitmap, BuddySlab, BuddySystem, Depot, Ebb, GIB, Ranges};
use rows::TABLE;
use table::{Figure, Table};

const ROUNDS: usize = 31;
const QUICK_ROUNDS: usize = 7;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let quick = flag("--quick");
    let wanted: Vec<_> = arguments.iter().filter(|a| !a.starts_with("--")).collect();
    let (rounds, large) = if quick {
        (QUICK_ROUNDS, 64 * GIB)
    } else {
        (ROUNDS, 1024 * GIB)
    };
    let mut columns: [Box<dyn Column>; 6] = [
        Box::new(Contestant::<Ebb>::new()),
        Box::new(Contestant::<Depot>::new()),
        Box::new(Contestant::<BuddySystem>::new()),
        Box::new(Contestant::<Bitmap>::new()),
        Box::new(Contestant::<BuddySlab>::new()),
        Box::new(Contestant::<Ranges>::new()),
    ];
    let mut table = Table::new(columns.iter().map(|column| column.name()).collect(), large);
    let mut stage = None;
    for (measure, on, rows) in TABLE {
        if stage != Some(on) {
            stage = Some(on);
            for column in &mut columns {
                column.prepare(on, large);
            }
        }
        let named = |row: &rows::Row| wanted.iter().any(|part| row.name.contains(*part));
        if !wanted.is_empty() && !rows.iter().any(named) {
            continue;
        }
        eprintln!("{}", rows[0].name);
        let mut samples = vec![vec![Vec::new(); columns.len()]; rows.len()];
        for _ in 0..rounds {
            for (at, column) in columns.iter_mut().enumerate() {
                let figures = column.round(measure, large).unwrap_or_default();
                for (row, figure) in figures.into_iter().enumerate() {
                    samples[row][at].push(figure);
                }
            }
        }
        for (row, samples) in rows.iter().zip(samples) {
            let figures = samples.into_iter().zip(&columns).map(|(samples, column)| {
                let size = column.size(on, large).unwrap_or(0);
                Figure::of(samples, on != rows::Stage::Small && size < large)
            });
            table.push(*row, on, figures.collect());
        }
    }
    if flag("--json") {
        println!("{}", table.json(rounds));
    } else {
        println!("{table}");
    }
}
