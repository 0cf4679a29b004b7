//! What `restore` prints and how it exits, on hosts in a directory.

use super::*;
use enforcer_act::{
    cpuset::ManagedFile,
    fixture::Fixture,
    journal::{Entry, EntryKey, Made, MakingRecord},
};
use enforcer_kernel::clock;

fn made(told_ns: u64) -> Made {
    let original = enforcer_core::hosted::Cpuset { cpus: "0-6".parse().ok(), mems: None };
    Made { original, renews: false, granted: None, boot_id: None, told_ns }
}

fn restored(host: &Fixture) -> (Exit, String) {
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    let mut out = Vec::new();
    let exit = {
        let off = KubeletSettings { enabled: false, ..KubeletSettings::default() };
        everything_in(&host.host(), &tree, &host.state_dir(), &off, &mut out).unwrap()
    };
    (exit, String::from_utf8(out).unwrap())
}

#[test]
fn pending_container_is_restored_if_it_exists_and_awaited_if_not() {
    let host = Fixture::new(true);
    drop(host.journal());
    let (mut record, _) = MakingRecord::open(&host.state_dir(), None).unwrap();
    for cgroup in ["/there", "/not-yet"] {
        record.add(&CgroupPath::new(cgroup), &made(clock::now_ns())).unwrap();
    }
    host.cgroup("/there", "0-1\n", "0\n");
    let (exit, out) = restored(&host);
    assert!(out.contains("/there cpuset.cpus: `0-1` -> `0-6`"), "{out}");
    assert!(matches!(exit, Exit::Undetermined) && out.contains("/not-yet: a container is being"), "{out}");
    assert_eq!(host.read("/there", "cpuset.cpus").trim(), "0-6");
    host.cgroup("/not-yet", "0-1\n", "0\n");
    let (exit, out) = restored(&host);
    assert!(matches!(exit, Exit::Ok) && out.contains("/not-yet cpuset.cpus: `0-1` -> `0-6`"), "{out}");
    assert!(MakingRecord::left(&host.state_dir(), None).unwrap().is_empty());
}

#[test]
fn what_a_runtime_was_told_before_a_daemon_was_killed_is_put_back() {
    let host = Fixture::new(true);
    host.cgroup("/a", "4\n", "0\n");
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    let inode = tree.open(&CgroupPath::new("/a")).unwrap().inode();
    for (file, original) in [(ManagedFile::Cpus, "0-7\n"), (ManagedFile::Mems, "0-1\n")] {
        let key = EntryKey { cgroup: CgroupPath::new("/a"), file, inode };
        host.journal().record(key, Entry::of_file(original, None)).unwrap();
    }
    let (mut record, _) = MakingRecord::open(&host.state_dir(), None).unwrap();
    for cgroup in ["/a", "/ended"] {
        record.add(&CgroupPath::new(cgroup), &Made { renews: true, ..made(0) }).unwrap();
    }
    let (exit, out) = restored(&host);
    assert!(matches!(exit, Exit::Ok) && out.contains("/a cpuset.cpus: `4` -> `0-6`"), "{out}");
    assert_eq!((host.read("/a", "cpuset.mems").trim(), host.journal().entries().len()), ("0-1", 0));
    assert!(MakingRecord::left(&host.state_dir(), None).unwrap().is_empty());
}

#[test]
fn record_of_pins_that_cannot_be_read_is_named_until_it_is_removed() {
    let host = Fixture::new(true);
    drop(host.journal());
    fs::write(host.state_dir().join("pins"), "nonsense\n").unwrap();
    let (exit, out) = restored(&host);
    assert!(matches!(exit, Exit::Undetermined) && out.contains("pins line 1: it has no"), "{out}");
    let (exit, out) = restored(&host);
    assert!(matches!(exit, Exit::Undetermined) && out.contains("pins.damaged: it is damaged"), "{out}");
    fs::remove_file(host.state_dir().join("pins.damaged")).unwrap();
    assert!(matches!(restored(&host).0, Exit::Ok));
}

#[test]
fn damaged_line_of_a_pending_container_is_named_until_it_is_removed() {
    let host = Fixture::new(true);
    drop(host.journal());
    fs::write(host.state_dir().join("making"), "nonsense\n").unwrap();
    let (exit, out) = restored(&host);
    assert!(matches!(exit, Exit::Undetermined) && out.contains("making line 1: it has no"), "{out}");
    let (exit, out) = restored(&host);
    assert!(matches!(exit, Exit::Undetermined) && out.contains("making.damaged: it is damaged"), "{out}");
    fs::remove_file(host.state_dir().join("making.damaged")).unwrap();
    assert!(matches!(restored(&host).0, Exit::Ok));
}

#[test]
fn a_daemon_that_runs_is_named_where_there_is_nothing_to_put_back_too() {
    let host = Fixture::new(true);
    let held = host.journal();
    let restored = |dry_run| {
        let (mut out, state_dir) = (Vec::new(), Some(host.state_dir()));
        let args = args::Restore { workload: None, state_dir, config: None, dry_run };
        let exit = run(&args, &mut out).unwrap();
        (exit, String::from_utf8(out).unwrap())
    };
    for (dry_run, expected) in [(false, Exit::Undetermined), (true, Exit::Ok)] {
        let (exit, out) = restored(dry_run);
        assert_eq!(exit, expected, "{out}");
        let named = format!("lock is held by another numa-enforcer (process {})", std::process::id());
        assert!(out.contains(&named) && out.contains("nothing to put back in"), "{out}");
    }
    drop(held);
    let (exit, out) = restored(false);
    assert!(exit == Exit::Ok && !out.contains("is held by"), "{out}");
    drop(host.journal());
}

#[test]
fn the_state_directory_is_the_one_of_the_configuration_where_none_is_named() {
    let host = Fixture::new(true);
    drop(host.journal());
    let config = host.state_dir().join("config.toml");
    fs::write(&config, format!("state_dir = {:?}\n", host.state_dir())).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    for (named, expected) in [(None, host.state_dir()), (Some(elsewhere.path()), elsewhere.path().into())] {
        let args = args::Restore {
            workload: None,
            state_dir: named.map(Into::into),
            config: Some(config.clone()),
            dry_run: true,
        };
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.trim(), format!("nothing to put back in {}", expected.display()));
    }
}

#[test]
fn a_kubelet_whose_state_cannot_be_read_is_named_until_it_can_be() {
    let id = "a".repeat(64);
    let pod = "11111111_1111_1111_1111_111111111111";
    let cgroup = format!(
        "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{pod}.slice/cri-containerd-{id}.scope"
    );
    let host = Fixture::new(true);
    host.cgroup(&cgroup, "2\n", "0\n");
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    let inode = tree.open(&CgroupPath::new(&cgroup)).unwrap().inode();
    let key = EntryKey { cgroup: CgroupPath::new(&cgroup), file: ManagedFile::Cpus, inode };
    host.journal().record(key, Entry::of_file("0-7\n", None)).unwrap();
    let root = tempfile::tempdir().unwrap();
    let settings = KubeletSettings {
        root_dir: root.path().into(),
        podresources: root.path().join("none"),
        ..KubeletSettings::default()
    };
    let restored = || {
        let mut out = Vec::new();
        let exit = everything_in(&host.host(), &tree, &host.state_dir(), &settings, &mut out).unwrap();
        (exit, String::from_utf8(out).unwrap())
    };
    let state = root.path().join("cpu_manager_state");
    for damaged in
        [None, Some("nonsense"), Some(r#"{"policyName":"static","defaultCpuSet":"0,3","checksum":1}"#)]
    {
        if let Some(text) = damaged {
            fs::write(&state, text).unwrap();
        }
        let (exit, out) = restored();
        let named = format!("looked for in {}: ", root.path().display());
        assert!(matches!(exit, Exit::Undetermined) && out.contains(&named), "{damaged:?}: {out}");
        assert!(out.contains("cpu_manager_state"), "{damaged:?}: {out}");
        assert_eq!(host.read(&cgroup, "cpuset.cpus").trim(), "0-7", "{out}");
    }
    fs::write(&state, r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#).unwrap();
    let (exit, out) = restored();
    assert!(matches!(exit, Exit::Ok) && host.journal().entries().is_empty(), "{out}");
    assert!(restored().1.contains("0 files put back"));
}

#[test]
fn a_journal_of_zeros_is_no_journal_of_nothing() {
    let host = Fixture::new(true);
    drop(host.journal());
    fs::write(host.state_dir().join("journal"), [0; 200]).unwrap();
    let (exit, out) = restored(&host);
    assert!(matches!(exit, Exit::Undetermined) && out.contains("journal line 1: zeros, 200 of"), "{out}");
    let (exit, out) = restored(&host);
    assert!(matches!(exit, Exit::Undetermined) && out.contains("journal.damaged: it is damaged"), "{out}");
}

/// docs/faq.md, "Lines that cannot be read": the older daemon is this one.
#[test]
fn originals_of_a_newer_daemon_come_back_after_an_older_one_has_run() {
    let host = Fixture::new(true);
    host.cgroup("/a", "2\n", "0\n");
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    let inode = tree.open(&CgroupPath::new("/a")).unwrap().inode();
    let key = EntryKey { cgroup: CgroupPath::new("/a"), file: ManagedFile::Cpus, inode };
    host.journal().record(key.clone(), Entry::of_file("0-6\n", None)).unwrap();
    let journal = host.state_dir().join("journal");
    let as_version = |from: &str, to: &str, path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        let json = text.trim_end().rsplit_once(' ').unwrap().0.replacen(from, to, 1);
        fs::write(path, format!("{json} {:08x}\n", crc32fast::hash(json.as_bytes()))).unwrap();
    };
    as_version("\"version\":5", "\"version\":6", &journal);

    // The older daemon takes what the newer one has set for the original, and sets something else.
    let mut older = host.journal();
    assert!(older.damaged()[0].contains("of a newer numa-enforcer"), "{:?}", older.damaged());
    older.record(key, Entry::of_file("2\n", None)).unwrap();
    drop(older);
    host.cgroup("/a", "3\n", "0\n");
    let (exit, out) = restored(&host);
    assert!(matches!(exit, Exit::Undetermined) && out.contains("/a cpuset.cpus: `3` -> `2`"), "{out}");
    assert!(out.contains("journal.damaged: it is of a newer numa-enforcer: restore with that"), "{out}");

    // The newer version knows its lines.
    let kept = host.state_dir().join("journal.damaged");
    as_version("\"version\":6", "\"version\":5", &kept);
    let (exit, out) = restored(&host);
    assert!(matches!(exit, Exit::Undetermined), "{out}");
    assert!(out.contains("this one reads it: with the daemon stopped, move it to journal, and"), "{out}");
    fs::rename(&kept, &journal).unwrap();
    let (exit, out) = restored(&host);
    assert!(matches!(exit, Exit::Ok) && out.contains("/a cpuset.cpus: `2` -> `0-6`"), "{out}");
    assert_eq!(host.read("/a", "cpuset.cpus").trim(), "0-6");
}

#[test]
fn a_record_that_cannot_be_used_keeps_nothing_else_from_being_put_back() {
    for name in ["making", "drift"] {
        let host = Fixture::new(true);
        host.cgroup("/a", "0-1\n", "0\n");
        let inode =
            CpusetTree::new(&host.layout.cpuset.path, true).open(&CgroupPath::new("/a")).unwrap().inode();
        let key = EntryKey { cgroup: CgroupPath::new("/a"), file: ManagedFile::Cpus, inode };
        host.journal().record(key, Entry::of_file("0-6\n", None)).unwrap();
        fs::create_dir(host.state_dir().join(name)).unwrap();
        let (exit, out) = restored(&host);
        assert!(matches!(exit, Exit::Undetermined), "{name}: {out}");
        let named = format!("{name}: ");
        assert!(out.lines().any(|line| line.contains(&named)), "{name}: {out}");
        assert_eq!(host.read("/a", "cpuset.cpus").trim(), "0-6", "{name}: {out}");
    }
}

#[test]
fn unreadable_cgroup_is_not_forgotten() {
    let host = Fixture::new(false);
    drop(host.journal());
    for cgroup in ["/", "/top", "/there", "/top/odd"] {
        host.cgroup(cgroup, "0-1\n", "0\n");
    }
    let [mems, aside] = ["cpuset.mems", "aside"].map(|name| host.path("/top").join(name));
    fs::rename(&mems, &aside).unwrap();
    fs::create_dir(&mems).unwrap();
    let (mut record, _) = MakingRecord::open(&host.state_dir(), None).unwrap();
    for cgroup in ["/there", "/top/odd"] {
        record.add(&CgroupPath::new(cgroup), &made(clock::now_ns())).unwrap();
    }
    let restored = || {
        let tree = CpusetTree::new(&host.layout.cpuset.path, false);
        let mut out = Vec::new();
        let exit = {
            let off = KubeletSettings { enabled: false, ..KubeletSettings::default() };
            everything_in(&host.host(), &tree, &host.state_dir(), &off, &mut out).unwrap()
        };
        (exit, String::from_utf8(out).unwrap())
    };
    let (exit, out) = restored();
    assert!(matches!(exit, Exit::Undetermined) && out.contains("/top/odd is not put back: "), "{out}");
    fs::remove_dir(&mems).unwrap();
    fs::rename(&aside, &mems).unwrap();
    let (exit, out) = restored();
    assert!(matches!(exit, Exit::Ok), "{out}");
    assert_eq!(host.read("/top/odd", "cpuset.cpus").trim(), "0-6");
}
