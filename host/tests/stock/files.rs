//! Tests of files that are copied out of guests with stock Linux.

use crate::guest::{available, ebb};
use crate::out;

#[test]
fn what_a_program_leaves_is_copied() {
    if available() {
        out::what_a_program_leaves_is_copied(ebb);
    }
}

#[test]
#[ignore = "long: make test-long"]
fn what_is_left_out_is_said() {
    if available() {
        out::what_is_left_out_is_said(ebb);
    }
}

#[test]
#[ignore = "long: make test-long"]
fn a_program_out_of_time_leaves_its_files() {
    if available() {
        out::a_program_out_of_time_leaves_its_files(ebb, "40");
    }
}

#[test]
#[ignore = "long: make test-long"]
fn what_cannot_be_copied_is_an_error() {
    if available() {
        out::what_cannot_be_copied_is_an_error(ebb);
    }
}
