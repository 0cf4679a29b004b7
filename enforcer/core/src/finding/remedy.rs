//! Commands that a person can run.
//!
//! Cgroup names come from people and containers: every path is quoted so that a shell takes it as
//! one word and a terminal shows it as it is, whatever is in it.

use std::fmt::{self, Write as _};

use super::{files::CgroupFiles, subject::Subject};
use crate::{
    decide::Advice,
    workload::{CgroupPath, Origin},
};
use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Commands for an advice. CPUs move at once; the kernel moves the pages that a new `cpuset.mems` excludes
/// (v1 must be asked). For pages that stayed behind on other nodes these nodes are allowed once more and
/// removed again, because only a change moves pages. If that changes nothing, or would bring them to a node
/// without room, migratepages(8) moves the pages of each process.
pub(super) fn realign(subject: &Subject<'_>, advice: &Advice) -> String {
    let cpus = advice.cpus.as_ref();
    if let Origin::Process { pid, .. } = subject.workload.origin {
        let cpus = cpus.map(|cpus| format!("taskset -apc {cpus} {pid}"));
        let swept = advice.swept_first.iter().chain(&advice.swept);
        let moves = swept.map(|(from, to)| format!("migratepages {pid} {from} {to}"));
        return cpus.into_iter().chain(moves).collect::<Vec<_>>().join(" && ");
    }
    let cgroup = &subject.workload.cgroup;
    let files = subject.files();
    let set = |cpus: Option<&CpuSet>, mems: Option<&NodeSet>| match &subject.workload.origin {
        _ if cpus.is_none() && mems.is_none() => None,
        // At its next reload systemd forgets a cpuset that another program wrote, and has none on v1.
        Origin::Unit { unit }
            if !files.pages_stay() && cgroup.relative().rsplit('/').next() == Some(unit.as_str()) =>
        {
            Some(set_property(unit, cpus, mems))
        }
        _ => Some(set_cpuset(files, cgroup, cpus, mems)),
    };
    let sweep = |(from, to): &(NodeSet, NodeId)| sweep(files, cgroup, from, *to);
    let (last, first) = advice.mem_writes.split_last().unzip();
    let first = first.into_iter().flatten().filter_map(|mems| set(None, Some(mems)));
    let before = first.chain(advice.swept_first.iter().map(sweep));
    before.chain(set(cpus, last)).chain(advice.swept.iter().map(sweep)).collect::<Vec<_>>().join(" && ")
}

/// Moves pages of each process of a cgroup, and of those below it, from some nodes to another one.
fn sweep(files: CgroupFiles<'_>, cgroup: &CgroupPath, from: &NodeSet, to: NodeId) -> String {
    let folder = quote(&files.folder(cgroup));
    // A process that has ended meanwhile must not stop the commands after this one.
    let each = format!("migratepages {{}} {from} {to} || true");
    format!("find {folder} -name cgroup.procs -exec cat {{}} + | xargs -rI{{}} sh -c '{each}'")
}

/// Sets CPUs and memory nodes of a unit through systemd, until the next boot.
fn set_property(unit: &str, cpus: Option<&CpuSet>, mems: Option<&NodeSet>) -> String {
    let mems = mems.map_or_else(String::new, |mems| format!(" AllowedMemoryNodes={mems}"));
    let cpus = cpus.map_or_else(String::new, |cpus| format!(" AllowedCPUs={cpus}"));
    format!("systemctl set-property --runtime {}{mems}{cpus}", quote(unit))
}

/// Writes the grant of the cpuset's owner: nothing else does, if the owner only compares with its last write.
pub(super) fn as_given(subject: &Subject<'_>, cpus: Option<&CpuSet>, mems: Option<&NodeSet>) -> String {
    let (files, cgroup) = (subject.files(), &subject.workload.cgroup);
    let mems = mems.map(|mems| write(files, cgroup, "cpuset.mems", mems));
    let cpus = cpus.map(|cpus| write(files, cgroup, "cpuset.cpus", cpus));
    mems.into_iter().chain(cpus).collect::<Vec<_>>().join(" && ")
}

/// Writes memory nodes and then CPUs of a cgroup.
fn set_cpuset(
    files: CgroupFiles<'_>,
    cgroup: &CgroupPath,
    cpus: Option<&CpuSet>,
    mems: Option<&NodeSet>,
) -> String {
    let migrate = mems.filter(|_| files.pages_stay());
    let migrate = migrate.map(|_| write(files, cgroup, "cpuset.memory_migrate", &1));
    let mems = mems.map(|mems| write(files, cgroup, "cpuset.mems", mems));
    let cpus = cpus.map(|cpus| write(files, cgroup, "cpuset.cpus", cpus));
    migrate.into_iter().chain(mems).chain(cpus).collect::<Vec<_>>().join(" && ")
}

fn write(files: CgroupFiles<'_>, cgroup: &CgroupPath, file: &str, value: &dyn fmt::Display) -> String {
    format!("echo {value} > {}", quote(&files.cpuset(cgroup, file)))
}

/// Runs the daemon so that it corrects a declared workload.
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

/// Characters that a terminal does not show as themselves: controls, and marks that change the direction of
/// writing.
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
            set_cpuset(v2, &cgroup, Some(&cpus), Some(&"1".parse().unwrap())),
            "echo 1 > /sys/fs/cgroup/system.slice/redis@1.service/cpuset.mems && \
             echo 0-3 > /sys/fs/cgroup/system.slice/redis@1.service/cpuset.cpus"
        );
        assert_eq!(
            set_cpuset(v2, &CgroupPath::root(), None, Some(&"0".parse().unwrap())),
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
