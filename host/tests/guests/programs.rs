//! Programs of the host on Ebb's kernel.

use crate::dynamic;
use crate::guest::ebb;

#[test]
fn a_dynamic_program_is_loaded_with_its_libraries() {
    dynamic::a_program_is_loaded_with_its_libraries(ebb);
}
