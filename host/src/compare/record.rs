//! What is read of a run's `--record`. A field that is missing is a figure that nobody knows.

use serde_json::Value;

fn text(record: &Value, name: &str) -> Option<String> {
    Some(record.get(name)?.as_str()?.to_owned())
}

/// Version of the guest's kernel.
pub(crate) fn kernel(record: &Value) -> Option<String> {
    text(record.get("kernel")?, "version")
}

/// The `-machine` of QEMU's command line as it was, else the machine's name.
pub(crate) fn machine(record: &Value) -> Option<String> {
    qemu_option(record, &["-machine", "-M"]).or_else(|| text(record, "machine"))
}

/// The `-cpu` of QEMU's command line.
pub(crate) fn cpu(record: &Value) -> Option<String> {
    qemu_option(record, &["-cpu"])
}

/// QEMU's command line.
pub(crate) fn qemu_command(record: &Value) -> Option<Vec<String>> {
    let words = record.get("qemu")?.get("command")?.as_array()?;
    words
        .iter()
        .map(|word| Some(word.as_str()?.to_owned()))
        .collect()
}

fn qemu_option(record: &Value, names: &[&str]) -> Option<String> {
    let command = qemu_command(record)?;
    let at = command
        .iter()
        .position(|word| names.contains(&word.as_str()))?;
    command.get(at + 1).cloned()
}

/// QEMU's version.
pub(crate) fn qemu_version(record: &Value) -> Option<String> {
    text(record.get("qemu")?, "version")
}

/// What the guest's kernel was told.
pub(crate) fn kernel_arguments(record: &Value) -> Option<String> {
    text(record, "kernel_arguments")
}

/// What ran the guest's instructions.
pub(crate) fn accel(record: &Value) -> Option<String> {
    text(record, "accel").map(|name| name.to_ascii_uppercase())
}

/// Host time from the start of the guest's CPUs to the start of the program.
pub(crate) fn started_s(record: &Value) -> Option<f64> {
    record.get("started_s")?.as_f64()
}

/// CPU time of QEMU, user and system.
pub(crate) fn cpu_seconds(record: &Value) -> Option<f64> {
    let cpu = record.get("qemu_cpu_seconds")?;
    Some(cpu.get("user")?.as_f64()? + cpu.get("system")?.as_f64()?)
}

/// How often the guest had to be started until it spoke.
pub(crate) fn attempts(record: &Value) -> Option<u64> {
    record.get("attempts")?.as_u64()
}
