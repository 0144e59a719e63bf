//! `ebb top --once`, which prints the guests as a table or as JSON. The comments on fields are the
//! text of docs/json.md.

use super::columns::{Column, GAP, noted, padded};
use crate::failure::Failure;
use crate::registry::{Figures, GuestId, Presence};
use crate::stdout;
use crate::text::printable_json;
use serde::Serialize;
use std::collections::BTreeMap;

/// The version of the JSON format. It is raised when a field changes its meaning or is removed.
const VERSION: u32 = 1;
/// The width of the table if stdout is no terminal.
const WIDTH_ENDLESS: usize = 400;
const NO_GUESTS: &str = "No guests are running. `ebb run -- PROGRAM` starts one.";

/// The guests of this user.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Listing<'a> {
    /// The version of the format, which is 1. It rises when a field changes its meaning or goes,
    /// not when one is added.
    version: u32,
    /// The guests that answered, in the order of `--sort`.
    guests: Vec<&'a Figures>,
    /// The paths of the sockets of runs that did not answer within 0.7 s.
    silent: Vec<String>,
}

/// Prints the guests `found` to stdout, sorted by `sort`, as JSON if `json` or else as a table of
/// the terminal's width. Fails if stdout cannot be written to. A closed pipe is no failure.
pub(super) fn print(
    found: &BTreeMap<GuestId, Presence>,
    sort: Column,
    json: bool,
) -> Result<(), Failure> {
    let text = if json {
        as_json(found, sort)
    } else {
        let width = rustix::termios::tcgetwinsize(rustix::stdio::stdout())
            .ok()
            .filter(|size| size.ws_col > 0)
            .map_or(WIDTH_ENDLESS, |size| usize::from(size.ws_col));
        as_table(found, sort, width)
    };
    stdout::offer(&text)
}

fn sorted(found: &BTreeMap<GuestId, Presence>, sort: Column) -> (Vec<&Figures>, Vec<String>) {
    let mut guests = Vec::with_capacity(found.len());
    let mut silent = Vec::new();
    for (id, presence) in found {
        match presence {
            Presence::Here(figures) => guests.push(&**figures),
            Presence::Silent => silent.push(id.to_string()),
        }
    }
    guests.sort_by(|a, b| sort.order(a, b));
    (guests, silent)
}

fn as_json(found: &BTreeMap<GuestId, Presence>, sort: Column) -> String {
    let (guests, silent) = sorted(found, sort);
    let listing = Listing {
        version: VERSION,
        guests,
        silent,
    };
    // Serialisation cannot fail, because the listing has only strings and numbers.
    let mut text = printable_json(&listing, true).unwrap_or_default();
    text.push('\n');
    text
}

fn as_table(found: &BTreeMap<GuestId, Presence>, sort: Column, width: usize) -> String {
    let (guests, silent) = sorted(found, sort);
    let mut text = String::new();
    if guests.is_empty() && silent.is_empty() {
        return format!("{NO_GUESTS}\n");
    }
    let columns = Column::fitting(width);
    let mut line = |cell: &dyn Fn(Column, usize) -> String| {
        let cells = columns
            .iter()
            .map(|(column, width)| padded(&cell(*column, *width), *width, column.is_text()));
        let cells: Vec<_> = cells.collect();
        text.push_str(cells.join(&" ".repeat(GAP)).trim_end());
        text.push('\n');
    };
    line(&|column, _| column.heading().to_owned());
    for figures in guests {
        line(&|column, width| {
            let cell = column.cell(figures);
            match figures.standstill_word() {
                Some(word) if column == Column::Name => noted(&cell, word, width),
                _ => cell,
            }
        });
    }
    for socket in silent {
        text.push_str(&format!("{socket} does not answer\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::tests::figures;

    fn two() -> BTreeMap<GuestId, Presence> {
        let here = |name: &str, resident| {
            let presence = Presence::Here(Box::new(figures(name, resident)));
            (GuestId::of_test(name), presence)
        };
        BTreeMap::from([here("small", 45 << 20), here("large", 3 << 29)])
    }

    #[test]
    fn tables_are_aligned() {
        let text = as_table(&two(), Column::Resident, 81);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "NAME               MEMORY     USED    CACHE     FREE  RESIDENT      GAP  FAULTS/s",
                "large               4.00G    1.00G     1.0M    3.00G     1.50G   512.0M       120",
                "small               4.00G    30.0M     1.0M    3.97G     45.0M    15.0M       120",
            ]
        );
        assert!(text.lines().all(|line| line.chars().count() <= 81));
    }

    #[test]
    fn an_empty_list_tells_how_to_start_a_guest() {
        assert!(as_table(&BTreeMap::new(), Column::Name, 80).contains("ebb run -- PROGRAM"));
        let json: serde_json::Value =
            serde_json::from_str(&as_json(&BTreeMap::new(), Column::Name)).unwrap();
        assert_eq!(json["guests"].as_array().map(Vec::len), Some(0));
    }

    #[test]
    fn json_has_every_figure() {
        let mut found = two();
        found.insert(GuestId::of_test("/run/9.sock"), Presence::Silent);
        let json: serde_json::Value =
            serde_json::from_str(&as_json(&found, Column::Resident)).unwrap();
        assert_eq!(json["guests"][0]["name"], "large");
        assert_eq!(json["guests"][1]["resident_bytes"], 45 << 20);
        assert_eq!(json["silent"][0], "/run/9.sock");
        assert_eq!(
            crate::pages::problems_of("top", &json),
            Vec::<String>::new()
        );
    }
}
