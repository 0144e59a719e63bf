//! What `ebb run --kernel linux` shows at a terminal.

use crate::guest::available;
use crate::screen;

#[test]
fn a_program_that_reads_has_the_terminal_to_itself() {
    if available() {
        screen::a_program_that_reads_has_it_to_itself("--kernel linux -m 320M");
    }
}
