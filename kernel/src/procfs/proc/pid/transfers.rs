//! `/proc/PID/io` and `/proc/PID/task/TID/children`.

use super::super::subject::Subject;
use crate::fs::text::Text;
use crate::process::task::Process;
use alloc::sync::Arc;
use core::fmt::{Result as Written, Write};

/// Shows `/proc/PID/io`: the numbers of bytes and calls of reads and writes. Those of a process
/// include the children for which it has waited.
pub(super) fn io(text: &mut Text, subject: &Subject, process: &Arc<Process>) -> Written {
    let figures = match subject.tid {
        Some(_) => subject
            .task(process)
            .map(|task| task.transfers().get())
            .unwrap_or_default(),
        None => {
            let mut all = process.usage().transferred;
            all.add(&process.children_usage().transferred);
            all
        }
    };
    for (name, value) in [
        ("rchar", figures.read),
        ("wchar", figures.written),
        ("syscr", figures.read_calls),
        ("syscw", figures.write_calls),
        ("read_bytes", figures.disk_read),
        ("write_bytes", figures.disk_written),
        // No dirty page is dropped unwritten.
        ("cancelled_write_bytes", 0),
    ] {
        writeln!(text, "{name}: {value}")?;
    }
    Ok(())
}

/// Shows `/proc/PID/task/TID/children`: the numbers of the children that the thread made. The main
/// thread also has the children of threads that have ended.
pub(super) fn children(text: &mut Text, subject: &Subject, process: &Arc<Process>) -> Written {
    let numbers = match process.children_of(subject.number()) {
        Ok(numbers) => numbers,
        Err(error) => return Err(text.fail(error)),
    };
    for number in numbers {
        text.number(number.into(), b' ')?;
    }
    Ok(())
}
