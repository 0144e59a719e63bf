//! `ebb run` on real guests: the whole way from the command line to the program and back.

mod cleanup;
mod figures;
mod guest;
mod streams;
mod top;
