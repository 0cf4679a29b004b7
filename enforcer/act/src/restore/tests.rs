//! What a restore puts back, in which order, and what it says of the rest.

use std::{fs, os::unix::fs::MetadataExt};

use proptest::prelude::*;

use super::*;
use crate::{
    apply_plan,
    fixture::{Fixture, plan, set_cpus, set_mems},
};

const BOOT: Option<&str> = Some("boot-1");

fn restore_all(host: &Fixture) -> RestoreReport {
    let tree = CpusetTree::new(&host.layout.cpuset.path, host.layout.cpuset.v2);
    restore(&tree, BOOT, &mut host.journal())
}

fn results(report: &RestoreReport) -> Vec<&RestoreResult> {
    report.files.iter().map(|file| &file.result).collect()
}

#[test]
fn puts_exact_texts_back_and_a_second_time_finds_nothing_to_do() {
    for v2 in [false, true] {
        let host = Fixture::new(v2);
        host.cgroup("/a", "0-3\n", "\n");
        let before = host.contents();
        apply_plan(&plan([set_mems("/a", "1"), set_cpus("/a", "2")]), &mut host.actuator());
        assert_ne!(host.contents(), before);
        let report = restore_all(&host);
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(report.files.len(), if v2 { 2 } else { 3 });
        assert_eq!(host.contents(), before);
        assert_eq!(restore_all(&host), RestoreReport::default());
    }
}

#[test]
fn one_cgroup_is_put_back_and_its_neighbours_are_kept() {
    let host = Fixture::new(true);
    for cgroup in ["/a", "/a/below", "/ab"] {
        host.cgroup(cgroup, "0-3\n", "0-1\n");
    }
    let steps = ["/a", "/a/below", "/ab"].map(|cgroup| set_cpus(cgroup, "2"));
    apply_plan(&plan(steps), &mut host.actuator());
    let tree = CpusetTree::new(&host.layout.cpuset.path, host.layout.cpuset.v2);
    let report = restore_within(&tree, BOOT, &mut host.journal(), &CgroupPath::new("/a"));
    let restored: Vec<&str> = report.files.iter().map(|file| file.cgroup.as_str()).collect();
    assert_eq!(restored, ["/a", "/a/below"], "{report:?}");
    let left = restore_all(&host);
    assert_eq!(left.files.iter().map(|file| file.cgroup.as_str()).collect::<Vec<_>>(), ["/ab"]);
}

/// Beside a container with cgroups of its own the kernel does not let the controller be taken away.
#[test]
fn an_inherited_cpuset_that_cannot_be_emptied_is_put_back_when_it_has_all_that_it_would_inherit() {
    let host = Fixture::new(true);
    host.cgroup("/top", "0-3\n", "0-1\n");
    host.cgroup("/top/a", "2\n", "\n");
    for (path, cpus) in [("/top", "0-3\n"), ("/top/a", "0-3\n")] {
        fs::write(host.path(path).join("cpuset.cpus.effective"), cpus).unwrap();
    }
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    let cgroup = CgroupPath::new("/top/a");
    let key = EntryKey { file: ManagedFile::Cpus, inode: tree.open(&cgroup).unwrap().inode(), cgroup };
    let pending = Pending {
        key: &key,
        original: "\n",
        found: "2\n".to_owned(),
        cpuset: tree.open(&key.cgroup).unwrap(),
    };
    let mut results = BTreeMap::new();
    results.insert(&key, RestoreResult::Failed { error: "No space left on device".into() });
    // Its parent has no `cgroup.subtree_control`: emptying fails as it does with `EBUSY`.
    let mut journal = host.journal();
    empty_what_has_tasks(&tree, BOOT, &mut journal, &[pending], &mut results);
    let result = &results[&key];
    assert!(
        matches!(result, RestoreResult::Widened { from, to, .. } if from == "2\n" && to == "0-3"),
        "{result:?}"
    );
    assert_eq!(host.read("/top/a", "cpuset.cpus"), "0-3");
    // Where it has less than that in effect, it is a failure.
    fs::write(host.path("/top/a").join("cpuset.cpus.effective"), "0-1\n").unwrap();
    let pending = Pending {
        key: &key,
        original: "\n",
        found: "2\n".to_owned(),
        cpuset: tree.open(&key.cgroup).unwrap(),
    };
    results.insert(&key, RestoreResult::Failed { error: "No space left on device".into() });
    empty_what_has_tasks(&tree, BOOT, &mut journal, &[pending], &mut results);
    assert!(matches!(&results[&key], RestoreResult::Failed { error } if error.contains("is in effect")));
}

#[test]
fn a_preview_says_what_would_happen_and_changes_nothing() {
    let host = Fixture::new(true);
    host.cgroup("/a", "0-3\n", "0\n");
    let actuator = &mut host.actuator();
    apply_plan(&plan([set_cpus("/a", "1")]), actuator);
    let before = host.contents();
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    // The lock is held all the while.
    let report = preview(&tree, BOOT, &Journal::peek(&host.state_dir()).unwrap());
    assert_eq!(results(&report), [&RestoreResult::WouldPutBack { from: "1".into() }]);
    assert_eq!(host.contents(), before);
    assert_eq!(actuator.journal().entries().len(), 1);
}

#[test]
fn a_crash_on_either_side_of_the_write_is_undone() {
    let host = Fixture::new(true);
    host.cgroup("/a", "0-3\n", "0\n");
    let before = host.contents();
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    let cgroup = CgroupPath::new("/a");
    let cpuset = tree.open(&cgroup).unwrap();
    let key = |file| EntryKey { cgroup: cgroup.clone(), file, inode: cpuset.inode() };
    let entry = |original: &str| Entry::of_file(original, BOOT);
    let mut journal = host.journal();
    journal.record(key(ManagedFile::Mems), entry("0\n")).unwrap();
    journal.record(key(ManagedFile::Cpus), entry("0-3\n")).unwrap();
    cpuset.write(ManagedFile::Cpus, "1").unwrap();
    drop(journal); // as a kill would
    let report = restore_all(&host);
    assert_eq!(results(&report), [&RestoreResult::Unchanged, &RestoreResult::PutBack { from: "1".into() }]);
    assert_eq!(host.contents(), before);
}

#[test]
fn a_crash_with_the_controller_taken_away_is_undone() {
    let host = Fixture::new(true);
    host.cgroup("/top/a", "\n", "0\n");
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    let control = host.path("/top").join("cgroup.subtree_control");
    let inode = fs::symlink_metadata(host.path("/top")).map(|top| top.ino()).unwrap();
    let taken = EntryKey { cgroup: CgroupPath::new("/top"), file: ManagedFile::SubtreeControl, inode };
    for (found, result, after) in [
        ("memory\n", RestoreResult::PutBack { from: "memory\n".into() }, "+cpuset"),
        ("cpuset memory\n", RestoreResult::Unchanged, "cpuset memory\n"),
    ] {
        fs::write(&control, "cpuset memory\n").unwrap();
        let entry = Entry::of_file("cpuset memory\n", BOOT);
        host.journal().record(taken.clone(), entry).unwrap();
        fs::write(&control, found).unwrap();
        let preview = preview(&tree, BOOT, &Journal::peek(&host.state_dir()).unwrap());
        assert_eq!(preview.files.len(), 1);
        assert_eq!(fs::read_to_string(&control).unwrap(), found);
        assert_eq!(results(&restore_all(&host)), [&result]);
        assert_eq!(fs::read_to_string(&control).unwrap()[..after.len()], *after);
        assert!(host.journal().entries().is_empty());
    }
}

#[test]
fn no_line_of_the_journal_leads_out_of_the_hierarchy() {
    let host = Fixture::new(true);
    drop(host.journal());
    let root = host.layout.cpuset.path.as_path();
    let outside = root.with_file_name("outside");
    let control = outside.join("cgroup.subtree_control");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
    let inode = |path: &std::path::Path| fs::symlink_metadata(path).unwrap().ino();
    for (cgroup, inode) in
        [("/../outside", inode(&outside)), ("/link", inode(&outside)), ("/link", inode(&root.join("link")))]
    {
        fs::write(&control, "precious\n").unwrap();
        let json = format!(
            r#"{{"version":3,"record":"before","cgroup":"{cgroup}","file":"cgroup.subtree_control","inode":{inode},"original":"cpuset\n","boot_id":"boot-1"}}"#
        );
        let line = format!("{json} {:08x}\n", crc32fast::hash(json.as_bytes()));
        fs::write(host.state_dir().join("journal"), line).unwrap();
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        recover(&tree, BOOT, &mut host.journal());
        let report = restore_all(&host);
        assert_eq!(fs::read_to_string(&control).unwrap(), "precious\n", "{cgroup}: {report:?}");
    }
}

#[test]
fn a_daemon_that_starts_undoes_such_a_crash_and_leaves_the_rest() {
    let host = Fixture::new(true);
    host.cgroup("/top/a", "2-3\n", "0\n");
    host.cgroup("/else", "0-3\n", "0-1\n");
    apply_plan(&plan([set_mems("/else", "1")]), &mut host.actuator());
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    let control = host.path("/top").join("cgroup.subtree_control");
    fs::write(&control, "memory\n").unwrap();
    let entry = |original: &str| Entry::of_file(original, BOOT);
    let inode = |cgroup: &str| fs::metadata(host.path(cgroup)).unwrap().ino();
    let key = |cgroup: &str, file| EntryKey { cgroup: CgroupPath::new(cgroup), file, inode: inode(cgroup) };
    let mut journal = host.journal();
    journal.record(key("/top/a", ManagedFile::Cpus), entry("2-3\n")).unwrap();
    journal.record(key("/top", ManagedFile::SubtreeControl), entry("cpuset memory\n")).unwrap();
    // As the kernel leaves it when the controller is gone and comes again.
    fs::write(host.path("/top/a").join("cpuset.cpus"), "\n").unwrap();
    let report = recover(&tree, BOOT, &mut journal);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(fs::read_to_string(&control).unwrap().trim_end(), "+cpuset");
    assert_eq!(host.read("/top/a", "cpuset.cpus"), "2-3\n");
    assert_eq!(host.read("/else", "cpuset.mems"), "1", "not undone");
    assert_eq!(journal.entries().keys().map(|key| key.cgroup.as_str()).collect::<Vec<_>>(), ["/else"]);
    assert_eq!(recover(&tree, BOOT, &mut journal), RestoreReport::default());
}

#[test]
fn restoring_one_cgroup_undoes_a_crash_that_took_the_controller_from_it_and_its_siblings() {
    let host = Fixture::new(true);
    host.cgroup("/top/a", "\n", "0\n");
    host.cgroup("/top/x", "\n", "0\n");
    host.cgroup("/else", "0-3\n", "0-1\n");
    apply_plan(&plan([set_mems("/else", "1")]), &mut host.actuator());
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    let control = host.path("/top").join("cgroup.subtree_control");
    fs::write(&control, "memory\n").unwrap();
    let key = |cgroup: &str, file| {
        let inode = fs::metadata(host.path(cgroup)).unwrap().ino();
        EntryKey { cgroup: CgroupPath::new(cgroup), file, inode }
    };
    let mut journal = host.journal();
    for (key, original) in [
        (key("/top/a", ManagedFile::Cpus), "2-3\n"),
        (key("/top/x", ManagedFile::Cpus), "\n"),
        (key("/top", ManagedFile::SubtreeControl), "cpuset memory\n"),
    ] {
        journal.record(key, Entry::of_file(original, BOOT)).unwrap();
    }
    let report = restore_within(&tree, BOOT, &mut journal, &CgroupPath::new("/top/x"));
    assert!(report.is_complete(), "{report:?}");
    assert!(fs::read_to_string(&control).unwrap().starts_with("+cpuset"), "{report:?}");
    assert_eq!(host.read("/top/a", "cpuset.cpus"), "2-3\n");
    assert_eq!(host.read("/else", "cpuset.mems"), "1", "not undone");
    assert_eq!(journal.entries().keys().map(|key| key.cgroup.as_str()).collect::<Vec<_>>(), ["/else"]);
}

#[test]
fn a_cgroup_that_is_gone_or_another_one_is_skipped_and_forgotten() {
    let host = Fixture::new(true);
    for path in ["/again", "/gone", "/moved-away"] {
        host.cgroup(path, "0-3\n", "0\n");
    }
    let steps = [set_cpus("/again", "1"), set_cpus("/gone", "1")];
    apply_plan(&plan(steps), &mut host.actuator());
    fs::remove_dir_all(host.path("/gone")).unwrap();
    // The old directory is kept elsewhere, so that its inode cannot be given out again.
    fs::rename(host.path("/again"), host.path("/moved-away/old")).unwrap();
    host.cgroup("/again", "0-7\n", "0\n");
    let report = restore_all(&host);
    let reasons: Vec<_> = report
        .files
        .iter()
        .map(|file| match &file.result {
            RestoreResult::Skipped { reason } => reason.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(reasons, ["the cgroup was removed and made again", "the cgroup is gone"]);
    assert_eq!(host.read("/again", "cpuset.cpus"), "0-7\n");
    assert!(report.is_complete());
    assert!(restore_all(&host).files.is_empty());
}

#[test]
fn entries_of_an_earlier_boot_are_skipped() {
    let host = Fixture::new(true);
    host.cgroup("/a", "0-3\n", "0\n");
    apply_plan(&plan([set_cpus("/a", "1")]), &mut host.actuator());
    let tree = CpusetTree::new(&host.layout.cpuset.path, true);
    let report = restore(&tree, Some("boot-2"), &mut host.journal());
    assert!(matches!(results(&report)[..], [RestoreResult::Skipped { .. }]), "{report:?}");
    assert_eq!(host.read("/a", "cpuset.cpus"), "1");
}

#[test]
fn what_cannot_be_put_back_stays_in_the_journal_for_the_next_time() {
    let host = Fixture::new(true);
    host.cgroup("/a", "0-3\n", "0\n");
    let before = host.contents();
    apply_plan(&plan([set_cpus("/a", "1"), set_mems("/a", "1")]), &mut host.actuator());
    let (file, aside) = (host.path("/a").join("cpuset.cpus"), host.path("/a").join("aside"));
    fs::rename(&file, &aside).unwrap();
    fs::create_dir(&file).unwrap();
    let report = restore_all(&host);
    assert!(!report.is_complete());
    assert!(
        matches!(results(&report)[..], [RestoreResult::PutBack { .. }, RestoreResult::Failed { .. }]),
        "{report:?}"
    );
    fs::remove_dir(&file).unwrap();
    fs::rename(&aside, &file).unwrap();
    assert!(restore_all(&host).is_complete());
    assert_eq!(host.contents(), before);
}

#[derive(Debug, Clone)]
enum Event {
    Cpus(usize, String),
    Mems(usize, String),
    Restart,
}

const CGROUPS: [&str; 4] = ["/a", "/a/b", "/a/b/c", "/d"];

fn list() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["0", "1", "0-1", "0,2", "0-3", "2-3"]).prop_map(str::to_owned)
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..CGROUPS.len(), list()).prop_map(|(cgroup, list)| Event::Cpus(cgroup, list)),
        (0..CGROUPS.len(), list()).prop_map(|(cgroup, list)| Event::Mems(cgroup, list)),
        Just(Event::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn after_any_history_restore_gives_every_byte_back(
        v2: bool,
        originals in prop::collection::vec(prop_oneof![Just(String::new()), list()], CGROUPS.len()),
        events in prop::collection::vec(event(), 1..12),
    ) {
        let host = Fixture::new(v2);
        for (cgroup, text) in CGROUPS.iter().zip(&originals) {
            host.cgroup(cgroup, &format!("{text}\n"), &format!("{text}\n"));
        }
        let before = host.contents();
        let mut actuator = Some(host.actuator());
        for event in events {
            let action = match event {
                Event::Cpus(cgroup, list) => set_cpus(CGROUPS[cgroup], &list),
                Event::Mems(cgroup, list) => set_mems(CGROUPS[cgroup], &list),
                Event::Restart => {
                    actuator = None;
                    continue;
                }
            };
            apply_plan(&plan([action]), actuator.get_or_insert_with(|| host.actuator()));
        }
        drop(actuator);
        let report = restore_all(&host);
        prop_assert!(report.is_complete(), "{report:?}");
        prop_assert_eq!(host.contents(), before);
    }
}
