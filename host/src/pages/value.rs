//! How pages show the value of an argument.

use clap::Arg;

/// Returns the name of an argument's value, in brackets if an option may stand without it. Returns
/// `None` for an argument without a value.
pub(super) fn value_of(argument: &Arg) -> Option<String> {
    if !argument.get_action().takes_values() {
        return None;
    }
    let name = argument.get_value_names()?.first()?;
    let is_optional = argument.get_num_args()?.min_values() == 0 && !argument.is_positional();
    Some(if is_optional {
        format!("[{name}]")
    } else {
        name.to_string()
    })
}
