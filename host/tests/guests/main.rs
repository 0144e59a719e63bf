//! Tests of `ebb run` with real guests, from the command line to the program and back.

mod cleanup;
mod commands;
mod confined;
mod cost;
#[path = "../parts/dynamic.rs"]
mod dynamic;
mod figures;
mod files;
mod guest;
mod host_pages;
#[path = "../parts/out.rs"]
mod out;
mod programs;
#[path = "../parts/guest.rs"]
mod running;
#[path = "../parts/scratch.rs"]
#[allow(dead_code, reason = "each test needs a part of it")]
mod scratch;
#[path = "../parts/terminal.rs"]
mod screen;
mod signals;
mod streams;
mod terminal;
mod top;
