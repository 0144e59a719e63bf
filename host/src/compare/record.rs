//! Reads the JSON that `ebb run --record` wrote. Functions return `None` if a field is missing.

use serde_json::Value;

/// Returns the text in the field called `name`.
fn text(record: &Value, name: &str) -> Option<String> {
    Some(record.get(name)?.as_str()?.to_owned())
}

/// Returns the version of the guest's kernel, or `None` if it is not recorded.
pub(crate) fn kernel(record: &Value) -> Option<String> {
    text(record.get("kernel")?, "version")
}

/// Returns the value of `-machine` in QEMU's command line, else the name of the machine that `ebb
/// run` recorded. Returns `None` if neither is recorded.
pub(crate) fn machine(record: &Value) -> Option<String> {
    qemu_option(record, &["-machine", "-M"]).or_else(|| text(record, "machine"))
}

/// Returns the value of `-cpu` in QEMU's command line, or `None` if it is not recorded.
pub(crate) fn cpu(record: &Value) -> Option<String> {
    qemu_option(record, &["-cpu"])
}

/// Returns QEMU's command line as words, its path first. Returns `None` if it is not recorded or
/// has a word that is not text.
pub(crate) fn qemu_command(record: &Value) -> Option<Vec<String>> {
    let words = record.get("qemu")?.get("command")?.as_array()?;
    words
        .iter()
        .map(|word| Some(word.as_str()?.to_owned()))
        .collect()
}

/// Returns the value of the option with one of these names in QEMU's command line.
fn qemu_option(record: &Value, names: &[&str]) -> Option<String> {
    let command = qemu_command(record)?;
    let at = command
        .iter()
        .position(|word| names.contains(&word.as_str()))?;
    command.get(at + 1).cloned()
}

/// Returns QEMU's version, such as `7.2.22`, or `None` if it is not recorded.
pub(crate) fn qemu_version(record: &Value) -> Option<String> {
    text(record.get("qemu")?, "version")
}

/// Returns the guest kernel's command line, or `None` if it is not recorded.
pub(crate) fn kernel_arguments(record: &Value) -> Option<String> {
    text(record, "kernel_arguments")
}

/// Returns the accelerator in capitals, `KVM` or `TCG`, or `None` if it is not recorded.
pub(crate) fn accel(record: &Value) -> Option<String> {
    text(record, "accel").map(|name| name.to_ascii_uppercase())
}

/// Returns the seconds of the host's clock from the start of the guest's CPUs to the start of the
/// program, or `None` if they are not recorded.
pub(crate) fn started_s(record: &Value) -> Option<f64> {
    record.get("started_s")?.as_f64()
}

/// Returns the guest's memory that was resident at the start of the program, in bytes. Returns
/// `None` if it is not recorded.
pub(crate) fn resident_at_start(record: &Value) -> Option<f64> {
    record.get("resident_at_start")?.as_f64()
}

/// Returns the CPU seconds of QEMU during the run, user and system together, or `None` if they are
/// not recorded.
pub(crate) fn qemu_cpu_seconds(record: &Value) -> Option<f64> {
    cpu_seconds(record.get("qemu_cpu_seconds")?)
}

/// Returns the CPU seconds of `ebb run` during the run without those of QEMU, user and system
/// together, or `None` if they are not recorded.
pub(crate) fn ebb_cpu_seconds(record: &Value) -> Option<f64> {
    cpu_seconds(record.get("ebb_cpu_seconds")?)
}

/// Returns the sum of the fields `user` and `system`, or `None` if one is missing.
fn cpu_seconds(cpu: &Value) -> Option<f64> {
    Some(cpu.get("user")?.as_f64()? + cpu.get("system")?.as_f64()?)
}

/// Returns how many times the guest was started until it booted, at least 1. Returns `None` if it
/// is not recorded.
pub(crate) fn attempts(record: &Value) -> Option<u64> {
    record.get("attempts")?.as_u64()
}
