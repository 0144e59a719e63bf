//! The JSON documents for users: the command that writes or reads each, its type, and an example.

use super::schema::{Direction, schema_of};
use crate::ask::{BalloonOutcome, Deflated, Outcome};
use crate::compare::{KernelsReport, OwnReport, What};
use crate::registry::{Question, Reply};
use crate::run::{Line, Record};
use crate::top::Listing;
use ebb_blk::control;
use serde_json::Value;

/// A JSON document that a command writes or reads.
#[derive(Debug)]
pub(super) struct Document {
    /// The name of its schema file, without the ending.
    pub(super) name: &'static str,
    /// The heading of its section on the page, in Markdown.
    pub(super) heading: &'static str,
    /// The paragraph below the heading, in Markdown.
    pub(super) text: &'static str,
    /// Examples, one after the other. `…` stands for fields or elements that are not shown.
    pub(super) example: &'static str,
    /// Returns the schema of the document's type.
    schema: fn() -> Value,
}

impl Document {
    /// Returns the path of the schema file, below `docs`.
    pub(super) fn file(&self) -> String {
        format!("schemas/{}.json", self.name)
    }

    /// Returns the JSON Schema of the document. Its title is the heading.
    pub(super) fn schema(&self) -> Value {
        let mut schema = (self.schema)();
        schema["title"] = self.heading.replace('`', "").into();
        schema
    }
}

/// All documents, in the order of the page.
pub(super) const DOCUMENTS: &[Document] = &[
    Document {
        name: "top",
        heading: "`ebb top --once --json`",
        text: "Prints one object on several lines.",
        example: r#"{
  "version": 1,
  "guests": [
    {"name": "job-4711", "kernel": "ebb", "life": "running", "memory_bytes": 1073741824,
     "used_bytes": 9437184, "resident_bytes": 8290304, …}
  ],
  "silent": []
}"#,
        schema: || schema_of::<Listing<'_>>(Direction::Written),
    },
    Document {
        name: "reclaim",
        heading: "`ebb reclaim --json`",
        text: "Prints one object on a line when all steps are done.",
        example: r#"{"guest": "job", "pid": 4711, "target_bytes": null, "resident_before_bytes": 640163840,
 "resident_after_bytes": 7970816, "reclaimed_bytes": 632193024,
 "steps": [{"step": "free", "reclaimed_bytes": 632193024, "resident_after_bytes": 7970816}]}"#,
        schema: || schema_of::<Outcome>(Direction::Written),
    },
    Document {
        name: "reclaim-balloon",
        heading: "`ebb reclaim --qmp SOCKET --json`",
        text: "Prints one object on a line when the balloon is deflated again.",
        example: r#"{"pid": 4712, "target_bytes": 268435456, "memory_bytes": 1073741824,
 "ballooned_bytes": 268435456, "missing_bytes": 0, "resident_before_bytes": 702545920,
 "resident_after_bytes": 434110464}"#,
        schema: || schema_of::<BalloonOutcome>(Direction::Written),
    },
    Document {
        name: "reclaim-deflate",
        heading: "`ebb reclaim --qmp SOCKET --deflate --json`",
        text: "Prints one object on a line.",
        example: r#"{"pid": 4712, "memory_before_bytes": 805306368, "memory_after_bytes": 1073741824,
 "memory_full_bytes": 1073741824}"#,
        schema: || schema_of::<Deflated>(Direction::Written),
    },
    Document {
        name: "record",
        heading: "`ebb run --record FILE`",
        text: "Writes one object on a line at the end of the run. A new file has mode 0600, because the \
               command lines in it may hold secrets. The environment of the program is not in it.",
        example: r#"{"schema": 1, "kernel": {"name": "ebb", "version": "0.1.0"}, "memory": 1073741824, "cpus": 2,
 "started_s": 0.11, "wall_s": 11.1,
 "summary": {"peak_used": 1085276160, "ran": 11100.2,
  "return": {"freed": 1076047872, "returned": 1076047872, "half": 100.1, "most": 100.1}, …},
 "status": {"code": 0, "signal": null}, …}"#,
        schema: || schema_of::<Record>(Direction::Written),
    },
    Document {
        name: "timeline",
        heading: "`ebb run --timeline FILE`",
        text: "Writes an object a line while the guest runs: every 50 ms, and every 5 ms while the \
               resident memory changes. The schema is that of one line.",
        example: r#"{"t_ms": 150.125, "monotonic_s": 5301.25, "used": 9437184, "ballooned": 0, "resident": 8290304, "unreported": 0,
 "reported": 0, "taken": 0, "reports": 0, "ranges": 0, "file": 1048576, "faults": 120}"#,
        schema: || schema_of::<Line<'_>>(Direction::Written),
    },
    Document {
        name: "compare",
        heading: "`ebb compare EXPERIMENT… --json FILE`",
        text: "Writes one object on a line when all runs are done. `--from` and `--against` read it; \
               they ignore fields that they do not know.",
        example: r#"{"schema": 2, "complete": true, "created": "2026-11-29T12:00:00Z",
 "table": [
  {"experiment": "page-fault", "metric": "fault_ns", "unit": "ns", "better": "lower",
   "labels": {"size": "4k"}, "ratio": 3.2,
   "interval": {"boots": 18, "low": 3.1, "high": 3.3, "confidence": 0.96},
   "cells": [
    {"guest": "ebb", "give_back": "reporting", "median": 812.5, "min": 790, "max": 840.25,
     "rounds": 18}, …]}, …], …}"#,
        schema: || schema_of::<KernelsReport>(Direction::Written),
    },
    Document {
        name: "compare-columns",
        heading: "`ebb compare --json FILE -- PROGRAM`, or with `--variant`",
        text: "Writes one object on a line when all runs are done. `--from` and `--against` read it; \
               they ignore fields that they do not know, and compute `table` again.",
        example: r#"{"kind": "columns", "schema": 2, "complete": true,
 "columns": [{"name": "Ebb", "options": []}, {"name": "small", "options": ["-m", "256M"]}],
 "table": [
  {"subject": "./mine", "metric": "rate", "unit": "1/s", "better": "higher", "by_program": true,
   "labels": {},
   "cells": [
    {"column": "small", "median": 4890.5, "min": 4700, "max": 5010, "rounds": 3,
     "ratio": 0.95}, …]}, …], …}"#,
        schema: || schema_of::<OwnReport>(Direction::Written),
    },
    Document {
        name: "event",
        heading: "Events of programs",
        text: "`ebb workloads EXPERIMENT --json` prints events, and `ebb compare -- PROGRAM` reads those of \
               any program ([Comparing](compare.md#events)). Each is an object on a line. Fields that are \
               not known are ignored.",
        example: r#"{"event": "phase", "name": "touched", "at_s": 1.25, "bytes": 1073741824}
{"event": "result", "metric": "requests_per_second", "value": 5123.5, "unit": "1/s",
 "better": "higher", "labels": {"clients": "4"}}"#,
        schema: || schema_of::<What>(Direction::Read),
    },
    Document {
        name: "control-question",
        heading: "Questions to a run",
        text: "[The control socket](control.md) of `ebb run` reads an object a line, at most 1024 bytes.",
        example: r#"{"get": "figures"}
{"get": "history", "after_ms": 15000}
{"disks": {"do": "squeeze"}}
{"set": {"give_back": "hinting"}}
{"reclaim": {"step": "free"}}
{"cpus": "pause"}"#,
        schema: || schema_of::<Question>(Direction::Read),
    },
    Document {
        name: "control-answer",
        heading: "Answers of a run",
        text: "The control socket writes an object a line for each question, at most 2 MiB. \
               [The map](control.md#map) has the characters for pageblocks.",
        example: r#"{"protocol": 1, "figures": {"name": "job-4711", "program": "./job --fast", "pid": 4711, …}}
{"protocol": 1, "history": {"interval_ms": 250,
 "points": [{"at_ms": 15250, "used_bytes": 9437184, "resident_bytes": 8290304}, …]}}
{"protocol": 1, "map": {"block_bytes": 2097152,
 "regions": [{"start": 1048576, "blocks": "x##5..o"}, …], …}}
{"protocol": 1, "reclaim": {"number": 1}}
{"protocol": 1, "cpus": "pause"}
{"protocol": 1, "error": "this guest has no disks"}"#,
        schema: || schema_of::<Reply>(Direction::Written),
    },
    Document {
        name: "blk",
        heading: "`ebb blk get --json`",
        text: "Prints a list on several lines.",
        example: r#"[
  {"name": "data", "connected": true, "io": "io_uring", "max_buffer_pages": 1024,
   "pages_kept": 12, "requests": 5310, …}
]"#,
        schema: || schema_of::<Vec<control::Report>>(Direction::Written),
    },
    Document {
        name: "blk-question",
        heading: "Requests to `ebb blk serve`",
        text: "The control socket of `ebb blk serve` reads an object a line, at most 4096 bytes \
               ([The block back-end](block-back-end.md)). `join` is refused on the socket of a run.",
        example: r#"{"do": "get"}
{"do": "set", "knob": "max_buffer_pages", "value": 0, "instance": "data"}
{"do": "squeeze"}
{"do": "join", "name": "cache"}"#,
        schema: || schema_of::<control::Request>(Direction::Read),
    },
    Document {
        name: "blk-answer",
        heading: "Answers of `ebb blk serve`",
        text: "The control socket writes an object a line for each request, and one for each pressure \
               event to a member.",
        example: r#"{"instances": [{"name": "data", "connected": true, "io": "io_uring", …}, …]}
{"done": 2}
{"pressure": 81250431}
{"error": "there is no instance named b"}"#,
        schema: || schema_of::<control::Answer>(Direction::Written),
    },
];
