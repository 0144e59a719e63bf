//! Names the system call that Ebb's kernel does not have and that a failed program made.

use crate::text::Log;

/// The line of Ebb's kernel about such a call, from `unknown.rs` of its system calls. The number
/// stands between both parts.
const BEGIN: &str = "system call ";
const END: &str = " is not supported";

/// Numbers and names of system calls that Ebb's kernel lacks or has lacked.
const NAMES: [(u32, &str); 56] = [
    (134, "uselib"),
    (136, "ustat"),
    (139, "sysfs"),
    (153, "vhangup"),
    (154, "modify_ldt"),
    (156, "_sysctl"),
    (163, "acct"),
    (167, "swapon"),
    (168, "swapoff"),
    (172, "iopl"),
    (173, "ioperm"),
    (175, "init_module"),
    (176, "delete_module"),
    (179, "quotactl"),
    (205, "set_thread_area"),
    (206, "io_setup"),
    (207, "io_destroy"),
    (208, "io_getevents"),
    (209, "io_submit"),
    (210, "io_cancel"),
    (212, "lookup_dcookie"),
    (216, "remap_file_pages"),
    (237, "mbind"),
    (238, "set_mempolicy"),
    (239, "get_mempolicy"),
    (246, "kexec_load"),
    (248, "add_key"),
    (249, "request_key"),
    (250, "keyctl"),
    (256, "migrate_pages"),
    (279, "move_pages"),
    (298, "perf_event_open"),
    (300, "fanotify_init"),
    (301, "fanotify_mark"),
    (303, "name_to_handle_at"),
    (304, "open_by_handle_at"),
    (308, "setns"),
    (313, "finit_module"),
    (320, "kexec_file_load"),
    (321, "bpf"),
    (323, "userfaultfd"),
    (329, "pkey_mprotect"),
    (330, "pkey_alloc"),
    (331, "pkey_free"),
    (333, "io_pgetevents"),
    (425, "io_uring_setup"),
    (426, "io_uring_enter"),
    (427, "io_uring_register"),
    (428, "open_tree"),
    (429, "move_mount"),
    (430, "fsopen"),
    (431, "fsconfig"),
    (432, "fsmount"),
    (442, "mount_setattr"),
    (447, "memfd_secret"),
    (450, "set_mempolicy_home_node"),
];

/// Returns a message that names the system call that Ebb's kernel refused last because it does not
/// have it. The advice repeats `--root host` if `sees_host`, because guests with Linux see no files
/// of the host by default. Returns `None` if `log`, the kernel's, has no line about such a call.
pub(super) fn explained(log: &Log, sees_host: bool) -> Option<String> {
    let line = log.last_with(END)?;
    let (_, rest) = line.split_once(BEGIN)?;
    let number: u32 = rest.split_once(END)?.0.parse().ok()?;
    let named = NAMES.iter().find(|(known, _)| *known == number);
    let call = match named {
        Some((_, name)) => format!("{name} (system call {number})"),
        None => format!("system call {number}"),
    };
    let root = if sees_host { " --root host" } else { "" };
    Some(format!(
        "ebb: the program asked for {call}, which Ebb's kernel does not have (ENOSYS)\n  \
         help: if that is why it failed, --kernel linux{root} runs it on Debian's kernel"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_refused_call_is_named() {
        let told_with = |lines: &str, sees_host| {
            let log = Log::new("kernel");
            log.pump(lines.as_bytes(), None);
            explained(&log, sees_host)
        };
        let told = |lines: &str| told_with(lines, false);
        assert_eq!(told("[    0.1] init: ready\n"), None);
        let line = |number: u32| {
            format!("[    0.1] system call {number} is not supported (answered ENOSYS)\n")
        };
        let text = told(&(line(999) + &line(425))).unwrap();
        assert!(
            text.contains("for io_uring_setup (system call 425),"),
            "{text}"
        );
        let text = told(&line(999)).unwrap();
        assert!(text.contains("for system call 999,"), "{text}");
        assert!(text.contains(", --kernel linux runs it"), "{text}");
        let text = told_with(&line(999), true).unwrap();
        assert!(
            text.contains(", --kernel linux --root host runs it"),
            "{text}"
        );
    }

    #[test]
    fn each_number_has_one_name() {
        for pair in NAMES.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{pair:?}");
        }
    }
}
