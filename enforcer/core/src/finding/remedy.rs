//! Commands that a person can run.
//!
//! Cgroup names come from people and containers: every path is quoted so that a shell takes it as
//! one word and a terminal shows it as it is, whatever is in it.

use std::fmt::Write as _;

use super::{files::CgroupFiles, subject::Subject};
use crate::{
    set::{CpuSet, NodeSet},
    workload::{CgroupPath, Origin},
};

/// Brings the workload's CPUs and memory together on the node that fits it best. CPUs move at once;
/// the kernel moves the pages that a new `cpuset.mems` leaves outside (v1 has to be asked). Where no node
/// holds the workload, its memory nodes are made those of its CPUs.
pub(super) fn realign(subject: &Subject<'_>) -> String {
    let place = subject.better_place().cloned();
    if let Origin::Process { pid, .. } = subject.workload.origin {
        let cpus = place
            .map_or_else(|| subject.inventory.machine.cpus_of(&subject.figures.cpu_nodes), |(cpus, _)| cpus);
        return format!("taskset -apc {cpus} {pid}");
    }
    let (cpus, mems) = place.unzip();
    let mems = mems.unwrap_or_else(|| subject.figures.cpu_nodes.clone());
    let (has_cpus, has_mems) = (subject.figures.cpus.as_ref(), subject.figures.mems.as_ref());
    let cpus = cpus.filter(|cpus| has_cpus != Some(cpus));
    if cpus.is_none() && has_mems == Some(&mems) {
        return move_pages(subject, &mems);
    }
    let cgroup = &subject.workload.cgroup;
    match &subject.workload.origin {
        // systemd forgets what others write at its next reload, and has no cpuset on v1.
        Origin::Unit { unit }
            if !subject.files().pages_stay()
                && cgroup.relative().rsplit('/').next() == Some(unit.as_str()) =>
        {
            set_property(unit, cpus.as_ref(), &mems)
        }
        _ => set_cpuset(subject.files(), cgroup, cpus.as_ref(), &mems),
    }
}

/// Has systemd put a unit where it is given, until the next start of the machine.
fn set_property(unit: &str, cpus: Option<&CpuSet>, mems: &NodeSet) -> String {
    let cpus = cpus.map_or_else(String::new, |cpus| format!(" AllowedCPUs={cpus}"));
    format!("systemctl set-property --runtime {} AllowedMemoryNodes={mems}{cpus}", quote(unit))
}

/// Writes what the owner of a cpuset gave: nothing else does, where the owner only compares with what it
/// wrote last.
pub(super) fn as_given(subject: &Subject<'_>, cpus: Option<&CpuSet>, mems: Option<&NodeSet>) -> String {
    let write = |file, value: String| {
        format!("echo {value} > {}", quote(&subject.files().cpuset(&subject.workload.cgroup, file)))
    };
    let mems = mems.map(|mems| write("cpuset.mems", mems.to_string()));
    let cpus = cpus.map(|cpus| write("cpuset.cpus", cpus.to_string()));
    mems.into_iter().chain(cpus).collect::<Vec<_>>().join(" && ")
}

/// Puts memory nodes and then CPUs of a cgroup where they are given.
fn set_cpuset(files: CgroupFiles<'_>, cgroup: &CgroupPath, cpus: Option<&CpuSet>, mems: &NodeSet) -> String {
    let write = |file, value: String| format!("echo {value} > {}", quote(&files.cpuset(cgroup, file)));
    let migrate = files.pages_stay().then(|| write("cpuset.memory_migrate", "1".into()));
    let mems = write("cpuset.mems", mems.to_string());
    let cpus = cpus.map(|cpus| write("cpuset.cpus", cpus.to_string()));
    migrate.into_iter().chain([mems]).chain(cpus).collect::<Vec<_>>().join(" && ")
}

/// Moves the pages that a right cpuset left behind.
fn move_pages(subject: &Subject<'_>, to: &NodeSet) -> String {
    let (from, _) = subject.remote_memory();
    let processes = quote(&subject.files().cpuset(&subject.workload.cgroup, "cgroup.procs"));
    format!("for pid in $(cat {processes}); do migratepages $pid {from} {to}; done")
}

/// Lets the daemon put a declared workload where it belongs.
pub(super) fn enforce() -> String {
    "numa-enforcer run --mode enforce --config FILE".into()
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
    use crate::sample::Sample;

    #[test]
    fn ordinary_paths_stay_as_they_are() {
        let cgroup = CgroupPath::new("/system.slice/redis@1.service");
        let cpus = "0-3".parse().unwrap();
        let sample = Sample::default();
        let v2 = CgroupFiles::of(&sample);
        assert_eq!(
            set_cpuset(v2, &cgroup, Some(&cpus), &"1".parse().unwrap()),
            "echo 1 > /sys/fs/cgroup/system.slice/redis@1.service/cpuset.mems && \
             echo 0-3 > /sys/fs/cgroup/system.slice/redis@1.service/cpuset.cpus"
        );
        assert_eq!(
            set_cpuset(v2, &CgroupPath::root(), None, &"0".parse().unwrap()),
            "echo 0 > /sys/fs/cgroup/cpuset.mems"
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
