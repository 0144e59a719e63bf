//! Tests of programs of the host on stock Linux.

use crate::dynamic;
use crate::guest::{available, ebb};

#[test]
fn a_dynamic_program_is_loaded_with_its_libraries() {
    if available() {
        dynamic::a_program_is_loaded_with_its_libraries(ebb);
    }
}
