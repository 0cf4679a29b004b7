//! Commands that a person can run.
//!
//! Cgroup names come from people and containers: every path is quoted so that a shell takes it as
//! one word and a terminal shows it as it is, whatever is in it.

use std::fmt::Write as _;

use crate::{set::CpuSet, set::NodeSet, workload::CgroupPath};

/// Where cgroup files are found by default.
const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

/// Puts CPUs and memory nodes of a cgroup where they are given, memory nodes first.
pub(super) fn set_cpuset(cgroup: &CgroupPath, cpus: Option<&CpuSet>, mems: Option<&NodeSet>) -> String {
    let mems = mems.map(|mems| write(cgroup, "cpuset.mems", &mems.to_string()));
    let cpus = cpus.map(|cpus| write(cgroup, "cpuset.cpus", &cpus.to_string()));
    mems.into_iter().chain(cpus).collect::<Vec<_>>().join(" && ")
}

/// Declares the workload to the daemon.
pub(super) fn declare(cgroup: &CgroupPath) -> String {
    let glob = quote(&format!("cgroup = {:?}", cgroup.as_str()));
    format!("numa-enforcer run --mode enforce with a [[workload]] that has {glob}")
}

/// Lets the daemon put a declared workload where it belongs.
pub(super) fn enforce() -> String {
    "numa-enforcer run --mode enforce --config FILE".into()
}

/// Moves a process' pages between nodes.
pub(super) fn migrate_pages(pid: u32, from: &NodeSet, to: &NodeSet) -> String {
    format!("migratepages {pid} {from} {to}")
}

/// Writes one file of a cgroup.
fn write(cgroup: &CgroupPath, file: &str, value: &str) -> String {
    let path = match cgroup.relative() {
        "" => format!("{CGROUP_MOUNT}/{file}"),
        relative => format!("{CGROUP_MOUNT}/{relative}/{file}"),
    };
    format!("echo {value} > {}", quote(&path))
}

/// A text as one word of a shell.
pub(super) fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@=+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    if !text.chars().any(hidden) {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    // ANSI-C quoting shows control characters instead of sending them to the terminal.
    let mut word = String::from("$'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => word.extend(['\\', c]),
            c if hidden(c) => {
                for byte in c.to_string().bytes() {
                    // Writing to a String cannot fail.
                    let _ = write!(word, "\\x{byte:02x}");
                }
            }
            c => word.push(c),
        }
    }
    word.push('\'');
    word
}

/// Characters that a terminal does not show as themselves: controls, and marks that turn the
/// direction of writing around.
fn hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_paths_stay_as_they_are() {
        let cgroup = CgroupPath::new("/system.slice/redis@1.service");
        let cpus = "0-3".parse().unwrap();
        assert_eq!(
            set_cpuset(&cgroup, Some(&cpus), Some(&"1".parse().unwrap())),
            "echo 1 > /sys/fs/cgroup/system.slice/redis@1.service/cpuset.mems && \
             echo 0-3 > /sys/fs/cgroup/system.slice/redis@1.service/cpuset.cpus"
        );
        assert_eq!(
            set_cpuset(&CgroupPath::root(), Some(&cpus), None),
            "echo 0-3 > /sys/fs/cgroup/cpuset.cpus"
        );
    }

    #[test]
    fn hostile_names_are_one_word() {
        for (text, quoted) in [
            ("", "''"),
            ("a b", "'a b'"),
            ("$(reboot)", "'$(reboot)'"),
            ("`id`;rm -rf *", "'`id`;rm -rf *'"),
            ("it's", r"'it'\''s'"),
            ("back\\slash", r"'back\slash'"),
            ("-n", "-n"),
            ("\u{1b}[2Jx", r"$'\x1b[2Jx'"),
            ("a\nb'c\\", r"$'a\x0ab\'c\\'"),
            ("\u{202e}gpj", r"$'\xe2\x80\xaegpj'"),
            ("größe", "'größe'"),
            ("~root", "'~root'"),
            ("a#b", "'a#b'"),
        ] {
            assert_eq!(quote(text), quoted, "{text:?}");
        }
    }
}
