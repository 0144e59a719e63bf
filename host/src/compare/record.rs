//! What is read of a run's `--record`. A field that is missing is a figure that nobody knows.

use serde_json::Value;

fn text(record: &Value, name: &str) -> Option<String> {
    Some(record.get(name)?.as_str()?.to_owned())
}

/// Name and version of the guest's kernel.
pub(crate) fn kernel(record: &Value) -> Option<String> {
    match record.get("kernel")? {
        Value::String(name) => Some(name.clone()),
        kernel => {
            let (name, version) = (text(kernel, "name")?, text(kernel, "version"));
            Some(version.map_or(name.clone(), |version| format!("{name} {version}")))
        }
    }
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
    text(record, "kernel_command_line").or_else(|| text(record, "kernel_arguments"))
}

/// What ran the guest's instructions.
pub(crate) fn accel(record: &Value) -> Option<String> {
    text(record, "accel")
}

/// CPU time of QEMU, user and system.
pub(crate) fn cpu_seconds(record: &Value) -> Option<f64> {
    let cpu = record.get("qemu_cpu_seconds")?;
    match cpu {
        Value::Number(sum) => sum.as_f64(),
        parts => Some(parts.get("user")?.as_f64()? + parts.get("system")?.as_f64()?),
    }
}
